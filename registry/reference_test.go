//go:build linux

package registry_test

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// withReferences returns a registry that verifies calls of the shaky operators with references. No C++ compiler runs for a
// verification, and each call runs the operator once.
func withReferences(t *testing.T, references map[string]registry.Reference) *registry.Registry {
	t.Helper()
	return open(t, registry.Options{Root: shakyTree(t), Verify: true, References: references})
}

// oddCall makes an odd call, which changes element 5 of 9, and then an even one: all registries share the library, which counts.
func oddCall(op *registry.Op, by float64) error {
	call := func() error { return op.Call(context.Background(), ramp(9), ramp(9), 5, by) }
	err := call()
	_ = call()
	return err
}

// copied is the reference of shaky_copy.
func copied(args map[string]any) (map[string][]float64, error) {
	values, err := args["x"].(*tensor.Tensor).Float64s()
	return map[string][]float64{"out": values}, err
}

func TestReference(t *testing.T) {
	var given map[string]any
	r := withReferences(t, map[string]registry.Reference{"shaky_copy": {Compute: func(args map[string]any) (map[string][]float64, error) {
		given = args
		return copied(args)
	}}})
	op := lookup(t, r, "shaky_copy")
	out, x := ramp(9), ramp(9)
	err := op.Call(context.Background(), out, x, 5, 1.0)
	var wrong *registry.VerifyError
	if !errors.As(err, &wrong) || !wrong.Reference || wrong.Arg != "out" || !slices.Equal(wrong.Index, []int64{5}) || wrong.Got != 6 ||
		wrong.Want != 5 {
		t.Errorf("a wrong call: got %v, want a VerifyError of out at [5] with Reference", err)
	} else if !strings.Contains(err.Error(), "is 6, expected 5 from the reference") {
		t.Errorf("got %q", err)
	}
	if err := op.Call(context.Background(), out, x, 5, 1.0); err != nil {
		t.Errorf("a right call: %v", err)
	}
	if names := slices.Sorted(maps.Keys(given)); !slices.Equal(names, []string{"at", "by", "out", "x"}) || given["x"] == any(x) {
		t.Errorf("the reference got the arguments %v, want those of the schema with copies of tensors", names)
	}
}

// A reference that fails, or that does not fit the tensors, is no verification.
func TestReferenceThatFails(t *testing.T) {
	refused := errors.New("no such mode")
	for name, c := range map[string]struct {
		compute func(map[string]any) (map[string][]float64, error)
		want    string
	}{
		"error": {func(map[string]any) (map[string][]float64, error) { return nil, refused }, "no such mode"},
		"length": {func(map[string]any) (map[string][]float64, error) { return map[string][]float64{"out": {1}}, nil },
			"returned 1 elements, expected 9"},
		"panic": {func(map[string]any) (map[string][]float64, error) { panic("index out of range") },
			"the reference failed: index out of range"},
		"no function": {nil, "a Reference without Compute"},
		"nothing":     {func(map[string]any) (map[string][]float64, error) { return nil, nil }, ""},
	} {
		op := lookup(t, withReferences(t, map[string]registry.Reference{"shaky_copy": {Compute: c.compute}}), "shaky_copy")
		err := oddCall(op, 1)
		var unverified *registry.UnverifiedError
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		} else if !errors.As(err, &unverified) || !unverified.Called || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an UnverifiedError with %q", name, err, c.want)
		}
	}
}

// Tolerance replaces that of the configuration; an element beyond the type's range is infinite.
func TestReferenceTolerance(t *testing.T) {
	for allowed, right := range map[float64]bool{0.5: false, 1: true} {
		op := lookup(t, withReferences(t, map[string]registry.Reference{"shaky_exact": {
			Compute:   copied,
			Tolerance: func(string, tensor.DType) (rel, abs float64) { return 0, allowed },
		}}), "shaky_exact")
		if err := oddCall(op, 1); (err == nil) != right {
			t.Errorf("tolerance %g: %v", allowed, err)
		}
	}
	beyond := func(args map[string]any) (map[string][]float64, error) {
		want, err := copied(args)
		want["out"][5] = 1e300
		return want, err
	}
	op := lookup(t, withReferences(t, map[string]registry.Reference{"shaky_exact": {Compute: beyond}}), "shaky_exact")
	if err := oddCall(op, math.Inf(1)); err != nil {
		t.Errorf("1e300 in float32: %v", err)
	}
}

