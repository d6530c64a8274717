//go:build linux

package registry_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

const checkedConfig = `
[defaults]
include = ["csrc/include"]
targets = ["cpu"]

[module.module_aiter_ffi]
[[module.module_aiter_ffi.source]]
path = "csrc/support/aiter_ffi.cpp"

[module.module_checked]
[[module.module_checked.source]]
path = "csrc/checked.cpp"
[[module.module_checked.op]]
name = "checked"
schema = "(Tensor(a!) out, Tensor x, Tensor? w=None, Tensor? index=None) -> ()"
args.out   = { shape = "(..., D)", dtype = ["x"] }
args.x     = { shape = "(..., D)", dtype = ["float32", "float16"], strides = "row-major" }
args.w     = { shape = "(D, W-1) or (1)", dtype = ["float32", "x"] }
args.index = { shape = "(W) or (W, 2)", dtype = ["int32"] }
`

const checkedSource = `
#include <aiter/ffi.h>
using namespace aiter;
static Status checked(TensorView out, TensorView, Optional<TensorView>, Optional<TensorView>) {
  static_cast<float*>(out.data())[0] = 7;
  return Status();
}
AITER_EXPORT(checked, checked, arg("out"), arg("x"), none("w"), none("index"))
`

// checkedOp returns the operator "checked" of a configuration and a source.
func checkedOp(t *testing.T, config, source string) *registry.Op {
	t.Helper()
	root := t.TempDir()
	if err := os.CopyFS(filepath.Join(root, "csrc"), os.DirFS("../csrc")); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{"config/opt_compiler.toml": config, "csrc/checked.cpp": source} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755),
			os.WriteFile(filepath.Join(root, path), []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return lookup(t, open(t, registry.Options{Root: root}), "checked")
}

