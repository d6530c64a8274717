package optests

import (
	"math/rand/v2"

	"github.com/aiter-go/aiter/tensor"
)

// operators lists every operator the suite knows.
func operators() []operator {
	return []operator{
		causalConv1dFwd(), causalConv1dBwd(), causalConv1dUpdate(), causalConv1dVarlenFwd(), causalConv1dVarlenStates(),
	}
}

// operator declares one operator to the suite.
type operator struct {
	name string
	args []argument // in the schema's order
	// adapt says what the options of a grid mean to this operator; nil for what
	// they are called.
	adapt func(Case) Case
	// infer reads sizes, types and options off given arguments.
	infer func(given args) (Case, error)
	// reference computes every output from the inputs, row-major, by name.
	reference func(in inputs) map[string][]float64
	// models are the sizes that models call it with; nil for whole sequences.
	modelConfigs func() []Config
}

// argument declares one argument of an operator. A tensor has shape, an option
// has value.
type argument struct {
	name string
	role role
	// present says whether the case passes it; nil for always. One that is not
	// present is passed as nil.
	present func(Case) bool

	shape func(Case) []int64
	dtype func(Case) tensor.DType
	// streams marks a (batch, dim, seqlen) or (dim, seqlen) tensor, laid out as
	// the case says.
	activation bool
	// lie is where the case wants a stream; nil for where it wants all that are read, or written.
	placementOf func(Case) Placement
	// fill makes an input's values, row-major.
	fill func(c Case, r *rand.Rand, values []float64)
	// steady makes an input's values where calls are timed and random ones would
	// change how much there is to do.
	timingFill func(c Case, values []float64)
	// moves is how many elements a call has to touch; nil for all of them.
	elementsMoved func(Case) int64
	// kind picks an output's row of the tolerance table.
	tolerance toleranceClass

	value func(Case) any
}

// role says who writes an argument.
type role int

const (
	input   role = iota
	output       // written in full, whatever was there
	updated      // read, then written in place
	option       // a number or a flag, no tensor
)

func (a argument) written() bool { return a.role == output || a.role == updated }

func (a argument) isPassed(c Case) bool { return a.present == nil || a.present(c) }

// args are arguments by name, as given: *tensor.Tensor, bool, int64, Wanted or
// nil.
type args map[string]any

// tensor is the tensor of that name, or nil.
func (a args) tensor(name string) *tensor.Tensor {
	t, _ := a[name].(*tensor.Tensor)
	return t
}

// has reports whether an argument takes part: a tensor, or a wanted output.
func (a args) has(name string) bool { return a[name] != nil }

// inputs is what a reference reads.
type inputs struct {
	Case
	values map[string][]float64 // row-major; absent for arguments not passed
}

// Operators lists the names of the operators that the suite can try.
func Operators() []string {
	var names []string
	for _, op := range operators() {
		names = append(names, op.name)
	}
	return names
}

// lookup finds a declaration. The error is an *UnknownOpError.
func lookup(name string) (operator, error) {
	for _, op := range operators() {
		if op.name == name {
			return op, nil
		}
	}
	return operator{}, &UnknownOpError{Op: name, Known: Operators()}
}
