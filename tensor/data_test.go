package tensor_test

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/tensor"
)

// A slice and its tensor share memory, which the tensor keeps alive.
func testShared[T tensor.Element](t *testing.T, dt tensor.DType, a, b T) {
	t.Run(dt.String(), func(t *testing.T) {
		data := []T{a, a, b}
		x := must(tensor.Of(data, 1, 3))
		if x.DType() != dt || !slices.Equal(x.Shape(), []int64{1, 3}) {
			t.Fatalf("got %s", x)
		}
		data[0] = b
		view, err := tensor.Data[T](x)
		if err != nil || view[0] != b || &view[0] != &data[0] {
			t.Fatalf("Data returned %v, %v", view, err)
		}
		data = nil
		runtime.GC()
		if view, err = tensor.Data[T](must(x.Slice(1, 1, 3))); err != nil || !slices.Equal(view, []T{a, b}) {
			t.Errorf("a view of elements 1 and 2: %v, %v", view, err)
		}
		if y := must(tensor.Of([]T{a, b})); !slices.Equal(y.Shape(), []int64{2}) {
			t.Errorf("without a shape: %s", y)
		}
		if y := must(tensor.Of([]T{})); y.Numel() != 0 || y.Rank() != 1 {
			t.Errorf("an empty slice: %s", y)
		}
	})
}

func TestOfAndData(t *testing.T) {
	testShared[float32](t, tensor.Float32, 1, 2)
	testShared[float64](t, tensor.Float64, 1, 2)
	testShared(t, tensor.Float16, tensor.F32ToF16(1), tensor.F32ToF16(2))
	testShared(t, tensor.BFloat16, tensor.F32ToBF16(1), tensor.F32ToBF16(2))
	testShared[int8](t, tensor.Int8, 1, 2)
	testShared[int16](t, tensor.Int16, 1, 2)
	testShared[int32](t, tensor.Int32, 1, 2)
	testShared[int64](t, tensor.Int64, 1, 2)
	testShared[uint8](t, tensor.UInt8, 1, 2)
	testShared[uint16](t, tensor.UInt16, 1, 2)
	testShared[uint32](t, tensor.UInt32, 1, 2)
	testShared[uint64](t, tensor.UInt64, 1, 2)
	testShared(t, tensor.Bool, true, false)
}

func TestDataErrors(t *testing.T) {
	x := must(tensor.Of([]float32{1, 2, 3, 4}, 2, 2))
	var element *tensor.ElementError
	if _, err := tensor.Data[float64](x); !errors.As(err, &element) || !strings.Contains(err.Error(), "expected float64") {
		t.Errorf("another type: %v", err)
	}
	var layout *tensor.LayoutError
	if _, err := tensor.Data[float32](must(x.Transpose(0, 1))); !errors.As(err, &layout) {
		t.Errorf("transposed: %v", err)
	}
	var host *tensor.HostError
	far := tensor.ForeignStorage(0x1000, 16, tensor.Device{Type: tensor.CUDA}, nil)
	if _, err := tensor.Data[float32](must(tensor.View(far, tensor.Float32, []int64{4}, nil, 0))); !errors.As(err, &host) {
		t.Errorf("on a GPU: %v", err)
	}
	bytes := must(tensor.Of(make([]byte, 16)))
	odd := must(tensor.View(tensor.ForeignStorage(bytes.Ptr()+1, 8, tensor.Host(), bytes), tensor.Float32, []int64{2}, nil, 0))
	if _, err := tensor.Data[float32](odd); !errors.As(err, &element) {
		t.Errorf("at an odd address: %v", err)
	}
	x.Storage().MarkFreed()
	var freed *tensor.FreedError
	if _, err := tensor.Data[float32](x); !errors.As(err, &freed) {
		t.Errorf("freed: %v", err)
	}
}

func TestReshape(t *testing.T) {
	x := must(tensor.Of([]int32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, 3, 4))
	part := must(x.Slice(0, 1, 3)) // contiguous, with an offset
	for _, c := range []struct {
		shape, want []int64
	}{
		{[]int64{8}, []int64{8}}, {[]int64{-1}, []int64{8}}, {[]int64{2, -1, 2}, []int64{2, 2, 2}}, {[]int64{1, 8, 1}, []int64{1, 8, 1}},
	} {
		y, err := part.Reshape(c.shape...)
		if err != nil || !slices.Equal(y.Shape(), c.want) || y.Ptr() != part.Ptr() {
			t.Errorf("%v: %s, %v", c.shape, y, err)
		}
	}
	var shape *tensor.ShapeError
	for _, wrong := range [][]int64{{7}, {-1, -1}, {3, -1}, {0, -1}, {-2}, {}, {math.MaxInt64, 4}} {
		if y, err := part.Reshape(wrong...); !errors.As(err, &shape) {
			t.Errorf("%v: %v, %v", wrong, y, err)
		}
	}
	var layout *tensor.LayoutError
	if _, err := must(x.Transpose(0, 1)).Reshape(12); !errors.As(err, &layout) {
		t.Errorf("transposed: %v", err)
	}
	if y, err := must(tensor.Of([]float32{1})).Reshape(); err != nil || y.Rank() != 0 {
		t.Errorf("to a scalar: %s, %v", y, err)
	}
}

