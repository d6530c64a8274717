package verify_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/internal/verify"
	"github.com/aiter-go/aiter/tensor"
)

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func devices(t *testing.T) *device.Devices {
	t.Helper()
	d := must[*device.Devices](t)(device.Open(device.Options{}))
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// values makes a float32 tensor 0, 1, 2, ...
func values(t *testing.T, shape ...int64) *tensor.Tensor {
	t.Helper()
	x := must[*tensor.Tensor](t)(tensor.New(tensor.Float32, shape...))
	v := make([]float64, x.Numel())
	for i := range v {
		v[i] = float64(i)
	}
	if err := x.SetFloat64s(v); err != nil {
		t.Fatal(err)
	}
	return x
}

func read(t *testing.T, x *tensor.Tensor) []float64 {
	t.Helper()
	return must[[]float64](t)(x.Float64s())
}

func TestCopyKeepsLayoutAndSharing(t *testing.T) {
	tt := must[*tensor.Tensor](t)
	whole := values(t, 6, 8)
	rows := tt(tt(whole.Slice(0, 1, 4)).Slice(1, 2, 7))
	columns := tt(rows.Transpose(0, 1))
	apart := values(t, 3)
	backward := tt(tensor.View(whole.Storage(), tensor.Float32, []int64{4}, []int64{-3}, 30))
	empty := tt(tensor.View(whole.Storage(), tensor.Float32, []int64{0, 7}, []int64{9, 2}, 0))
	in := []*tensor.Tensor{rows, nil, columns, apart, backward, empty}
	out, err := verify.Copy(devices(t), in)
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range in {
		if x == nil {
			if out[i] != nil {
				t.Error("nil became a tensor")
			}
			continue
		}
		if !slices.Equal(out[i].Shape(), x.Shape()) || !slices.Equal(out[i].Strides(), x.Strides()) ||
			!slices.Equal(read(t, out[i]), read(t, x)) {
			t.Errorf("copy %d of %v is %v, %v", i, x, out[i], read(t, out[i]))
		}
		if x.Numel() > 0 && out[i].Ptr()%64 != x.Ptr()%64 {
			t.Errorf("copy %d has another alignment: %#x, want that of %#x", i, out[i].Ptr(), x.Ptr())
		}
	}
	if out[0].Ptr() != out[2].Ptr() || out[4].Ptr()-out[0].Ptr() != in[4].Ptr()-in[0].Ptr() {
		t.Error("the copies do not share memory as the tensors do")
	}
	if err := out[0].SetFloat64s(make([]float64, rows.Numel())); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(read(t, whole), read(t, values(t, 6, 8))) {
		t.Error("writing to a copy wrote to the tensor")
	}
}

func TestCopyOfFreedMemory(t *testing.T) {
	d := devices(t)
	x := must[*tensor.Tensor](t)(d.New(tensor.Device{Type: tensor.CPU}, tensor.Float32, 4))
	far := tensor.ForeignStorage(0x1000, 64, tensor.Device{Type: 77}, nil)
	y := must[*tensor.Tensor](t)(tensor.View(far, tensor.Float32, []int64{4}, nil, 0))
	if _, err := verify.Copy(d, []*tensor.Tensor{x}); err != nil {
		t.Error(err)
	}
	var unknown *device.TypeError
	if _, err := verify.Copy(d, []*tensor.Tensor{y}); !errors.As(err, &unknown) {
		t.Errorf("got %v, want the device's TypeError", err)
	}
}

func TestCompare(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	want := []float64{1, -2, nan, inf, 0, 100}
	for _, c := range []struct {
		name      string
		at        int
		value     float64
		tol       verify.Tolerance
		different bool
	}{
		{"the same", 0, 1, verify.Tolerance{}, false},
		{"within the absolute part", 4, 0.009, verify.Tolerance{Abs: 0.01}, false},
		{"beyond it", 4, 0.011, verify.Tolerance{Abs: 0.01}, true},
		{"within the relative part", 5, 101, verify.Tolerance{Rel: 0.02}, false},
		{"beyond it too", 5, 103, verify.Tolerance{Rel: 0.02}, true},
		{"exact", 5, 100.001, verify.Tolerance{}, true},
		{"NaN for a number", 1, nan, verify.Tolerance{Abs: 9, Rel: 9}, true},
		{"number for NaN", 2, 0, verify.Tolerance{Abs: 9, Rel: 9}, true},
		{"number for infinity", 3, 1e30, verify.Tolerance{Abs: 9, Rel: 9}, true},
		{"the other infinity", 3, -inf, verify.Tolerance{Abs: 9, Rel: 9}, true},
		{"infinity for a number", 0, inf, verify.Tolerance{Abs: 9, Rel: 9}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := slices.Clone(want)
			got[c.at] = c.value
			make := func(v []float64) *tensor.Tensor {
				return must[*tensor.Tensor](t)(tensor.FromFloat64s(tensor.Float32, v, 2, 3))
			}
			d, err := verify.Compare(make(got), make(want), c.tol)
			if err != nil || (d != nil) != c.different {
				t.Fatalf("got %+v, %v", d, err)
			}
			if d != nil && (!slices.Equal(d.Index, []int64{int64(c.at / 3), int64(c.at % 3)}) || d.Mismatches != 1 || d.Elements != 6) {
				t.Errorf("got %+v", d)
			}
		})
	}
}

