//go:build linux

package registry_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/internal/verify"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// shakyConfig declares operators whose odd calls compute one wrong element. Verification
// calls an operator once with the arguments and once with copies.
const shakyConfig = `
[module.module_shaky]
defaults = false
include = ["csrc/include"]
[[module.module_shaky.source]]
path = "csrc/shaky.cpp"
[[module.module_shaky.op]]
name = "shaky_copy"
schema = "(Tensor(a!) out, Tensor x, int at, float by) -> ()"
[[module.module_shaky.op]]
name = "shaky_add"
schema = "(Tensor(a!)? none, Tensor(b!) state, Tensor x, int at, float by) -> ()"
tolerance = { state = { abs = 0.25 } }
[[module.module_shaky.op]]
name = "shaky_exact"
schema = "(Tensor(a!) out, Tensor x, int at, float by) -> ()"
tolerance = { out = "exact" }
[[module.module_shaky.op]]
name = "shaky_both"
schema = "(Tensor(a!) first, Tensor(b!) second, int at, float by) -> ()"
[[module.module_shaky.op]]
name = "shaky_refusal"
schema = "(Tensor(a!) out) -> ()"
`

const shakySource = `
#include <aiter/ffi.h>
namespace {
using namespace aiter;
bool odd(int* calls) { return ++*calls % 2; }
float& element(const TensorView& t, int64_t i) { return t.as<float>()[i * t.stride(0)]; }

Status copy(TensorView out, TensorView x, int64_t at, double by) {
  static int calls;
  for (int64_t i = 0; i < out.size(0); i++) element(out, i) = element(x, i);
  if (odd(&calls)) element(out, at) += float(by);
  return Status();
}
Status exact(TensorView out, TensorView x, int64_t at, double by) {
  static int calls;
  for (int64_t i = 0; i < out.size(0); i++) element(out, i) = element(x, i);
  if (odd(&calls)) element(out, at) += float(by);
  return Status();
}
Status add(Optional<TensorView>, TensorView state, TensorView x, int64_t at, double by) {
  static int calls;
  for (int64_t i = 0; i < state.size(0); i++) element(state, i) += element(x, i);
  if (odd(&calls)) element(state, at) += float(by);
  return Status();
}
Status both(TensorView first, TensorView second, int64_t at, double by) {
  static int calls;
  if (odd(&calls)) element(first, at) += float(by), element(second, at) += float(by);
  return Status();
}
Status refusal(TensorView) {
  static int calls;
  return odd(&calls) ? Status() : value_error("argument 'out': expected rank 9, got none");
}
}
AITER_EXPORT(shaky_copy, copy, arg("out"), arg("x"), arg("at"), arg("by"))
AITER_EXPORT(shaky_exact, exact, arg("out"), arg("x"), arg("at"), arg("by"))
AITER_EXPORT(shaky_add, add, arg("none"), arg("state"), arg("x"), arg("at"), arg("by"))
AITER_EXPORT(shaky_both, both, arg("first"), arg("second"), arg("at"), arg("by"))
AITER_EXPORT(shaky_refusal, refusal, arg("out"))
`

// shaky opens a verifying registry with these operators.
func shaky(t *testing.T) *registry.Registry {
	t.Helper()
	return open(t, registry.Options{Root: shakyTree(t), Verify: true})
}

// shakyTree returns a source tree with these operators.
func shakyTree(t *testing.T) string {
	t.Helper()
	return sourceTree(t, shakyConfig, map[string]string{"csrc/shaky.cpp": shakySource})
}