func TestFill(t *testing.T) {
	for _, dt := range tensor.DTypes() {
		x := must(tensor.New(dt, 3, 4))
		if err := must(must(x.Transpose(0, 1)).Slice(0, 1, 3)).Fill(1); err != nil {
			t.Fatal(err)
		}
		got, err := x.Float64s()
		if err != nil || !slices.Equal(got, []float64{0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0}) {
			t.Errorf("%s: %v, %v", dt, got, err)
		}
	}
	var value *tensor.ValueError
	if err := must(tensor.New(tensor.Int8, 2)).Fill(300); !errors.As(err, &value) {
		t.Errorf("300 as int8: %v", err)
	}
}

func TestCopyFrom(t *testing.T) {
	x := must(tensor.Of([]float32{1, 2, 3, 4, 5, 6}, 2, 3))
	for _, dt := range tensor.DTypes() {
		if dt == tensor.Bool {
			continue
		}
		y := must(must(tensor.New(dt, 3, 2)).Transpose(0, 1)) // not contiguous
		if err := y.CopyFrom(x); err != nil {
			t.Fatal(err)
		}
		if got, err := y.Float64s(); err != nil || !slices.Equal(got, []float64{1, 2, 3, 4, 5, 6}) {
			t.Errorf("%s: %v, %v", dt, got, err)
		}
	}
	// Overlapping views: each element moves on by one.
	row := must(tensor.Of([]int64{1 << 62, 2, 3, 4}))
	if err := must(row.Slice(0, 1, 4)).CopyFrom(must(row.Slice(0, 0, 3))); err != nil {
		t.Fatal(err)
	}
	if got, err := tensor.Data[int64](row); err != nil || !slices.Equal(got, []int64{1 << 62, 1 << 62, 2, 3}) {
		t.Errorf("overlap: %v, %v", got, err)
	}
	var shape *tensor.ShapeError
	if err := x.CopyFrom(must(x.Transpose(0, 1))); !errors.As(err, &shape) {
		t.Errorf("another shape: %v", err)
	}
}

func TestFormat(t *testing.T) {
	count := func(shape ...int64) *tensor.Tensor {
		x := must(tensor.New(tensor.Int16, shape...))
		values := make([]float64, x.Numel())
		for i := range values {
			values[i] = float64(i)
		}
		if err := x.SetFloat64s(values); err != nil {
			t.Fatal(err)
		}
		return x
	}
	onGPU := tensor.ForeignStorage(0x1000, 16, tensor.Device{Type: tensor.CUDA}, nil)
	for _, c := range []struct {
		x    *tensor.Tensor
		want string
	}{
		{must(tensor.Of([]float32{1, 0.1, -2e30, 4}, 2, 2)), "float32[2 2] on cpu [[1 0.1] [-2e+30 4]]"},
		{must(tensor.Of([]tensor.F16{tensor.F32ToF16(0.1)})), "float16[1] on cpu [0.099976]"},
		{must(tensor.Of([]tensor.BF16{tensor.F32ToBF16(0.1)})), "bfloat16[1] on cpu [0.1001]"},
		{must(tensor.Of([]float64{0.1, math.NaN(), math.Inf(-1)})), "float64[3] on cpu [0.1 NaN -Inf]"},
		{must(tensor.Of([]bool{true, false})), "bool[2] on cpu [true false]"},
		{must(tensor.Of([]int64{1<<53 + 1})), "int64[1] on cpu [9007199254740993]"},
		{must(tensor.Of([]uint64{1<<64 - 1})), "uint64[1] on cpu [18446744073709551615]"},
		{must(count(2, 3).Transpose(0, 1)), "int16[3 2] on cpu [[0 3] [1 4] [2 5]]"},
		{must(must(tensor.Of([]uint8{7})).Reshape()), "uint8[] on cpu 7"},
		{must(tensor.New(tensor.Float32, 0, 2)), "float32[0 2] on cpu []"},
		{count(100), "int16[100] on cpu [0 1 2 ... 97 98 99]"},
		{count(64), "int16[64] on cpu [" + strings.Trim(fmt.Sprint(must(count(64).Float64s())), "[]") + "]"},
		{count(8, 10), "int16[8 10] on cpu [[0 1 2 ... 7 8 9] [10 11 12 ... 17 18 19] [20 21 22 ... 27 28 29] ... " +
			"[50 51 52 ... 57 58 59] [60 61 62 ... 67 68 69] [70 71 72 ... 77 78 79]]"},
		{must(tensor.View(onGPU, tensor.Float32, []int64{4}, nil, 0)), "float32[4] on cuda:0"},
	} {
		if got := fmt.Sprintf("%v", c.x); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
		if got := fmt.Sprintf("%s", c.x); got != c.x.String() || !strings.HasPrefix(c.want, got) {
			t.Errorf("%%s is %s", got)
		}
	}
	if got := fmt.Sprint(count(2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2)); len(got) > 1000 {
		t.Errorf("a tensor of 12 dimensions has %d characters", len(got))
	}
}
