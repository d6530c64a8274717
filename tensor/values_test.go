package tensor_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/aiter-go/aiter/tensor"
)

func TestValues(t *testing.T) {
	for _, dt := range tensor.DTypes() {
		in := []float64{0, 1, 1, 0, 1, 0}
		if dt != tensor.Bool {
			in = []float64{0, 1, 2, 100, 5, 7}
		}
		x := must(tensor.FromFloat64s(dt, in, 2, 3))
		if got := must(x.Float64s()); !slices.Equal(got, in) {
			t.Errorf("%s: %v, want %v", dt, got, in)
		}
		tr := must(x.Transpose(0, 1))
		if got, want := must(tr.Float64s()), []float64{in[0], in[3], in[1], in[4], in[2], in[5]}; !slices.Equal(got, want) {
			t.Errorf("%s transposed: %v, want %v", dt, got, want)
		}
		if err := tr.SetFloat64s(in); err != nil || !slices.Equal(must(tr.Float64s()), in) {
			t.Errorf("%s: writing through a transposed view: %v, %v", dt, must(tr.Float64s()), err)
		}
		if got := int64(len(must(x.Bytes()))); got != 6*dt.Size() {
			t.Errorf("%s: %d bytes", dt, got)
		}
	}
}

func TestIntegersMustFit(t *testing.T) {
	for dt, bad := range map[tensor.DType][]float64{
		tensor.Int8:   {128, -129, 0.5, math.NaN(), math.Inf(1)},
		tensor.UInt8:  {256, -1},
		tensor.Int32:  {1 << 31, -1<<31 - 1},
		tensor.Int64:  {1 << 63, math.Inf(-1)},
		tensor.UInt64: {1 << 63 * 2, -1},
		tensor.Bool:   {2, -1, 0.5},
	} {
		for _, v := range bad {
			x := must(tensor.New(dt, 2))
			var ve *tensor.ValueError
			if err := x.SetFloat64s([]float64{1, v}); !errors.As(err, &ve) || ve.Index != 1 {
				t.Errorf("%s of %v: %v", dt, v, err)
			}
			if got := must(x.Float64s()); got[0] != 0 {
				t.Errorf("%s: written in spite of the error: %v", dt, got)
			}
		}
	}
	x := must(tensor.FromFloat64s(tensor.Int64, []float64{-1 << 63, 1<<63 - 1024}, 2))
	if got := must(x.Float64s()); got[0] != -1<<63 || got[1] != 1<<63-1024 {
		t.Errorf("int64 limits: %v", got)
	}
}

func TestFrom(t *testing.T) {
	for name, x := range map[string]*tensor.Tensor{
		"float32": must(tensor.Of([]float32{1, 0}, 2)), "float64": must(tensor.Of([]float64{1, 0}, 2)),
		"int32": must(tensor.Of([]int32{1, 0}, 2)), "int64": must(tensor.Of([]int64{1, 0}, 2)),
		"uint8": must(tensor.Of([]uint8{1, 0}, 2)), "bool": must(tensor.Of([]bool{true, false}, 2)),
	} {
		if got := must(x.Float64s()); x.DType().String() != name || !slices.Equal(got, []float64{1, 0}) {
			t.Errorf("%s: %s, %v", name, x, got)
		}
	}
	var ce *tensor.CountError
	if _, err := tensor.Of(make([]float32, 5), 2, 3); !errors.As(err, &ce) {
		t.Errorf("5 values for 2x3: %v", err)
	}
	if err := iota64(t, 2).SetFloat64s(nil); !errors.As(err, &ce) {
		t.Errorf("no values for 2: %v", err)
	}
}
