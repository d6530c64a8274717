//go:build linux

package registry_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// layoutConfig has an operator with an axis by type and one by layout of one argument. The code of one source does not depend on
// the layout.
const layoutConfig = `
[module.module_layout]
defaults = false
include = ["csrc/include"]
flags.common = ["-O0", "-std=c++17"]
[module.module_layout.axis.dtype]
argument = "x"
define = "DTYPE"
values = ["float32", "float16"]
[module.module_layout.axis.layout]
argument = "x"
adjacent = [2, 1]
define = "LAYOUT"
values = ["half", "channel_last"] # "half" is also a short name of a type
[[module.module_layout.source]]
path = "csrc/apart.cpp"
ops = ["layout_of"]
[[module.module_layout.source]]
path = "csrc/shared.cpp"
ops = ["layout_of"]
axes = ["dtype"]
[[module.module_layout.op]]
name = "layout_of"
schema = "(Tensor x) -> int"
`

// layout_of returns the type and the layout that it was compiled for: 10 for float32 or 20 for float16, plus 1 or 2 for the layout.
func layoutFiles() map[string]string {
	return map[string]string{
		"csrc/apart.cpp": `
#include <aiter/check.h>
#include <aiter/ffi.h>
constexpr int half = 1, channel_last = 2;
#ifndef LAYOUT
#define LAYOUT 0
#endif
int shared();
namespace aiter {
static Result<int64_t> layout_of(TensorView x) {
  if (x.rank() != 3) return value_error("argument 'x': expected 3 dimensions, got %d in layout %d", x.rank(), LAYOUT);
  return int64_t(shared() + LAYOUT);
}
}
AITER_EXPORT(layout_of, layout_of, arg("x"))
`,
		"csrc/shared.cpp": `
constexpr int float32 = 10, float16 = 20;
#ifdef LAYOUT
#error the source does not name the axis layout
#endif
#ifndef DTYPE
#define DTYPE 0
#endif
int shared() { return DTYPE; }
`,
	}
}

// strided returns a tensor with given strides in memory that contains all its elements.
func strided(t *testing.T, dt tensor.DType, shape, strides []int64) *tensor.Tensor {
	t.Helper()
	first, last := int64(0), int64(0)
	for i, s := range strides {
		span := max(shape[i]-1, 0) * s
		first, last = first+min(span, 0), last+max(span, 0)
	}
	mem, err := tensor.HostStorage((last - first + 1) * dt.Size())
	if err != nil {
		t.Fatal(err)
	}
	return must(tensor.View(mem, dt, shape, strides, -first))
}

// TestLayoutSelectsPart checks that calls run the code that was compiled for their layout, and that a source without the axis is
// compiled once for both layouts.
func TestLayoutSelectsPart(t *testing.T) {
	seen := new(units)
	r := open(t, registry.Options{CacheDir: t.TempDir(), Root: sourceTree(t, layoutConfig, layoutFiles()), Observer: seen})
	op := lookup(t, r, "layout_of")
	call := func(want int64, dt tensor.DType, shape, strides []int64) {
		t.Helper()
		if got, err := op.CallReturning(t.Context(), strided(t, dt, shape, strides)); err != nil || got != want {
			t.Errorf("%v with strides %v: %v, %v; want %d", shape, strides, got, err, want)
		}
	}
	call(11, tensor.Float32, []int64{2, 3, 4}, []int64{12, 4, 1})
	seen.expect(t, "the first layout", "apart.cpp dtype=float32,layout=half", "shared.cpp dtype=float32", "aiter_ffi.cpp")
	if r.Ready(tensor.Host(), "layout_of dtype=fp32") || !r.Ready(tensor.Host(), "layout_of dtype=fp32,layout=half") {
		t.Error("want only the first layout to be ready")
	}
	call(12, tensor.Float32, []int64{2, 3, 4}, []int64{12, 1, 3})
	seen.expect(t, "the second layout", "apart.cpp dtype=float32,layout=channel_last")
	call(12, tensor.Float32, []int64{2, 3, 1}, []int64{3, 1, 1}) // a dimension of size 1 is not compared
	call(11, tensor.Float32, []int64{2, 1, 4}, []int64{4, 1, 1})
	call(11, tensor.Float32, []int64{2, 1, 1}, []int64{1, 1, 1})
	seen.expect(t, "layouts that are there")
	if !r.Ready(tensor.Host(), "layout_of dtype=fp32") {
		t.Error("not ready, but both layouts are built")
	}

	var refused *registry.OperatorError
	if err := op.Call(t.Context(), must(tensor.New(tensor.Float32, 3, 4))); !errors.As(err, &refused) ||
		!strings.Contains(err.Error(), "expected 3 dimensions, got 2 in layout 1") {
		t.Errorf("two dimensions: got %v, want the error of the first layout's code", err)
	}
	seen.expect(t, "a wrong call")

	first, second := must(tensor.New(tensor.Float32, 2, 3, 4)), strided(t, tensor.Float32, []int64{2, 3, 4}, []int64{12, 1, 3})
	n := testing.AllocsPerRun(100, func() {
		if err := errors.Join(op.Call(t.Context(), first), op.Call(t.Context(), second)); err != nil {
			t.Fatal(err)
		}
	})
	if n > 2 && !testenv.Race { // under the race detector the pool of a call's arguments loses some of them
		t.Errorf("two calls make %v allocations, want at most 2", n)
	}

	if err := r.Warm(t.Context(), tensor.Host(), "layout_of dtype=fp16,layout=half"); err != nil {
		t.Error(err)
	}
	seen.expect(t, "a warm layout", "apart.cpp dtype=float16,layout=half", "shared.cpp dtype=float16")
	call(21, tensor.Float16, []int64{2, 3, 4}, []int64{12, 4, 1})
	if err := r.Warm(t.Context(), tensor.Host(), "layout_of"); err != nil {
		t.Error(err)
	}
	seen.expect(t, "the whole module", "apart.cpp", "shared.cpp")
	call(0, tensor.Float16, []int64{2, 3, 4}, []int64{12, 1, 3})
}

