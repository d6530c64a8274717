//go:build linux

package registry_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

func TestWrongArguments(t *testing.T) {
	r := open(t, registry.Options{})
	op := lookup(t, r, "causal_conv1d_fwd")
	out, x, w := small()
	zeros := func(dt tensor.DType, shape ...int64) *tensor.Tensor { return must(tensor.New(dt, shape...)) }
	elsewhere := must(tensor.View(tensor.ForeignStorage(0x1000, 1<<20, tensor.Device{Type: tensor.CUDA}, nil), tensor.Float32, []int64{1, 2},
		[]int64{2, 1}, 0))
	var none *tensor.Tensor
	tests := []struct {
		name string
		args []any
		want func(error) bool
	}{
		{"too few", []any{out, x}, as(func(e *registry.ArityError) bool { return e.Got == 2 && e.Min == 3 && e.Max == 8 })},
		{"too many", []any{out, x, w, nil, true, nil, nil, nil, 1}, as(func(e *registry.ArityError) bool { return e.Got == 9 })},
		{"number for a tensor", []any{out, 3, w}, as(func(e *registry.TypeError) bool { return e.Arg == "x" && e.Position == 1 })},
		{"nil for a tensor", []any{out, none, w}, as(func(e *registry.TypeError) bool { return e.Arg == "x" })},
		{"zero tensor", []any{new(tensor.Tensor), x, w}, as(func(e *registry.TypeError) bool {
			return e.Arg == "out" && strings.Contains(e.Error(), "got the zero tensor.Tensor")
		})},
		{"number for a bool", []any{out, x, w, nil, 1},
			as(func(e *registry.TypeError) bool { return e.Arg == "use_silu" && e.Expected == "bool" })},
		{"mixed devices", []any{out, x, elsewhere},
			as(func(e *registry.MixedDevicesError) bool { return e.Arg == "weight" && e.First == "out" })},
		{"dtype", []any{out, zeros(tensor.Int32, 1, 1, 4), w}, declared("x", "dtype")},
		{"out's dtype", []any{zeros(tensor.Float16, 1, 1, 4), x, w}, declared("out", "dtype")},
		{"rank", []any{out, zeros(tensor.Float32, 1, 4), w}, declared("x", "shape")},
		{"shape", []any{zeros(tensor.Float32, 1, 1, 5), x, w}, declared("out", "shape")},
		{"weight's shape", []any{out, x, zeros(tensor.Float32, 2, 2)}, blames("weight", "shape", "ValueError")},
		{"output over an input", []any{x, x, w}, blames("out", "overlap", "ValueError")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := op.Call(context.Background(), tt.args...)
			if err == nil || !tt.want(err) || !strings.HasPrefix(err.Error(), "causal_conv1d_fwd: ") {
				t.Errorf("got %#v\n%v", err, err)
			}
		})
	}
}

// as returns a function that checks for a typed error.
func as[E error](check func(E) bool) func(error) bool {
	return func(err error) bool {
		var e E
		return errors.As(err, &e) && check(e)
	}
}

// declared returns a function that checks for an error against the argument's declaration.
func declared(arg, what string) func(error) bool {
	return as(func(e *registry.ArgumentError) bool { return e.Arg == arg && e.What == what })
}

func blames(arg, about, kind string) func(error) bool {
	return as(func(e *registry.OperatorError) bool { return e.Arg == arg && e.About == about && e.Kind == kind })
}

// A number that the schema's type cannot represent and an argument of the wrong type have
// different errors.
func TestNumberOutOfRange(t *testing.T) {
	op := lookup(t, open(t, registry.Options{}), "causal_conv1d_update")
	x := must(tensor.New(tensor.Float32, 1, 1))
	state, w := must(tensor.New(tensor.Float32, 1, 1, 3)), must(tensor.New(tensor.Float32, 1, 4))
	for _, c := range []struct {
		pad  any
		want string
	}{
		{uint64(math.MaxUint64), "expected int, got uint64 18446744073709551615, which is out of range: at most 9223372036854775807"},
		{uint(math.MaxInt64 + 1), "got uint 9223372036854775808, which is out of range"},
		{"x", "expected int, got string"},
	} {
		err := op.Call(context.Background(), x, x, state, w, nil, false, nil, nil, c.pad)
		var wrong *registry.TypeError
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %v, want %q", c.pad, err, c.want)
		}
	}
}
