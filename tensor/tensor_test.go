package tensor_test

import (
	"errors"
	"math"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"github.com/aiter-go/aiter/tensor"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// iota64 makes a float32 tensor of 0, 1, 2...
func iota64(t testing.TB, shape ...int64) *tensor.Tensor {
	t.Helper()
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	data := make([]float32, n)
	for i := range data {
		data[i] = float32(i)
	}
	x, err := tensor.Of(data, shape...)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func values(t testing.TB, x *tensor.Tensor, err error) []float64 {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	v, err := x.Float64s()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestViews(t *testing.T) {
	x := iota64(t, 2, 3, 4)
	for name, c := range map[string]struct {
		make       func() (*tensor.Tensor, error)
		want       []float64
		contiguous bool
	}{
		"slice outer": {func() (*tensor.Tensor, error) { return x.Slice(0, 1, 2) }, []float64{12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23},
			true},
		"slice inner": {func() (*tensor.Tensor, error) { return x.Slice(2, 1, 2) }, []float64{1, 5, 9, 13, 17, 21}, false},
		"slice empty": {func() (*tensor.Tensor, error) { return x.Slice(1, 3, 3) }, []float64{}, true},
		"transpose": {func() (*tensor.Tensor, error) { return must(x.Slice(0, 0, 1)).Transpose(1, 2) },
			[]float64{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11}, false},
		"permute": {func() (*tensor.Tensor, error) { return must(x.Slice(1, 0, 1)).Permute(2, 1, 0) }, []float64{0, 12, 1, 13, 2, 14, 3, 15},
			false},
		"reversed": {func() (*tensor.Tensor, error) {
			return tensor.View(x.Storage(), tensor.Float32, []int64{4}, []int64{-2}, 6)
		}, []float64{6, 4, 2, 0}, false},
		"broadcast": {func() (*tensor.Tensor, error) {
			return tensor.View(x.Storage(), tensor.Float32, []int64{2, 3}, []int64{1, 0}, 7)
		}, []float64{7, 7, 7, 8, 8, 8}, false},
		"scalar": {func() (*tensor.Tensor, error) { return tensor.View(x.Storage(), tensor.Float32, nil, nil, 23) }, []float64{23}, true},
	} {
		got, err := c.make()
		if v := values(t, got, err); !slices.Equal(v, c.want) || got.Contiguous() != c.contiguous {
			t.Errorf("%s: %v, contiguous %v; want %v, %v", name, v, got.Contiguous(), c.want, c.contiguous)
		}
		compact, err := got.Compact()
		if v := values(t, compact, err); !slices.Equal(v, c.want) || !compact.Contiguous() {
			t.Errorf("%s: Compact gives %v", name, v)
		}
	}
}

func TestBounds(t *testing.T) {
	s := must(tensor.HostStorage(100)) // 25 float32
	for name, c := range map[string]struct {
		shape, strides []int64
		offset         int64
		ok             bool
	}{
		"fits exactly":         {[]int64{5, 5}, nil, 0, true},
		"last element outside": {[]int64{5, 5}, nil, 1, false},
		"strided inside":       {[]int64{5}, []int64{6}, 0, true},
		"strided outside":      {[]int64{5}, []int64{6}, 1, false},
		"negative inside":      {[]int64{5}, []int64{-6}, 24, true},
		"negative outside":     {[]int64{5}, []int64{-6}, 23, false},
		"mixed signs":          {[]int64{5, 5}, []int64{5, -1}, 4, true},
		"negative offset":      {[]int64{1}, nil, -1, false},
		"empty at the end":     {[]int64{0}, nil, 25, true},
		"empty beyond the end": {[]int64{0}, nil, 26, false},
		"empty, wild strides":  {[]int64{0, 7}, []int64{math.MaxInt64, math.MinInt64}, 0, true},
		"one, wild strides":    {[]int64{1, 1}, []int64{math.MaxInt64, math.MinInt64}, 24, true},
		"overflowing stride":   {[]int64{3}, []int64{math.MaxInt64}, 0, false},
		"overflowing back":     {[]int64{2, 2}, []int64{math.MaxInt64, math.MinInt64}, 0, false},
		"overflowing offset":   {[]int64{1}, nil, math.MaxInt64, false},
		"sum overflows": {[]int64{2, 2, 2, 2, 2, 2, 2, 2, 2}, []int64{1 << 60, 1 << 60, 1 << 60, 1 << 60, 1 << 60, 1 << 60,
			1 << 60, 1 << 60, 1 << 60}, 0, false},
		"broadcast": {[]int64{1 << 30, 25}, []int64{0, 1}, 0, true},
	} {
		_, err := tensor.View(s, tensor.Float32, c.shape, c.strides, c.offset)
		var be *tensor.BoundsError
		if c.ok && err != nil || !c.ok && !errors.As(err, &be) {
			t.Errorf("%s: %v, want ok %v", name, err, c.ok)
		}
	}
}

func TestShapeErrors(t *testing.T) {
	s := must(tensor.HostStorage(1000))
	x := iota64(t, 3, 4)
	view := func(shape, strides []int64) error {
		_, err := tensor.View(s, tensor.Float32, shape, strides, 0)
		return err
	}
	second := func(_ *tensor.Tensor, err error) error { return err }
	for name, err := range map[string]error{
		"negative size":     view([]int64{2, -1}, nil),
		"rank of strides":   view([]int64{2, 2}, []int64{1}),
		"too many":          view(slices.Repeat([]int64{1}, 33), nil),
		"overflow":          view([]int64{1 << 32, 1 << 32}, nil),
		"overflow, empty":   view([]int64{0, 1 << 32, 1 << 32}, nil),
		"too many bytes":    second(tensor.New(tensor.Float64, 1<<59)),
		"no storage":        second(tensor.View(nil, tensor.Float32, nil, nil, 0)),
		"slice dim":         second(x.Slice(2, 0, 1)),
		"slice backwards":   second(x.Slice(0, 2, 1)),
		"slice beyond":      second(x.Slice(0, 0, 4)),
		"slice negative":    second(x.Slice(0, -1, 2)),
		"transpose":         second(x.Transpose(0, 2)),
		"permute twice":     second(x.Permute(0, 0)),
		"permute too few":   second(x.Permute(0)),
		"permute too many":  second(x.Permute(0, 1, 2)),
		"permute negative":  second(x.Permute(-1, 0)),
		"storage too large": func() error { _, err := tensor.HostStorage(math.MaxInt64); return err }(),
		"storage negative":  func() error { _, err := tensor.HostStorage(-1); return err }(),
	} {
		var se *tensor.ShapeError
		if !errors.As(err, &se) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNotOnTheHost(t *testing.T) {
	s := tensor.ForeignStorage(0x7f0000000000, 64, tensor.Device{Type: tensor.ROCM, ID: 1}, nil)
	x := must(tensor.View(s, tensor.Float32, []int64{4}, nil, 2))
	var he *tensor.HostError
	_, e1 := x.Float64s()
	_, e2 := x.Bytes()
	_, e3 := x.Compact()
	for _, err := range []error{e1, e2, e3, x.SetFloat64s(make([]float64, 4))} {
		if !errors.As(err, &he) || he.Device.String() != "rocm:1" {
			t.Errorf("%v", err)
		}
	}
	if x.Ptr() != 0x7f0000000008 || x.String() != "float32[4] on rocm:1" {
		t.Errorf("%#x, %s", x.Ptr(), x)
	}
}

func TestFreed(t *testing.T) {
	x := iota64(t, 4)
	if !x.Storage().MarkFreed() || x.Storage().MarkFreed() {
		t.Error("MarkFreed must return true once")
	}
	var fe *tensor.FreedError
	_, e1 := x.Float64s()
	_, e2 := x.Slice(0, 0, 1)
	for _, err := range []error{e1, e2, x.Check(), x.SetFloat64s(make([]float64, 4))} {
		if !errors.As(err, &fe) {
			t.Errorf("%v", err)
		}
	}
}

func TestUnreadableTypes(t *testing.T) {
	s := must(tensor.HostStorage(64))
	var ee *tensor.ElementError
	x := must(tensor.View(s, tensor.MakeDType(tensor.CodeFloat, 32, 4), []int64{2}, nil, 0))
	if _, err := x.Float64s(); !errors.As(err, &ee) || x.DType().String() != "float32x4" || x.DType().Size() != 16 {
		t.Errorf("float32x4: %v", err)
	}
	if _, err := tensor.View(s, 0, []int64{2}, nil, 0); !errors.As(err, &ee) {
		t.Errorf("the zero type: %v", err)
	}
}

// The layout that C reads: offsets from DLPack's header on 64-bit machines.
func TestDLTensor(t *testing.T) {
	base := iota64(t, 6, 5)
	x := must(must(base.Slice(1, 2, 4)).Transpose(0, 1))
	p := x.DL()
	at := func(off uintptr) unsafe.Pointer { return unsafe.Add(p, off) }
	if got := *(*uintptr)(p); got != base.Storage().Ptr()+8 || got != x.Ptr() {
		t.Errorf("data %#x, storage %#x", got, base.Storage().Ptr())
	}
	if dev, id := *(*int32)(at(8)), *(*int32)(at(12)); dev != 1 || id != 0 {
		t.Errorf("device %d:%d", dev, id)
	}
	if n := *(*int32)(at(16)); n != 2 {
		t.Errorf("ndim %d", n)
	}
	if c, b, l := *(*uint8)(at(20)), *(*uint8)(at(21)), *(*uint16)(at(22)); c != 2 || b != 32 || l != 1 {
		t.Errorf("dtype %d %d %d", c, b, l)
	}
	shape, strides := *(**[2]int64)(at(24)), *(**[2]int64)(at(32))
	if *shape != [2]int64{2, 6} || *strides != [2]int64{1, 5} {
		t.Errorf("shape %v, strides %v", *shape, *strides)
	}
	if off := *(*uint64)(at(40)); off != 0 {
		t.Errorf("byte offset %d", off)
	}
	var pin runtime.Pinner
	x.Pin(&pin)
	pin.Unpin()
	scalar := must(tensor.New(tensor.Float32))
	if *(*uintptr)(unsafe.Add(scalar.DL(), 24)) != 0 || scalar.Numel() != 1 {
		t.Error("a scalar has no shape array and one element")
	}
	scalar.Pin(&pin)
	pin.Unpin()
}

func TestImmutable(t *testing.T) {
	x := iota64(t, 2, 3)
	x.Shape()[0], x.Strides()[0] = 99, 99
	if x.Dim(0) != 2 || x.Stride(0) != 3 || x.Rank() != 2 {
		t.Error("Shape or Strides returned the tensor's own array, not a copy")
	}
}

func TestHostAlignment(t *testing.T) {
	for n := range int64(200) {
		if s := must(tensor.HostStorage(n)); s.Ptr()%64 != 0 || s.Size() != n || !s.Managed() {
			t.Fatalf("%d bytes: at %#x, size %d", n, s.Ptr(), s.Size())
		}
	}
}

func TestForeignHostMemory(t *testing.T) {
	mem := []float32{1, 2, 3, 4}
	s := tensor.ForeignStorage(uintptr(unsafe.Pointer(&mem[0])), 16, tensor.Host(), mem)
	x := must(tensor.View(s, tensor.Float32, []int64{2}, []int64{2}, 1))
	if got := must(x.Float64s()); !slices.Equal(got, []float64{2, 4}) || s.Managed() {
		t.Errorf("%v", got)
	}
	if empty := tensor.ForeignStorage(0, -5, tensor.Host(), nil); empty.Size() != 0 {
		t.Error("a negative size")
	}
	runtime.KeepAlive(mem)
}

func TestBytesNeedsContiguous(t *testing.T) {
	var le *tensor.LayoutError
	if _, err := must(iota64(t, 2, 3).Transpose(0, 1)).Bytes(); !errors.As(err, &le) {
		t.Errorf("%v", err)
	}
}

// FuzzView: every element of a view that View accepts can be read, so it lies inside the storage.
func FuzzView(f *testing.F) {
	f.Add(int64(5), int64(5), int64(5), int64(1), int64(0))
	f.Add(int64(2), int64(2), int64(math.MaxInt64), int64(math.MinInt64), int64(3))
	f.Add(int64(5), int64(0), int64(-6), int64(1), int64(24))
	s := must(tensor.HostStorage(100))
	f.Fuzz(func(t *testing.T, n, m, sn, sm, offset int64) {
		x, err := tensor.View(s, tensor.Float32, []int64{n, m}, []int64{sn, sm}, offset)
		if err != nil || x.Numel() > 1<<16 {
			return
		}
		if _, err := x.Float64s(); err != nil {
			t.Fatal(err)
		}
		if !tensor.Overlaps(x, x) && x.Numel() > 0 {
			t.Fatalf("%s with strides %v does not overlap itself", x, x.Strides())
		}
	})
}