// A call is checked against the shapes, types and strides that the configuration declares, before
// the operator runs.
func TestDeclaredArguments(t *testing.T) {
	op := checkedOp(t, checkedConfig, checkedSource)
	zeros := func(dt tensor.DType, shape ...int64) *tensor.Tensor { return must(tensor.New(dt, shape...)) }
	f32 := func(shape ...int64) *tensor.Tensor { return zeros(tensor.Float32, shape...) }
	columns := must(f32(4, 3).Transpose(0, 1))
	out := f32(2, 3, 4)
	for _, tt := range []struct {
		name string
		args []any
		want string // of the error; "" for none
	}{
		{"least", []any{out, f32(2, 3, 4)}, ""},
		{"no leading dimensions", []any{f32(4), f32(4)}, ""},
		{"a size by an offset", []any{out, f32(2, 3, 4), f32(4, 2), zeros(tensor.Int32, 3)}, ""},
		{"second shape", []any{out, f32(2, 3, 4), f32(1), zeros(tensor.Int32, 3, 2)}, ""},
		{"only an offset", []any{out, f32(2, 3, 4), f32(4, 2)}, ""},
		{"out's last", []any{f32(2, 3, 5), f32(2, 3, 4)},
			"checked: argument 'out': expected shape (..., D) with ... = (2, 3), D = 4, got (2, 3, 5)"},
		{"out's leading", []any{f32(3, 2, 4), f32(2, 3, 4)},
			"checked: argument 'out': expected shape (..., D) with ... = (2, 3), D = 4, got (3, 2, 4)"},
		{"out's rank", []any{f32(3, 4), f32(2, 3, 4)}, "checked: argument 'out': expected shape (..., D) with ... = (2, 3), D = 4, got (3, 4)"},
		{"rank 0", []any{out, f32()}, "checked: argument 'x': expected shape (..., D) with ... = (2, 3), D = 4, got ()"},
		{"offset", []any{out, f32(2, 3, 4), f32(4, 3), zeros(tensor.Int32, 3)},
			"checked: argument 'w': expected shape (D, W-1) or (1) with D = 4, W = 3, got (4, 3)"},
		{"fixed size", []any{out, f32(2, 3, 4), nil, zeros(tensor.Int32, 3, 3)},
			"checked: argument 'index': expected shape (W) or (W, 2) with W = 3, got (3, 3)"},
		{"type", []any{out, zeros(tensor.Int32, 2, 3, 4)}, "checked: argument 'x': expected dtype float32 or float16, got int32"},
		{"type of another", []any{zeros(tensor.Float16, 2, 3, 4), f32(2, 3, 4)},
			"checked: argument 'out': expected dtype float32 as 'x', got float16"},
		{"type or that of another", []any{out, f32(2, 3, 4), zeros(tensor.BFloat16, 1)},
			"checked: argument 'w': expected dtype float32, got bfloat16"},
		{"strides", []any{f32(3, 4), columns},
			"checked: argument 'x': expected strides of row-major order without gaps, got [1 3]; copy the tensor with Compact"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := op.Call(context.Background(), tt.args...)
			var refused *registry.ArgumentError
			if tt.want == "" && err != nil || tt.want != "" && (!errors.As(err, &refused) || err.Error() != tt.want) {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
	if testenv.Race {
		return
	}
	x := f32(2, 3, 4)
	if n := testing.AllocsPerRun(100, func() {
		if err := op.Call(context.Background(), out, x); err != nil {
			t.Fatal(err)
		}
	}); n > 1 {
		t.Errorf("%v allocations in a call", n)
	}
}

// An operator may have any number of names of sizes: its calls are checked, split and without further allocations.
func TestManyNamesOfSizes(t *testing.T) {
	config := checkedConfig[:strings.Index(checkedConfig, "schema = ")] + `
schema = "(Tensor(a!) out, Tensor x, Tensor a, Tensor b, Tensor c, Tensor d, Tensor e, Tensor f, Tensor g) -> ()"
split = ["B"]
args.out = { shape = "(B, D)", output = true }
args.x = { shape = "(B, D)", dtype = ["float32"] }
`
	source := strings.NewReplacer("Optional<TensorView>, Optional<TensorView>", strings.Repeat("TensorView, ", 6)+"TensorView",
		`none("w"), none("index")`, `arg("a"), arg("b"), arg("c"), arg("d"), arg("e"), arg("f"), arg("g")`).Replace(checkedSource)
	x, out := must(tensor.New(tensor.Float32, 6, 4)), must(tensor.New(tensor.Float32, 6, 4))
	args, wrong := []any{out, x}, []any{out, x}
	for _, name := range "abcdefg" {
		config += fmt.Sprintf("args.%c = { shape = \"(%[1]cP, %[1]cQ, %[1]cR, %[1]cS, %[1]cT)\", dtype = [\"float32\"] }\n", name)
		args = append(args, must(tensor.New(tensor.Float32, 1, 2, 3, 4, 5)))
		wrong = append(wrong, must(tensor.New(tensor.Float32, 1, 2, 3, 4)))
	}
	op := checkedOp(t, config, source)
	if err := op.Call(t.Context(), args...); err != nil {
		t.Fatal(err)
	}
	want := "checked: argument 'a': expected shape (aP, aQ, aR, aS, aT), got (1, 2, 3, 4)"
	if err := op.Call(t.Context(), wrong...); err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	args[0] = must(tensor.New(tensor.Float32, 6, 5))
	want = "checked: argument 'out': expected shape (B, D) with B = 6, D = 4, got (6, 5)"
	if err := op.Call(t.Context(), args...); err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	args[0] = out
	if got := op.Axes(args...); !slices.Equal(got, []int64{6}) {
		t.Errorf("units %v, want 6", got)
	}
	if testenv.Race {
		return
	}
	if n := testing.AllocsPerRun(100, func() { _ = op.Call(t.Context(), args...) }); n > 1 {
		t.Errorf("%v allocations in a call", n)
	}
}
