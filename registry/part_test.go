//go:build linux

package registry_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/aiter-go/aiter/internal/ffi"
	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// units counts the compiles of each unit: "fwd.cpp dtype=float16".
type units struct {
	mu sync.Mutex
	n  map[string]int
}

func (u *units) Observe(e jit.Event) {
	if e.Step != jit.UnitFinished {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.n == nil {
		u.n = map[string]int{}
	}
	name := strings.TrimPrefix(filepath.Base(e.Source), "causal_conv1d_")
	u.n[strings.Join(strings.Fields(name+" "+e.Values+" "+string(e.Pass)), " ")]++
}

// expect checks the compiles since its last call.
func (u *units) expect(t *testing.T, when string, names ...string) {
	t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	want := map[string]int{}
	for _, n := range names {
		want[n]++
	}
	if !maps.Equal(u.n, want) && len(u.n)+len(want) > 0 {
		t.Errorf("%s: compiled %v, want %v", when, u.n, want)
	}
	u.n = nil
}

// apartOnCPU returns a copy of the project's tree that builds each element type separately on the
// CPU, as on GPUs.
func apartOnCPU(t *testing.T) string {
	t.Helper()
	return quickTree(t, "define   = \"AITER_DTYPE\"\ntargets  = [\"hip\", \"cuda\"]\n", "define   = \"AITER_DTYPE\"\n")
}

// quickTree returns a copy of the project's tree that is compiled without optimization, with text
// replaced in its configuration. Its arguments are not declared, so that calls reach the selection of
// parts and the operators' own checks.
func quickTree(t *testing.T, before, after string) string {
	t.Helper()
	root := t.TempDir()
	if err := writeQuickTree(root, before, after); err != nil {
		t.Fatal(err)
	}
	return root
}

func writeQuickTree(root, before, after string) error {
	for _, dir := range []string{"csrc", "config"} {
		if err := os.CopyFS(filepath.Join(root, dir), os.DirFS(filepath.Join("..", dir))); err != nil {
			return err
		}
	}
	config := filepath.Join(root, "config/opt_compiler.toml")
	text, err := os.ReadFile(config)
	if err != nil {
		return err
	}
	changed := strings.Replace(strings.NewReplacer(`"-O3"`, `"-O0"`, `"-O2"`, `"-O0"`).Replace(string(text)), before, after, 1)
	if !strings.Contains(string(text), before) || !strings.Contains(changed, `"-O0"`) {
		return fmt.Errorf("the configuration lacks %q or -O3", before)
	}
	changed = regexp.MustCompile(`(?m)^(args\.|split ).*\n`).ReplaceAllString(changed, "")
	return os.WriteFile(config, []byte(changed), 0o644)
}

// smallOf is like small for another element type.
func smallOf(t testing.TB, dt tensor.DType) (out, x, w *tensor.Tensor) {
	t.Helper()
	out, x, w = must(tensor.New(dt, 1, 1, 4)), must(tensor.New(dt, 1, 1, 4)), must(tensor.New(dt, 1, 2))
	if err := errors.Join(x.SetFloat64s([]float64{1, 2, 3, 4}), w.SetFloat64s([]float64{10, 1})); err != nil {
		t.Fatal(err)
	}
	return out, x, w
}

func call(t testing.TB, op *registry.Op, dt tensor.DType) {
	t.Helper()
	out, x, w := smallOf(t, dt)
	if err := op.Call(context.Background(), out, x, w); err != nil {
		t.Error(err)
		return
	}
	if got, err := out.Float64s(); err != nil || got[1] != 12 || got[3] != 34 {
		t.Errorf("%s in %s: %v, %v", op.Name(), dt, got, err)
	}
}

func TestFirstCallCompilesOnlyItsOperator(t *testing.T) {
	seen := new(units)
	r := open(t, registry.Options{CacheDir: t.TempDir(), Root: quickTree(t, "", ""), Observer: seen})
	fwd := lookup(t, r, "causal_conv1d_fwd")
	call(t, fwd, tensor.Float32)
	seen.expect(t, "first call", "fwd.cpp", "cpu.cpp", "long_row.cpp", "aiter_ffi.cpp")
	call(t, fwd, tensor.Float16)
	seen.expect(t, "another type, which the CPU's unit has")
	x := must(tensor.New(tensor.Float32, 3, 1))
	ends := must(tensor.Of([]int32{0, 3}, 2))
	if err := lookup(t, r, "causal_conv1d_varlen_states").Call(context.Background(), must(tensor.New(tensor.Float32, 1, 1, 2)),
		x, ends); err != nil {
		t.Fatal(err)
	}
	seen.expect(t, "another operator", "varlen.cpp")
	for name, want := range map[string]bool{ // varlen_fwd is in another part
		"causal_conv1d_fwd": true, "causal_conv1d_varlen_states": true, "causal_conv1d_varlen_fwd": false, "causal_conv1d_bwd": false,
	} {
		if got := r.Ready(tensor.Host(), name); got != want {
			t.Errorf("%s: ready %v, want %v", name, got, want)
		}
	}
}

func TestFirstCallOfEachTypeCompiles(t *testing.T) {
	testenv.Long(t)
	seen := new(units)
	r := open(t, registry.Options{CacheDir: t.TempDir(), Root: apartOnCPU(t), Observer: seen})
	fwd := lookup(t, r, "causal_conv1d_fwd")
	call(t, fwd, tensor.BFloat16)
	seen.expect(t, "first call", "fwd.cpp dtype=bfloat16", "cpu.cpp", "long_row.cpp", "aiter_ffi.cpp")
	call(t, fwd, tensor.BFloat16)
	seen.expect(t, "again")
	call(t, fwd, tensor.Float32)
	seen.expect(t, "another type", "fwd.cpp dtype=float32")
	if r.Ready(tensor.Host(), "causal_conv1d_fwd") {
		t.Error("ready, but a call would compile float16")
	}
	call(t, fwd, tensor.Float16)
	seen.expect(t, "the last type", "fwd.cpp dtype=float16")
	if !r.Ready(tensor.Host(), "causal_conv1d_fwd") || r.Ready(tensor.Host(), "causal_conv1d_bwd") {
		t.Error("want forward ready and backward not ready")
	}
}

// TestCallsWithConditions checks that a call builds a source with a condition on element types only if its type is listed.
func TestCallsWithConditions(t *testing.T) {
	testenv.Long(t)
	root := apartOnCPU(t)
	config := filepath.Join(root, "config/opt_compiler.toml")
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	const source = "\n[[module.module_causal_conv1d.source]]\npath = \"csrc/half.cpp\"\nops  = [\"causal_conv1d_fwd\"]\n" +
		"when = { vendor = [\"cpu\"], axis = { dtype = [\"float16\"] } }\n"
	if err := errors.Join(os.WriteFile(config, append(text, source...), 0o644),
		os.WriteFile(filepath.Join(root, "csrc/half.cpp"), []byte("int half_only() { return 16; }\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	seen := new(units)
	r := open(t, registry.Options{CacheDir: t.TempDir(), Root: root, Observer: seen})
	fwd := lookup(t, r, "causal_conv1d_fwd")
	call(t, fwd, tensor.Float32)
	seen.expect(t, "a type that is not listed", "fwd.cpp dtype=float32", "cpu.cpp", "long_row.cpp", "aiter_ffi.cpp")
	call(t, fwd, tensor.Float16)
	seen.expect(t, "a listed type", "fwd.cpp dtype=float16", "half.cpp dtype=float16")
	call(t, fwd, tensor.Float32)
	seen.expect(t, "the first type again")
}

func TestConcurrentCallsCompileEachTypeOnce(t *testing.T) {
	seen := new(units)
	r := open(t, registry.Options{CacheDir: t.TempDir(), Root: apartOnCPU(t), Observer: seen})
	fwd := lookup(t, r, "causal_conv1d_fwd")
	types := []tensor.DType{tensor.Float32, tensor.Float16, tensor.BFloat16}
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() { call(t, fwd, types[i%len(types)]) })
	}
	wg.Wait()
	seen.expect(t, "64 goroutines", "fwd.cpp dtype=float32", "fwd.cpp dtype=float16", "fwd.cpp dtype=bfloat16", "cpu.cpp", "long_row.cpp",
		"aiter_ffi.cpp")
}

// TestUnknownTypeBuildsNothing checks that a type outside of an axis fails with the
// operator's own message.
func TestUnknownTypeBuildsNothing(t *testing.T) {
	seen := new(units)
	ints := func() []any {
		return []any{must(tensor.New(tensor.Int32, 1, 1, 4)), must(tensor.New(tensor.Int32, 1, 1, 4)), must(tensor.New(tensor.Float32, 1, 2))}
	}
	r := open(t, registry.Options{CacheDir: t.TempDir(), Root: apartOnCPU(t), Observer: seen})
	var fromRegistry, fromCode *registry.OperatorError
	if err := lookup(t, r, "causal_conv1d_fwd").Call(context.Background(), ints()...); !errors.As(err, &fromRegistry) {
		t.Fatalf("got %v, want an OperatorError", err)
	}
	seen.expect(t, "a wrong type")
	together := open(t, registry.Options{Root: quickTree(t, "", "")})
	if err := lookup(t, together, "causal_conv1d_fwd").Call(context.Background(), ints()...); !errors.As(err, &fromCode) {
		t.Fatalf("got %v, want an OperatorError", err)
	}
	if *fromRegistry != *fromCode {
		t.Errorf("the registry reports\n%+v, the operator\n%+v", *fromRegistry, *fromCode)
	}
}

// TestPartRejectsOtherTypes checks that the library of one type rejects calls with
// another type, in every language.
func TestPartRejectsOtherTypes(t *testing.T) {
	callFwd := forwardOf(t, apartOnCPU(t), "dtype=float16")
	for dt, want := range map[tensor.DType]string{
		tensor.Float16: "",
		tensor.Float32: "causal_conv1d_fwd: argument 'x': expected dtype float16, which is all that this build holds, got float32",
		tensor.Int32:   "causal_conv1d_fwd: argument 'x': expected dtype float32, float16 or bfloat16, got int32",
	} {
		for _, shape := range [][]int64{{1, 1, 4}, {0, 1, 4}} {
			out, x, w := must(tensor.New(dt, shape...)), must(tensor.New(dt, shape...)), must(tensor.New(tensor.Float32, 1, 2))
			expectCallError(t, callFwd(out, x, w), "TypeError", want)
		}
	}
}

// forwardOf builds one part of forward and returns its function. Its calls bypass the
// registry's selection of the part.
func forwardOf(t *testing.T, root, values string) func(args ...*tensor.Tensor) error {
	t.Helper()
	r := open(t, registry.Options{CacheDir: builtCache(t), Root: root})
	part := opconfig.Part{Op: "causal_conv1d_fwd", Values: values}
	res, err := r.Manager().Build(context.Background(), jit.Request{Module: "module_causal_conv1d", Target: cpu(t), Part: part},
		jit.Request{Module: "module_aiter_ffi", Target: cpu(t)})
	if err != nil {
		t.Fatal(err)
	}
	library := func(r jit.Result) *os.File {
		f, err := os.Open(r.Artifact.Path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	support, err := ffi.LoadSupport(library(res[1]))
	if err != nil {
		t.Fatal(err)
	}
	lib, err := support.Open(library(res[0]))
	if err != nil {
		t.Fatal(err)
	}
	fn, err := lib.Func("causal_conv1d_fwd")
	if err != nil {
		t.Fatal(err)
	}
	return func(args ...*tensor.Tensor) error {
		packed := make([]ffi.Any, len(args))
		for i, a := range args {
			packed[i] = ffi.Tensor(a)
		}
		_, err := support.CallReturning(fn, ffi.Stream{DeviceType: int32(tensor.Host().Type)}, packed)
		return err
	}
}

// expectCallError checks the error of a call; want is its text, "" for none.
func expectCallError(t *testing.T, err error, kind, want string) {
	t.Helper()
	var failed *ffi.CallError
	if want == "" && err != nil || want != "" && (!errors.As(err, &failed) || failed.Kind != kind || failed.Message != want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// TestWholeModuleServesEveryCall checks that a whole module is not compiled again in
// parts, in the same process or another.
func TestWholeModuleServesEveryCall(t *testing.T) {
	testenv.Long(t)
	seen := new(units)
	opts := registry.Options{CacheDir: t.TempDir(), Root: apartOnCPU(t), Observer: seen}
	r := open(t, opts)
	if err := r.Warm(context.Background(), tensor.Device{}, "causal_conv1d_fwd"); err != nil {
		t.Fatal(err)
	}
	seen.expect(t, "warm", "fwd.cpp", "bwd.cpp", "serve_fwd.cpp", "serve_update.cpp",
		"update.cpp", "varlen.cpp", "cpu.cpp", "long_row.cpp", "aiter_ffi.cpp")
	if !r.Ready(tensor.Host(), "causal_conv1d_fwd") || !r.Ready(tensor.Host(), "causal_conv1d_bwd") {
		t.Error("not ready after Warm")
	}
	other := open(t, opts)
	for _, r := range []*registry.Registry{r, other} {
		call(t, lookup(t, r, "causal_conv1d_fwd"), tensor.Float16)
		call(t, lookup(t, r, "causal_conv1d_fwd"), tensor.Float32)
	}
	seen.expect(t, "calls after warm")
	if !other.Ready(tensor.Host(), "causal_conv1d_bwd") {
		t.Error("the whole module is loaded, but another operator is not ready")
	}
}

func TestVerifiedCallsOfParts(t *testing.T) {
	testenv.Long(t)
	seen := new(units)
	r := open(t, registry.Options{CacheDir: t.TempDir(), Root: apartOnCPU(t), Observer: seen, Verify: true})
	call(t, lookup(t, r, "causal_conv1d_fwd"), tensor.Float16)
	seen.expect(t, "a verified call", "fwd.cpp dtype=float16", "cpu.cpp", "long_row.cpp", "aiter_ffi.cpp")
}

// TestPartForAGPU checks that a first call on a GPU builds two units, with the kernels
// of one type.
func TestPartForAGPU(t *testing.T) {
	testenv.Long(t)
	hipcc := testenv.Tool(t, "hipcc")
	seen := new(units)
	r := open(t, registry.Options{CacheDir: t.TempDir(), Observer: seen, Getenv: env(map[string]string{"HIPCC": hipcc})})
	gfx, err := target.Parse("gfx942")
	if err != nil {
		t.Fatal(err)
	}
	mod, op, err := r.Manager().Config().Op("causal_conv1d_fwd")
	if err != nil {
		t.Fatal(err)
	}
	chosen := map[string]string{"dtype": "float16", "width": "1-4"}
	spec, err := mod.Part(op, gfx, func(a opconfig.Axis) string { return chosen[a.Name] })
	if err != nil || spec.String() != "causal_conv1d_fwd dtype=float16,width=1-4" {
		t.Fatalf("a call needs %q, %v", spec, err)
	}
	res, err := r.Manager().Build(context.Background(), jit.Request{Module: mod.Name, Target: gfx, Part: spec})
	if err != nil {
		t.Fatal(err)
	}
	seen.expect(t, "forward in float16", "fwd.hip dtype=float16,width=1-4 host", "fwd.hip dtype=float16,width=1-4 device",
		"fwd_sequences.hip dtype=float16,width=1-4 host", "fwd_sequences.hip dtype=float16,width=1-4 device")
	library, err := os.ReadFile(res[0].Artifact.Path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(library)
	if !strings.Contains(text, "half_t") || strings.Contains(text, "bf16_t") || strings.Contains(text, "causal_conv1d_bwd") {
		t.Error("want a library with the kernels of float16 only")
	}
}