// sourceTree returns a copy of the project's sources with additional configuration and files.
func sourceTree(t *testing.T, config string, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for _, dir := range []string{"csrc", "config"} {
		if err := os.CopyFS(filepath.Join(root, dir), os.DirFS(filepath.Join("..", dir))); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(root, "config/opt_compiler.toml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	files["config/opt_compiler.toml"] = string(text) + config
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// ramp returns the float32 tensor 0, 1, 2, ... It has every second element of its storage.
func ramp(n int64) *tensor.Tensor {
	v := make([]float64, n)
	for i := range v {
		v[i] = float64(i)
	}
	t := must(tensor.View(must(tensor.New(tensor.Float32, 2*n)).Storage(), tensor.Float32, []int64{n}, []int64{2}, 0))
	if err := t.SetFloat64s(v); err != nil {
		panic(err)
	}
	return t
}

func TestVerify(t *testing.T) {
	r := shaky(t)
	for _, c := range []struct {
		op       string
		by       float64
		arg      string // "": verification succeeds
		got      float64
		allowed  verify.Tolerance
		newState bool
	}{
		{op: "shaky_copy", by: 0},
		{op: "shaky_copy", by: 1e-4}, // within the tolerance of float32 sums
		{op: "shaky_copy", by: 1, arg: "out", got: 6, allowed: verify.Default(tensor.Float32)},
		{op: "shaky_exact", by: 0},
		{op: "shaky_exact", by: 1e-4, arg: "out", got: 5.0001, allowed: verify.Tolerance{}},
		{op: "shaky_add", by: 0},
		{op: "shaky_add", by: 0.2},
		{op: "shaky_add", by: 0.3, arg: "state", got: 10.3, allowed: verify.Tolerance{Abs: 0.25}},
	} {
		op := lookup(t, r, c.op)
		out, x := ramp(9), ramp(9)
		args := []any{out, x, 5, c.by}
		if op.Schema().Args[0].Type.Optional {
			args = append([]any{nil}, args...)
		}
		err := op.Call(context.Background(), args...)
		var wrong *registry.VerifyError
		if c.arg == "" {
			if err != nil {
				t.Errorf("%s off by %g: %v", c.op, c.by, err)
			}
			continue
		}
		if !errors.As(err, &wrong) {
			t.Errorf("%s off by %g: got %v, want a VerifyError", c.op, c.by, err)
			continue
		}
		if wrong.Op != c.op || wrong.Arg != c.arg || !slices.Equal(wrong.Index, []int64{5}) || wrong.Mismatches != 1 || wrong.Elements != 9 ||
			float32(wrong.Got) != float32(c.got) || wrong.Tolerance != c.allowed || !wrong.Device.IsHost() {
			t.Errorf("%s off by %g: got %+v", c.op, c.by, wrong)
		}
		if v, err := out.Float64s(); err != nil || v[5] != wrong.Got {
			t.Errorf("%s: the argument does not have the operator's result: %v, %v", c.op, v, err)
		}
	}
}

func TestVerifyReportsEveryArgument(t *testing.T) {
	err := lookup(t, shaky(t), "shaky_both").Call(context.Background(), ramp(4), ramp(4), 2, 1.5)
	want := []string{
		"shaky_both: verification: argument first: element [2] on cpu is 3.5, expected 2 from a second run (allowed error 0.001 + " +
			"0.0003*|want|); 1 of 4 elements are wrong, by up to 1.5",
		"argument second",
	}
	for _, w := range want {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("got %v, want %q", err, w)
		}
	}
}

func TestVerificationThatFailsToRun(t *testing.T) {
	var unverified *registry.UnverifiedError
	var failed *registry.OperatorError
	err := lookup(t, shaky(t), "shaky_refusal").Call(context.Background(), ramp(4))
	if !errors.As(err, &unverified) || !unverified.Called || !errors.As(err, &failed) || failed.Arg != "out" {
		t.Errorf("got %v, want an UnverifiedError around the error of the second run", err)
	}

	r := open(t, registry.Options{CacheDir: t.TempDir(), Verify: true, Getenv: env(map[string]string{"CXX": "/nonexistent/c++"})})
	out, x, w := small()
	var build *registry.BuildError
	err = lookup(t, r, "causal_conv1d_fwd").Call(context.Background(), out, x, w)
	if !errors.As(err, &unverified) || unverified.Called || !errors.As(err, &build) {
		t.Errorf("got %v, want an UnverifiedError around a BuildError", err)
	}
}

// Errors in the arguments are reported as without verification.
func TestVerifyKeepsOtherErrors(t *testing.T) {
	r := shaky(t)
	op := lookup(t, r, "causal_conv1d_fwd")
	out, x, w := small()
	var arity *registry.ArityError
	if err := op.Call(context.Background(), out, x); !errors.As(err, &arity) {
		t.Errorf("got %v, want an ArityError", err)
	}
	if err := op.Call(context.Background(), x, x, w); !blames("out", "overlap", "ValueError")(err) {
		t.Errorf("got %v, want an OperatorError: the copies must overlap like the arguments", err)
	}
	var stream *registry.StreamDeviceError
	ctx := device.WithStream(context.Background(), device.Stream{Device: tensor.Device{Type: tensor.CUDA}})
	if err := op.Call(ctx, out, x, w); !errors.As(err, &stream) {
		t.Errorf("got %v, want a StreamDeviceError", err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := op.Call(context.Background(), out, x, w); !errors.Is(err, registry.ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
}

// With AITER_VERIFY all operators of the family, including their states, pass verification
// from many goroutines.
func TestVerifyFromTheEnvironment(t *testing.T) {
	r := open(t, registry.Options{Getenv: env(map[string]string{"AITER_VERIFY": "1"})})
	x := func(shape ...int64) *tensor.Tensor {
		t := must(tensor.New(tensor.BFloat16, shape...))
		v := make([]float64, t.Numel())
		for i := range v {
			v[i] = float64(i%7) - 3
		}
		_ = t.SetFloat64s(v)
		return t
	}
	index := func(v ...int32) *tensor.Tensor { return must(tensor.Of(v, int64(len(v)))) }
	calls := map[string]func() []any{
		"causal_conv1d_fwd": func() []any {
			return []any{x(2, 3, 9), x(2, 3, 9), x(3, 4), x(3), true, nil, x(2, 3, 3), x(2, 3, 3)}
		},
		"causal_conv1d_bwd": func() []any {
			return []any{x(2, 3, 9), x(1, 4), x(3), x(2, 3, 9), x(1, 4), x(3), x(2, 3, 9), true, nil, x(2, 3, 3), x(2, 3, 3), x(2, 3, 3)}
		},
		"causal_conv1d_update":        func() []any { return []any{x(2, 3), x(2, 3), x(4, 3, 5), x(1, 4), x(3), true, nil, index(3, 1)} },
		"causal_conv1d_varlen_fwd":    func() []any { return []any{x(3, 9), x(3, 9), x(1, 4), x(3), true, index(0, 2, 9), x(2, 3, 3)} },
		"causal_conv1d_varlen_states": func() []any { return []any{x(2, 3, 4), x(9, 3), index(0, 2, 9)} },
		"causal_conv1d_serve_update": func() []any {
			return []any{x(2, 3), x(2, 3), x(4, 3, 5), x(1, 4), x(3), true, index(3, 1), nil, int64(-1), index(1, 2)}
		},
		"causal_conv1d_update_split_qkv": func() []any {
			return []any{x(2, 1), x(2, 1), x(2, 2), x(2, 4), x(4, 4, 5), x(1, 4), x(4), true, index(3, 1)}
		},
		"causal_conv1d_serve_fwd": func() []any {
			return []any{x(3, 9), x(3, 9), x(4, 3, 5), x(1, 4), index(0, 2, 9), x(3), true, index(3, 1)}
		},
		"causal_conv1d_fwd_split_qkv": func() []any {
			return []any{x(9, 1), x(9, 1), x(9, 2), x(4, 9), x(4, 4, 5), x(1, 4), index(0, 2, 9), x(4), true, index(3, 1)}
		},
	}
	var wg sync.WaitGroup
	for name, args := range calls {
		op := lookup(t, r, name)
		for range 3 {
			wg.Go(func() {
				if err := op.Call(context.Background(), args()...); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	if !r.Ready(tensor.Host(), "causal_conv1d_fwd") {
		t.Error("not ready after calls")
	}
}

// AITER_VERIFY is a switch that is off by default.
func TestVerifySwitch(t *testing.T) {
	root := shakyTree(t)
	for value, want := range map[string]bool{"": false, "0": false, "false": false, "1": true, "true": true} {
		r := open(t, registry.Options{Root: root, Getenv: env(map[string]string{"AITER_VERIFY": value})})
		op := lookup(t, r, "shaky_copy")
		wrong := 0
		for range 2 { // an even number of runs in both cases
			if err := op.Call(context.Background(), ramp(9), ramp(9), 5, 1.0); err != nil {
				wrong++
			}
		}
		if (wrong == 2) != want || (wrong == 0) == want {
			t.Errorf("AITER_VERIFY=%q: %d of 2 calls failed", value, wrong)
		}
	}
}
