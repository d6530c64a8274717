package optests

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/aiter-go/aiter/jit/schema"
	"github.com/aiter-go/aiter/tensor"
)

// Operator declares an operator of any module, for [Run] and [Bench].
type Operator struct {
	Name  string
	Cases []Call
	// Reference returns the elements of each output, row-major, by the argument's name.
	Reference func(in Inputs) map[string][]float64
	// Tolerance is the largest error of an output; nil: 3e-4 of the value and 1e-3 for float32, more for types of 16
	// bits, and none for integers.
	Tolerance func(arg string, dt tensor.DType) Tolerance
	// Bytes is the number of bytes that a call reads and writes; nil: those of all tensors.
	Bytes func(Call) int64
	// Flops is the number of floating-point operations of a call; nil: not reported.
	Flops func(Call) float64
}

// Call is one case of an [Operator].
type Call struct {
	Name string // "": made of the arguments
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
	// Fill makes the values, row-major. nil: the standard normal distribution; for a tensor that the schema marks as
	// written, a pattern that every element must lose. A written tensor with Fill is updated in place.
	Fill func(r *rand.Rand, values []float64)
}

// Inputs are what a reference reads.
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

// String is a name of the case for tests.
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
	decl := operator{name: o.Name, reference: func(in inputs) map[string][]float64 {
		return o.Reference(Inputs{Call: c, Values: in.values})
	}}
	if err := o.checkNames(s, c); err != nil {
		return nil, err
	}
	p := &Problem{Op: o.Name, Case: Case{Slice: c.Slice, Seed: c.Seed}}
	for i, a := range s.Args[:lastGiven(s, c)] {
		arg, v, err := o.argument(a, c)
		if err != nil {
			return nil, err
		}
		if arg.role != option {
			if v, err = arg.generate(p.Case); err != nil {
				return nil, fmt.Errorf("%s: argument %s: %w", o.Name, a.Name, err)
			}
		}
		decl.args = append(decl.args, arg)
		p.Args, p.ArgNames = append(p.Args, v), append(p.ArgNames, a.Name)
		if arg.written() {
			p.Outputs = append(p.Outputs, Output{Name: a.Name, Arg: i, tolerance: arg.tolerance, guarded: true, poisoned: arg.role == output})
		}
	}
	if err := p.captureInputs(decl); err != nil {
		return nil, err
	}
	reference := p.reference
	p.reference = func() (map[string][]float64, error) { return p.complete(reference()) }
	return p, nil
}

// complete fails if the reference lacks an output, or has one of another size.
func (p *Problem) complete(want map[string][]float64, err error) (map[string][]float64, error) {
	for _, o := range p.Outputs {
		if n := p.Tensor(o.Name).Numel(); err == nil && int64(len(want[o.Name])) != n {
			err = &ArgumentError{Op: p.Op, Arg: o.Name, Expected: fmt.Sprintf("%d elements from the reference", n), Got: fmt.Sprint(len(want[o.Name]))}
		}
	}
	return want, err
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

// lastGiven is the number of arguments up to the last one that is required or given.
func lastGiven(s schema.Schema, c Call) int {
	count := s.Required()
	for name := range c.Args {
		count = max(count, s.Index(name)+1)
	}
	return count
}

// argument returns the declaration of an argument, and its value if it is no tensor.
func (o Operator) argument(a schema.Arg, c Call) (arg argument, value any, err error) {
	value, given := c.Args[a.Name]
	if !given && a.Default == nil {
		return arg, nil, &ArgumentError{Op: o.Name, Arg: a.Name, Expected: a.Type.String(), Got: "none"}
	}
	if !given {
		value = a.Default.Any()
	}
	t, isTensor := value.(TensorArg)
	if !isTensor {
		return argument{name: a.Name, role: option}, value, nil
	}
	if a.Type.Kind != schema.Tensor {
		return arg, nil, &ArgumentError{Op: o.Name, Arg: a.Name, Expected: a.Type.String(), Got: "a tensor"}
	}
	return o.tensorArgument(a, t), nil, nil
}

func (o Operator) tensorArgument(a schema.Arg, t TensorArg) argument {
	arg := argument{
		name: a.Name, shape: func(Case) []int64 { return t.Shape }, dtype: func(Case) tensor.DType { return t.DType },
		tolerance: o.toleranceOf(a.Name),
		fill: func(c Case, r *rand.Rand, values []float64) {
			if t.Fill == nil {
				randomNormals(c, r, values)
			} else {
				t.Fill(r, values)
			}
		},
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

// bytes is the number of bytes that a call moves.
func (o Operator) bytes(c Call) int64 {
	if o.Bytes != nil {
		return o.Bytes(c)
	}
	n := int64(0)
	for _, v := range c.Args {
		if t, ok := v.(TensorArg); ok {
			n += product(t.Shape) * t.DType.Size()
		}
	}
	return n
}