// The error of an operator without code for the CPU names what it lacks.
func TestNoReference(t *testing.T) {
	op := lookup(t, open(t, registry.Options{AIter: "/none", Verify: true}), "aiter_sigmoid")
	x := must(tensor.New(tensor.Float32, 8, 16))
	err := op.Call(context.Background(), must(tensor.New(tensor.Float32, 8, 16)), x)
	var unverified *registry.UnverifiedError
	if !errors.As(err, &unverified) || unverified.Called || !strings.Contains(err.Error(), "Options.References has no reference") {
		t.Errorf("got %v, want an UnverifiedError that names Options.References", err)
	}
}

// Calls on a GPU need the CPU build of an operator without a reference alone. Nothing is compiled: the errors name the requested targets.
func TestReferenceNeedsNoCPUBuild(t *testing.T) {
	rocm, dev := fakeDriver(t, "fakehip.c", "lib/libamdhip64.so.7"), tensor.Device{Type: tensor.ROCM}
	const name, forCPU = "causal_conv1d_fwd", "module_causal_conv1d for cpu"
	for _, references := range []map[string]registry.Reference{nil, {name: {Compute: copied}}} {
		r := open(t, registry.Options{CacheDir: t.TempDir(), NoCompile: true, Verify: true, References: references,
			Getenv: env(map[string]string{"ROCM_PATH": rocm})})
		drv, err := r.Devices().Driver(tensor.ROCM)
		if err != nil {
			t.Fatal(err)
		}
		if lib := drv.Library(); !strings.HasPrefix(lib, rocm) {
			t.Skipf("this process has the machine's own %s", lib)
		}
		gpu, err := r.Target(dev)
		if err != nil {
			t.Fatal(err)
		}
		needsCPU, op := references == nil, lookup(t, r, name)
		if err := r.Warm(context.Background(), dev, name); err == nil || strings.Contains(err.Error(), forCPU) != needsCPU {
			t.Errorf("%d references: Warm returned %v; want a build for the CPU: %t", len(references), err, needsCPU)
		}
		on := func(shape ...int64) *tensor.Tensor { return must(r.Devices().New(dev, tensor.Float32, shape...)) }
		err = op.Call(context.Background(), on(1, 1, 4), on(1, 1, 4), on(1, 2))
		var build *registry.BuildError
		if !errors.As(err, &build) || (build.Request.Target == target.Host()) != needsCPU {
			t.Errorf("%d references: the call returned %v; want a build for the CPU: %t", len(references), err, needsCPU)
		}
		op.MarkReady(gpu)
		if r.Ready(dev, name) == needsCPU {
			t.Errorf("%d references: with the code for %s alone, Ready returns %t", len(references), gpu, needsCPU)
		}
		op.MarkReady(target.Host())
		if !r.Ready(dev, name) {
			t.Errorf("%d references: not ready with all code", len(references))
		}
	}
}

// A reference gets the defaults of the arguments that a call leaves out.
func TestReferenceGetsDefaults(t *testing.T) {
	var given map[string]any
	r := open(t, registry.Options{Verify: true, References: map[string]registry.Reference{"causal_conv1d_fwd": {
		Compute: func(args map[string]any) (map[string][]float64, error) {
			given = args
			return nil, nil
		},
	}}})
	op := lookup(t, r, "causal_conv1d_fwd")
	on := func(shape ...int64) *tensor.Tensor { return must(tensor.New(tensor.Float32, shape...)) }
	if err := op.Call(context.Background(), on(1, 1, 4), on(1, 1, 4), on(1, 2)); err != nil {
		t.Fatal(err)
	}
	if silu, ok := given["use_silu"]; !ok || silu != false {
		t.Errorf("the reference got %v, want the default of use_silu", given)
	}
}
