package optests_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/jit/schema"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

func half(shape ...int64) optests.TensorArg {
	return optests.TensorArg{DType: tensor.Float16, Shape: shape}
}

// declareWith declares an operator of this schema with cases. shapes are pairs of an argument and its shape.
func declareWith(t *testing.T, signature string, shapes []string, cases ...optests.Call) (optests.Declaration, error) {
	t.Helper()
	s, err := schema.Parse(signature)
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string]schema.Shape{}
	for i := 0; i < len(shapes); i += 2 {
		if declared[shapes[i]], err = schema.ParseShape(shapes[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	op := optests.Operator{
		Name: "mine", Cases: cases, Flops: func(optests.Call) float64 { return 30 },
		Reference: func(in optests.Inputs) map[string][]float64 {
			return map[string][]float64{"out": slices.Clone(in.Values["x"])}
		},
	}
	return op.Declare(s, declared)
}

// cells are the columns of each case: "out0=2 slice=true".
func cells(d optests.Declaration) []string {
	var list []string
	for _, c := range d.Configs() {
		words := []string{c.Case.DType.String()}
		for _, p := range d.Params() {
			if v := p.Cell(c.Case); v != nil {
				words = append(words, fmt.Sprintf("%s=%v", p.Column, v))
			}
		}
		list = append(list, strings.Join(words, " "))
	}
	return list
}

func TestColumns(t *testing.T) {
	type call = map[string]any
	for _, test := range []struct {
		name, signature string
		shapes          []string
		calls           []call
		want            []string
	}{
		{
			"positions; outputs and equal sizes add none", "(Tensor(a!) out, Tensor x, Tensor w) -> ()", nil,
			[]call{{"out": half(2, 8), "x": half(2, 8), "w": half(8)}, {"out": half(4, 8), "x": half(4, 8), "w": half(8)}},
			[]string{"float16 x0=2 x1=8", "float16 x0=4 x1=8"},
		},
		{
			"names of the configuration", "(Tensor(a!) out, Tensor x, Tensor w) -> ()",
			[]string{"x", "(B, D, L)", "w", "(D, W)", "out", "(B, D, L-1)"},
			[]call{{"out": half(2, 8, 3), "x": half(2, 8, 4), "w": half(8, 3)}, {"out": half(2, 8, 6), "x": half(2, 8, 7), "w": half(8, 5)}},
			[]string{"float16 B=2 D=8 L=4 W=3", "float16 B=2 D=8 L=7 W=5"},
		},
		{
			"several ranks", "(Tensor(a!) out, Tensor x) -> ()", []string{"x", "(..., D)"},
			[]call{{"out": half(2, 3, 8), "x": half(2, 3, 8)}, {"out": half(4), "x": half(4)}},
			[]string{"float16 x=2x3 D=8 out=2x3x8", "float16 x=scalar D=4 out=4"},
		},
		{
			"options, with defaults", "(Tensor(a!) out, Tensor x, float eps=0.5, bool fast=False, str mode='a', int n=1) -> ()", nil,
			[]call{{"out": half(2), "x": half(2), "eps": 1.5, "fast": true}, {"out": half(2), "x": half(2), "mode": "b"}},
			[]string{"float16 x0=2 eps=1.5 fast=true mode=a", "float16 x0=2 eps=0.5 fast=false mode=b"},
		},
		{
			"an optional tensor", "(Tensor(a!) out, Tensor x, Tensor? y=None) -> ()", nil,
			[]call{{"out": half(2), "x": half(2), "y": half(3)}, {"out": half(2), "x": half(2), "y": nil}},
			[]string{"float16 x0=2 y0=3", "float16 x0=2"},
		},
		{
			"cases that differ only in their values", "(Tensor(a!) out, Tensor x) -> ()", nil,
			[]call{{"out": half(2), "x": half(2)}, {"out": half(2), "x": half(2)}},
			[]string{"float16 case=out=float16[2]_x=float16[2] x0=2", "float16 case=out=float16[2]_x=float16[2]#2 x0=2"},
		},
		{
			"a name that reports use", "(Tensor(a!) out, Tensor x, str target='a') -> ()", nil,
			[]call{{"out": half(2), "x": half(2), "target": "b"}},
			[]string{"float16 x0=2 target_=b"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var cases []optests.Call
			for _, args := range test.calls {
				cases = append(cases, optests.Call{Args: args})
			}
			d, err := declareWith(t, test.signature, test.shapes, cases...)
			if err != nil {
				t.Fatal(err)
			}
			if got := cells(d); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestDeclare(t *testing.T) {
	const signature = "(Tensor(a!) out, Tensor x) -> ()"
	filled := half(4)
	filled.Fill = func(r *rand.Rand, values []float64) { values[0] = 1 }
	d, err := declareWith(t, signature, nil,
		optests.Call{Name: "plain", Args: map[string]any{"out": half(4), "x": half(4)}, Seed: 3, Slice: true},
		optests.Call{Name: "in place", Args: map[string]any{"out": filled, "x": half(4)}},
		optests.Call{Name: "empty", Args: map[string]any{"out": half(0), "x": half(0)}},
	)
	if err != nil {
		t.Fatal(err)
	}
	list := d.Configs()
	if !d.Listed() || len(list) != 3 || len(d.Sweep()) != 2 || d.Default() != list[0].Case || list[0].Name != "plain" {
		t.Fatalf("%+v, sweep %v", list, d.Sweep())
	}
	if c := list[0].Case; c.String() != "plain" || c.DType != tensor.Float16 || c.Elements() != 4 || c.Seed != 3 || !c.Slice {
		t.Errorf("%+v", c)
	}
	for i, want := range []int64{16, 24, 0} {
		bytes, err := d.Traffic(list[i].Case)
		if adds, bad := d.MultiplyAdds(list[i].Case); err != nil || bad != nil || bytes != want || adds != 15 {
			t.Errorf("%s: %d bytes, %g multiply-adds, %v, %v", list[i].Name, bytes, adds, err, bad)
		}
		if need, err := d.HostBytes(list[i].Case, optests.ForComparison); err != nil || need < want {
			t.Errorf("%s: %d bytes of the host, %v", list[i].Name, need, err)
		}
		p, err := d.GenerateForTiming(list[i].Case)
		if err != nil || len(p.Args) != 2 || len(p.Outputs) != 1 {
			t.Errorf("%s: %v, %v", list[i].Name, p, err)
		}
	}
	identity := optests.Runner{Call: func(_ string, args []any) error {
		return setFrom(args[0].(*tensor.Tensor), args[1].(*tensor.Tensor), func(_ int, v float64) float64 { return v })
	}}
	for _, c := range list {
		p, err := d.Generate(c.Case)
		if err != nil {
			t.Fatal(err)
		}
		if results, err := identity.Run(p); err != nil || len(results) != 1 || !results[0].OK() {
			t.Errorf("%s: %v, %v", c.Name, results, err)
		}
	}
	if _, err := d.Generate(optests.Case{}); !errors.As(err, new(*optests.CaseError)) {
		t.Errorf("a case that is not listed: %v", err)
	}
}

// A seed that replaces that of a case changes its inputs.
func TestDeclaredSeed(t *testing.T) {
	d, err := declareWith(t, "(Tensor(a!) out, Tensor x) -> ()", nil, optests.Call{Args: map[string]any{"out": half(4), "x": half(4)}})
	if err != nil {
		t.Fatal(err)
	}
	inputs := func(seed uint64) []float64 {
		c := d.Default()
		c.Seed = seed
		p, err := d.Generate(c)
		if err != nil {
			t.Fatal(err)
		}
		values, err := p.Tensor("x").Float64s()
		if err != nil {
			t.Fatal(err)
		}
		return values
	}
	if slices.Equal(inputs(0), inputs(1)) || !slices.Equal(inputs(1), inputs(1)) {
		t.Error("the seed does not determine the inputs")
	}
}

// Given tensors have a reference too.
func TestDeclaredFromTensors(t *testing.T) {
	d, err := declareWith(t, "(Tensor(a!) out, Tensor x) -> ()", nil)
	if err != nil {
		t.Fatal(err)
	}
	x, err := tensor.Of([]float32{1, 2, 3}, 3)
	if err != nil {
		t.Fatal(err)
	}
	out, err := tensor.New(tensor.Float32, 3)
	if err != nil {
		t.Fatal(err)
	}
	p, err := d.FromTensors(map[string]any{"x": x, "out": out})
	if err != nil {
		t.Fatal(err)
	}
	for _, right := range []bool{false, true} {
		results, err := p.Check(map[string]*tensor.Tensor{"out": out})
		if err != nil || optests.Passed(results) != right {
			t.Errorf("right: %v, got %v, %v", right, results, err)
		}
		if err := out.CopyFrom(x); err != nil {
			t.Fatal(err)
		}
	}
	for _, given := range []map[string]any{{"x": x}, {"x": x, "out": out, "y": 1.0}, {"x": x, "out": 1.0}, {"x": x, "out": optests.Wanted{}}} {
		if _, err := d.FromTensors(given); !errors.As(err, new(*optests.ArgumentError)) {
			t.Errorf("%v: %v", given, err)
		}
	}
}

func TestDeclareMistakes(t *testing.T) {
	_, err := declareWith(t, "(Tensor(a!) out, Tensor x) -> ()", nil, optests.Call{Name: "one", Args: map[string]any{"x": half(4)}})
	if err == nil || err.Error() != "case one: mine: argument out: expected Tensor(a!), got none" {
		t.Error(err)
	}
}
