package optests

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"

	"github.com/aiter-go/aiter/jit/schema"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// Operator declares an operator of any module, for [Run] and [Bench] and for the commands of a program of package aitercmd.
type Operator struct {
	Name string
	// Cases are the calls that are tested and measured. The commands show their sizes and options in tables and charts.
	Cases []Call
	// Reference returns the elements of each output, row-major, by the argument's name.
	Reference func(in Inputs) map[string][]float64
	// Tolerance is the largest error of an output; nil: 3e-4 of the value plus 1e-3 for float32, more for types of 16
	// bits, and 0 for integers.
	Tolerance func(arg string, dt tensor.DType) Tolerance
	// Bytes is the number of bytes that a call reads and writes; nil: those of all tensors, twice for one that is updated
	// in place.
	Bytes func(Call) int64
	// Flops is the number of floating-point operations of a call; nil: not reported.
	Flops func(Call) float64
}

// Call is one case of an [Operator].
type Call struct {
	Name string // if empty, String makes a name of the arguments
	// Args are the arguments by name: a TensorArg, a number, a bool, a string, or nil for an optional argument. Those that
	// are left out have the defaults of the schema.
	Args map[string]any
	// Slice makes every tensor a slice of a larger buffer: odd strides, pointers aligned to an element only.
	Slice bool
	Seed  uint64 // of the random inputs
}

// TensorArg is a tensor of a [Call].
type TensorArg struct {
	DType tensor.DType
	Shape []int64
	// Fill makes the values, row-major. If it is nil, a tensor that is only read has values of the standard normal
	// distribution, and one that the schema marks as written has a pattern: an element that keeps it was not written. A
	// written tensor with Fill is updated in place.
	Fill func(r *rand.Rand, values []float64)
	// Order lists the dimensions from the smallest stride to the largest; nil for row-major.
	Order []int
}

// Inputs holds the values that a reference reads.
type Inputs struct {
	Call Call
	// Values are the elements of the tensors before the call, rounded to their types, row-major. Outputs have none.
	Values map[string][]float64
}

// Shape returns the shape of a tensor, nil for another argument.
func (in Inputs) Shape(arg string) []int64 {
	t, _ := in.Call.Args[arg].(TensorArg)
	return t.Shape
}

// Verification returns the operator's reference for [registry.Options.References].
func (o Operator) Verification() registry.Reference {
	compute := func(args map[string]any) (map[string][]float64, error) {
		in := Inputs{Call: Call{Args: map[string]any{}}, Values: map[string][]float64{}}
		for name, v := range args {
			t, ok := v.(*tensor.Tensor)
			if !ok {
				in.Call.Args[name] = widened(v)
				continue
			}
			if in.Call.Args[name] = nil; t == nil {
				continue
			}
			values, err := t.Float64s()
			if err != nil {
				return nil, err
			}
			in.Values[name] = values
			in.Call.Args[name] = TensorArg{DType: t.DType(), Shape: t.Shape()}
		}
		return o.Reference(in), nil
	}
	return registry.Reference{Compute: compute, Tolerance: func(arg string, dt tensor.DType) (rel, abs float64) {
		t := o.toleranceOf(arg)(dt)
		return t.Rel, t.Abs
	}}
}

// widened returns a number of any size as the int or float64 of a [Call].
func widened(v any) any {
	switch r := reflect.ValueOf(v); {
	case r.CanInt():
		return int(r.Int())
	case r.CanFloat():
		return r.Float()
	}
	return v
}

// String returns a name of the case for tests.
func (c Call) String() string {
	if c.Name != "" {
		return c.Name
	}
	var words []string
	for _, name := range slices.Sorted(maps.Keys(c.Args)) {
		switch v := c.Args[name].(type) {
		case TensorArg:
			words = append(words, fmt.Sprintf("%s=%s%s", name, v.DType, strings.ReplaceAll(fmt.Sprint(v.Shape), " ", ",")))
		default:
			words = append(words, fmt.Sprintf("%s=%v", name, v))
		}
	}
	if c.Slice {
		words = append(words, "slice")
	}
	return strings.Join(words, "_")
}