// TestLayoutOfTensors compares the layout of calls with the rule of C++ code for two dimensions, and checks it for three.
func TestLayoutOfTensors(t *testing.T) {
	config := strings.Replace(layoutConfig, "[[module.module_layout.op]]", `[module.module_layout.axis.order]
argument = "y"
adjacent = [1, 2, 0]
define = "ORDER"
values = ["b", "c", "a"]
[[module.module_layout.op]]`, 1)
	config = strings.Replace(config, "(Tensor x)", "(Tensor x, Tensor y)", 1)
	r := open(t, registry.Options{Root: sourceTree(t, config, layoutFiles())})
	op := lookup(t, r, "layout_of")
	f32 := tensor.Float32
	anything := must(tensor.New(f32, 1))
	sizes, strides := []int64{0, 1, 2, 3}, []int64{-8, -2, 0, 1, 2, 8}
	for i := range len(sizes) * len(sizes) * len(strides) * len(strides) {
		n1, n2 := sizes[i%4], sizes[i/4%4]
		s1, s2 := strides[i/16%6], strides[i/96]
		want := "half"
		if n1 > 1 && (n2 == 1 || max(s1, -s1) < max(s2, -s2)) {
			want = "channel_last"
		}
		part, err := op.PartOf(cpu(t), strided(t, f32, []int64{2, n1, n2}, []int64{24, s1, s2}), anything)
		if err != nil || !strings.Contains(part+",", ",layout="+want+",") {
			t.Errorf("sizes %d and %d, strides %d and %d: %q, %v; want %s", n1, n2, s1, s2, part, err, want)
		}
	}
	for _, c := range []struct {
		shape, strides []int64
		want           string
	}{
		{[]int64{2, 3, 4}, []int64{12, 4, 1}, "c"},
		{[]int64{2, 3, 4}, []int64{12, 1, 3}, "b"},
		{[]int64{2, 3, 4}, []int64{-1, 2, 6}, "a"},
		{[]int64{2, 3, 4}, []int64{1, 1, 1}, "b"}, // equal strides: the first in the list
		{[]int64{2, 1, 4}, []int64{1, 1, 1}, "c"}, // the first of those that are compared
		{[]int64{2, 1, 1}, []int64{8, 1, 1}, "a"},
		{[]int64{1, 1, 1}, []int64{1, 2, 3}, "b"},
		{[]int64{3, 4}, []int64{1, 3}, "b"}, // dimension 2 is missing
		{[]int64{2, 3, 4, 5}, []int64{1, 60, 2, 8}, "a"},
	} {
		part, err := op.PartOf(cpu(t), must(tensor.New(f32, 1)), strided(t, f32, c.shape, c.strides))
		if want := "dtype=float32,layout=half,order=" + c.want; err != nil || part != want {
			t.Errorf("shape %d, strides %d: %q, %v; want %s", c.shape, c.strides, part, err, want)
		}
	}
}