// A difference of large integers that float64 cannot represent is still wrong.
func TestCompareIntegersByTheirBits(t *testing.T) {
	got := must[*tensor.Tensor](t)(tensor.Of([]int64{0, 1<<53 + 1}, 2))
	want := must[*tensor.Tensor](t)(tensor.Of([]int64{0, 1 << 53}, 2))
	d, err := verify.Compare(got, want, verify.Tolerance{Abs: 1e9})
	if err != nil || d == nil || d.Index[0] != 1 {
		t.Errorf("got %+v, %v", d, err)
	}
}

func TestCompareSeesThroughStrides(t *testing.T) {
	tt := must[*tensor.Tensor](t)
	got, want := values(t, 3, 4), tt(tt(values(t, 3, 4).Transpose(0, 1)).Transpose(0, 1))
	if d, err := verify.Compare(tt(got.Slice(1, 1, 3)), tt(want.Slice(1, 1, 3)), verify.Tolerance{}); d != nil || err != nil {
		t.Errorf("got %+v, %v", d, err)
	}
	v := read(t, got)
	v[6], v[7], v[10] = -1, -1, 50 // column 3 is outside the slice
	if err := got.SetFloat64s(v); err != nil {
		t.Fatal(err)
	}
	d, err := verify.Compare(tt(got.Slice(1, 1, 3)), tt(want.Slice(1, 1, 3)), verify.Tolerance{})
	if err != nil || d == nil || d.Mismatches != 2 || !slices.Equal(d.Index, []int64{1, 1}) || d.Got != -1 || d.Want != 6 || d.MaxError != 40 {
		t.Errorf("got %+v, %v", d, err)
	}
}

func TestTolerances(t *testing.T) {
	for _, dt := range tensor.DTypes() {
		tol := verify.Default(dt)
		if dt.IsFloat() == (tol == verify.Tolerance{}) {
			t.Errorf("%s: %v", dt, tol)
		}
		if !dt.IsFloat() && tol.String() != "none" {
			t.Errorf("%s: %q", dt, tol)
		}
	}
	// Two results on neighbouring values, one rounding apart.
	for dt, next := range map[tensor.DType]float64{tensor.Float16: 1 + 1.0/1024, tensor.BFloat16: 1 + 1.0/128,
		tensor.Float8E4M3FN: 1 + 1.0/8, tensor.Float8E5M2: 1 + 1.0/4, tensor.Float8E8M0FNU: 2} {
		if (verify.Tolerance{}).Allows(next, 1) || !(verify.Tolerance{}).Rounded(dt).Allows(next, 1) {
			t.Errorf("%s: one rounding is not what Rounded allows", dt)
		}
	}
}

// The values of a reference are not rounded to the type, except beyond its range.
func TestCompareValues(t *testing.T) {
	inf := math.Inf(1)
	for _, c := range []struct {
		got, want float64
		different bool
	}{
		{5, 5, false}, {5, 5 + 1e-12, true}, {inf, 1e300, false}, {inf, inf, false}, {inf, -1e300, true}, {inf, 5, true}, {5, 1e300, true},
	} {
		got := must[*tensor.Tensor](t)(tensor.FromFloat64s(tensor.Float32, []float64{0, c.got}, 2, 1))
		d, err := verify.CompareValues(got, []float64{0, c.want}, verify.Tolerance{})
		if err != nil || (d != nil) != c.different {
			t.Errorf("%g for %g: got %+v, error %v", c.got, c.want, d, err)
		}
		if d != nil && (!slices.Equal(d.Index, []int64{1, 0}) || d.Got != c.got || d.Want != c.want || d.Mismatches != 1 || d.Elements != 2) {
			t.Errorf("%g for %g: got %+v", c.got, c.want, d)
		}
	}
}