// Problem makes a problem of a case: inputs, poisoned outputs, canaries around each tensor. s is the operator's schema.
// The error is an *ArgumentError or that of a tensor.
func (o Operator) Problem(s schema.Schema, c Call) (*Problem, error) {
	return o.oneCase(s, c).Generate(caseOf(s, c))
}

// oneCase returns the declaration for a case that need not be one of Cases.
func (o Operator) oneCase(s schema.Schema, c Call) Declaration {
	o.Cases = []Call{c}
	return Declaration{o.declaration(s, caseLists{}, nil)}
}

// declare checks the cases against the schema.
func (o Operator) declare(s schema.Schema, shapes map[string]schema.Shape) (operator, error) {
	for _, c := range o.Cases { // before Bytes, which may expect arguments of the schema
		if _, err := o.arguments(s, c); err != nil {
			return operator{}, fmt.Errorf("case %s: %w", c, err)
		}
	}
	values, params := o.columns(s, shapes)
	var lists caseLists
	traffic := Declaration{o.declaration(s, lists, nil)}.Traffic
	for i, call := range o.Cases {
		c := caseOf(s, call)
		c.Params = callParams{&listedCall{call, values[i]}}
		lists.configs = append(lists.configs, Config{Name: call.String(), Case: c})
		bytes, err := traffic(c)
		if err != nil {
			return operator{}, err
		}
		if bytes > 0 { // a call that moves none has no bandwidth
			lists.sweep = append(lists.sweep, c)
		}
	}
	if len(lists.configs) > 0 {
		lists.defaults = lists.configs[0].Case
	}
	return o.declaration(s, lists, params), nil
}

// declaration returns the operator in the form in which families declare theirs.
func (o Operator) declaration(s schema.Schema, lists caseLists, params []Param) operator {
	decl := operator{
		name: o.Name, listed: true,
		family: func() family { return family{zero: callParams{}, params: params} },
		cases:  func() caseLists { return lists },
		infer:  func(given args) (Case, error) { return o.infer(s, given) },
		reference: func(in inputs) map[string][]float64 {
			return o.Reference(Inputs{Call: callOf(in.Case), Values: in.values})
		},
	}
	if o.Bytes != nil {
		decl.traffic = func(c Case) int64 { return o.Bytes(callOf(c)) }
	}
	if o.Flops != nil {
		decl.multiplyAdds = func(c Case) float64 { return o.Flops(callOf(c)) / 2 }
	}
	base := decl
	decl.resolve = func(c Case) (one operator, err error) {
		one = base
		one.args, err = o.arguments(s, callOf(c))
		return one, err
	}
	return decl
}

// callParams are the parameters of a case of an [Operator].
type callParams struct{ listed *listedCall }

// listedCall is a call with the values of the columns of reports.
type listedCall struct {
	call   Call
	values map[string]any
}

// callOf returns the call of a case.
func callOf(c Case) Call { return ParamsOf[callParams](c).listed.call }

// caseOf returns the case of a call. Its type is that of the first tensor in the order of inputsFirst.
func caseOf(s schema.Schema, call Call) Case {
	c := Case{Slice: call.Slice, Seed: call.Seed, Params: callParams{&listedCall{call: call}}}
	for _, a := range inputsFirst(s) {
		if t, ok := call.Args[a.Name].(TensorArg); ok {
			c.DType = t.DType
			break
		}
	}
	return c
}

// inputsFirst returns the arguments that are only read, then those that are written, each in the schema's order.
func inputsFirst(s schema.Schema) []schema.Arg {
	list := slices.Clone(s.Args)
	slices.SortStableFunc(list, func(a, b schema.Arg) int {
		if a.Type.Mutable == b.Type.Mutable {
			return 0
		}
		if a.Type.Mutable {
			return 1
		}
		return -1
	})
	return list
}

// Complete implements [Params].
func (p callParams) Complete() (Params, error) {
	if p.listed == nil {
		return p, &CaseError{Field: "case", Got: "none", Expected: "a case that the operator lists"}
	}
	return p, nil
}

// Elements implements [Params]. It counts those of the largest tensor.
func (p callParams) Elements() int64 {
	n := int64(0)
	for _, v := range p.listed.call.Args {
		if t, ok := v.(TensorArg); ok {
			n = max(n, product(t.Shape))
		}
	}
	return n
}

