package optests_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/aiter-go/aiter/jit/schema"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// A module outside of aiter: out = by * x, total += sum(x), first = the first index.
const scaleConfig = `
[module.module_scale]
targets = ["cpu"]
flags.common = ["-std=c++17"]
[[module.module_scale.source]]
path = "scale.cpp"
[[module.module_scale.op]]
name = "scale"
schema = "(Tensor(a!) out, Tensor x, Tensor(b!)? total=None, Tensor(c!)? first=None, float by=2.0) -> ()"
`

const scaleSource = `
#include <aiter/ffi.h>
using aiter::Optional;
using aiter::TensorView;
static aiter::Status scale(TensorView out, TensorView x, Optional<TensorView> total, Optional<TensorView> first, double by) {
  double sum = 0;
  for (int64_t i = 0; i < x.size(0); i++)
    for (int64_t j = 0; j < x.size(1); j++) {
      const float v = x.as<const float>()[i * x.stride(0) + j * x.stride(1)];
      out.as<float>()[i * out.stride(0) + j * out.stride(1)] = by * v;
      sum += v;
    }
  if (total) *total->as<float>() += sum;
  if (first) *first->as<int64_t>() = 0;
  return {};
}
AITER_EXPORT(scale, scale, aiter::arg("out"), aiter::arg("x"), aiter::none("total"), aiter::none("first"), aiter::real("by", 2))
`

func openScale(t testing.TB) *registry.Registry {
	t.Helper()
	files := fstest.MapFS{"opt_compiler.toml": {Data: []byte(scaleConfig)}, "scale.cpp": {Data: []byte(scaleSource)}}
	reg, err := registry.Open(t.Context(), registry.Options{Modules: []registry.Source{{Files: files, Name: "scale"}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := reg.Close(); err != nil {
			t.Error(err)
		}
	})
	return reg
}

func matrix(rows, columns int64) optests.TensorArg {
	return optests.TensorArg{DType: tensor.Float32, Shape: []int64{rows, columns}}
}

// scaleOp declares the operator to the tests.
func scaleOp() optests.Operator {
	op := optests.Operator{
		Name: "scale",
		Reference: func(in optests.Inputs) map[string][]float64 {
			by, ok := in.Call.Args["by"].(float64)
			if !ok {
				by = 2
			}
			out, sum := make([]float64, in.Shape("x")[0]*in.Shape("x")[1]), 0.0
			for i, v := range in.Values["x"] {
				out[i], sum = by*v, sum+v
			}
			want := map[string][]float64{"out": out, "first": {0}}
			if total := in.Values["total"]; total != nil {
				want["total"] = []float64{total[0] + sum}
			}
			return want
		},
		Flops: func(c optests.Call) float64 {
			x := c.Args["x"].(optests.TensorArg)
			return float64(x.Shape[0] * x.Shape[1])
		},
	}
	for _, size := range [][2]int64{{1, 1}, {3, 5}, {64, 100}, {0, 4}} {
		x := matrix(size[0], size[1])
		one := func(r *rand.Rand, values []float64) { values[0] = r.Float64() }
		op.Cases = append(op.Cases,
			optests.Call{Args: map[string]any{"x": x, "out": x}},
			optests.Call{Slice: true, Seed: 1, Args: map[string]any{"x": x, "out": x, "by": 0.5}},
			optests.Call{Name: fmt.Sprint("all ", size), Args: map[string]any{
				"x": x, "out": x,
				"total": optests.TensorArg{DType: tensor.Float32, Shape: []int64{1}, Fill: one},
				"first": optests.TensorArg{DType: tensor.Int64, Shape: []int64{}},
			}},
		)
	}
	return op
}

func TestRun(t *testing.T) { optests.Run(t, openScale(t), scaleOp()) }

func BenchmarkRun(b *testing.B) {
	op := scaleOp()
	op.Cases = op.Cases[6:7]
	optests.Bench(b, openScale(b), op)
}

// problemOf makes the problem of a case of an operator of openScale.
func problemOf(t *testing.T, op optests.Operator, c optests.Call) (*optests.Problem, error) {
	t.Helper()
	s, err := schema.Parse(strings.Split(strings.Split(scaleConfig, "schema = \"")[1], "\"")[0])
	if err != nil {
		t.Fatal(err)
	}
	return op.Problem(s, c)
}

// Run finds elements that are wrong or were not written, and writes outside of the tensor.
func TestOperatorFindsErrors(t *testing.T) {
	x := matrix(3, 5)
	c := optests.Call{Slice: true, Args: map[string]any{"x": x, "out": x}}
	for want, compute := range map[string]func(out, x *tensor.Tensor) error{
		"errors 1/15": func(out, x *tensor.Tensor) error {
			return setFrom(out, x, func(i int, v float64) float64 { return 2*v + float64(i/14) })
		},
		"errors 15/15": func(*tensor.Tensor, *tensor.Tensor) error { return nil },
		"errors 0/15": func(out, x *tensor.Tensor) error {
			return setFrom(out, x, func(_ int, v float64) float64 { return 2 * v })
		},
		"wrote outside ": strayWrite,
	} {
		p, err := problemOf(t, scaleOp(), c)
		if err != nil {
			t.Fatal(err)
		}
		r := optests.Runner{Call: func(_ string, args []any) error { return compute(args[0].(*tensor.Tensor), args[1].(*tensor.Tensor)) }}
		results, err := r.Run(p)
		if err != nil || len(results) != 1 || !strings.Contains(results[0].String(), want) || results[0].OK() != (want == "errors 0/15") {
			t.Errorf("want %q, got %v, %v", want, results, err)
		}
	}
}

func setFrom(out, x *tensor.Tensor, f func(int, float64) float64) error {
	values, err := x.Float64s()
	for i, v := range values {
		values[i] = f(i, v)
	}
	return errors.Join(err, out.SetFloat64s(values))
}

// strayWrite computes the result and writes the byte before it.
func strayWrite(out, x *tensor.Tensor) error {
	raw, err := out.Storage().Bytes()
	if err == nil {
		raw[out.ByteOffset()-1] ^= 0xff
	}
	return errors.Join(err, setFrom(out, x, func(_ int, v float64) float64 { return 2 * v }))
}

func TestOperatorMistakes(t *testing.T) {
	x := matrix(3, 5)
	for want, args := range map[string]map[string]any{
		"argument out: expected Tensor(a!), got none": {"x": x},
		"argument y: expected an argument of ":        {"x": x, "out": x, "y": 1},
		"argument by: expected float, got a tensor":   {"x": x, "out": x, "by": x},
		"shape [-1]": {"x": optests.TensorArg{DType: tensor.Float32, Shape: []int64{-1}}, "out": x},
	} {
		if _, err := problemOf(t, scaleOp(), optests.Call{Args: args}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	// a reference without an output would pass silently
	op := scaleOp()
	op.Reference = func(optests.Inputs) map[string][]float64 { return map[string][]float64{"out": {1}} }
	p, err := problemOf(t, op, optests.Call{Args: map[string]any{"x": x, "out": x}})
	if err == nil {
		_, err = p.Reference()
	}
	if err == nil || !strings.Contains(err.Error(), "argument out: expected 15 elements from the reference, got 1") {
		t.Errorf("got %v", err)
	}
}