// Words implements [Params].
func (p callParams) Words() (sizes, options []string) { return []string{p.String()}, nil }

// String returns the name of the call.
func (p callParams) String() string { return p.listed.call.String() }

// infer makes a case of given arguments. A given tensor that the operator writes may be read too.
func (o Operator) infer(s schema.Schema, given args) (Case, error) {
	c := Call{Args: map[string]any{}}
	for name, v := range given {
		switch t := v.(type) {
		case *tensor.Tensor:
			if t != nil {
				v = TensorArg{DType: t.DType(), Shape: t.Shape(), Fill: func(*rand.Rand, []float64) {}}
			}
		case Wanted:
			return Case{}, &ArgumentError{Op: o.Name, Arg: name, Expected: "a tensor", Got: "none"}
		}
		c.Args[name] = v
	}
	return caseOf(s, c), nil
}

// arguments returns the declarations of a call's arguments, up to the last one that is required or given.
func (o Operator) arguments(s schema.Schema, c Call) ([]argument, error) {
	if err := o.checkNames(s, c); err != nil {
		return nil, err
	}
	var list []argument
	for _, a := range s.Args[:lastGiven(s, c)] {
		arg, err := o.argument(a, c)
		if err != nil {
			return nil, err
		}
		list = append(list, arg)
	}
	return list, nil
}

// checkNames fails for arguments that the schema does not have.
func (o Operator) checkNames(s schema.Schema, c Call) error {
	for name := range c.Args {
		if s.Index(name) < 0 {
			return &ArgumentError{Op: o.Name, Arg: name, Expected: "an argument of " + s.String(), Got: "none of that name"}
		}
	}
	return nil
}

// lastGiven returns the number of arguments up to the last one that is required or given.
func lastGiven(s schema.Schema, c Call) int {
	count := s.Required()
	for name := range c.Args {
		count = max(count, s.Index(name)+1)
	}
	return count
}

// argument returns the declaration of an argument of a call.
func (o Operator) argument(a schema.Arg, c Call) (argument, error) {
	value, given := c.Args[a.Name]
	if !given && a.Default == nil {
		return argument{}, &ArgumentError{Op: o.Name, Arg: a.Name, Expected: a.Type.String(), Got: "none"}
	}
	if !given {
		value = a.Default.Any()
	}
	t, isTensor := value.(TensorArg)
	switch {
	case isTensor && a.Type.Kind != schema.Tensor:
		return argument{}, &ArgumentError{Op: o.Name, Arg: a.Name, Expected: a.Type.String(), Got: "a tensor"}
	case isTensor:
		return o.tensorArgument(a, t), nil
	case value != nil && a.Type.Kind == schema.Tensor:
		return argument{}, &ArgumentError{Op: o.Name, Arg: a.Name, Expected: a.Type.String() + ", a TensorArg", Got: fmt.Sprintf("%T", value)}
	}
	return argument{name: a.Name, role: option, value: func(Case) any { return value }}, nil
}

func (o Operator) tensorArgument(a schema.Arg, t TensorArg) argument {
	arg := argument{
		name: a.Name, shape: func(Case) []int64 { return t.Shape }, dtype: func(Case) tensor.DType { return t.DType },
		tolerance: o.toleranceOf(a.Name), timedAsFilled: t.Fill != nil,
		fill: func(c Case, r *rand.Rand, values []float64) {
			if t.Fill == nil {
				randomNormals(c, r, values)
			} else {
				t.Fill(r, values)
			}
		},
	}
	if t.Order != nil {
		arg.order = func(Case, int) []int { return t.Order }
	}
	switch {
	case a.Type.Mutable && t.Fill == nil:
		arg.role = output
	case a.Type.Mutable:
		arg.role = updated
	}
	return arg
}

func (o Operator) toleranceOf(arg string) tolerances {
	return func(dt tensor.DType) Tolerance {
		switch {
		case o.Tolerance != nil:
			return o.Tolerance(arg, dt)
		case !dt.IsFloat():
			return Tolerance{}
		}
		return shortSum(dt)
	}
}
