package optests

import (
	"math/rand/v2"

	"github.com/aiter-go/aiter/tensor"
)

// operators lists every operator that has a reference.
func operators() []operator {
	return []operator{
		causalConv1dFwd(), causalConv1dBwd(), causalConv1dUpdate(), causalConv1dVarlenFwd(), causalConv1dVarlenStates(),
		causalConv1dServeUpdate(), causalConv1dUpdateSplitQKV(), causalConv1dServeFwd(), causalConv1dFwdSplitQKV(), rmsNorm(),
	}
}

// operator declares one operator.
type operator struct {
	name string
	args []argument // in the schema's order
	// family returns the parameters of cases.
	family func() family
	// cases returns the cases for tests and measurements.
	cases func() caseLists
	// adapt translates the options of the family's grid to those of this operator; nil
	// if they are the same.
	adapt func(Case) Case
	// listed reports whether the operator has only the cases that its [Operator] lists.
	listed bool
	// resolve returns the declaration with the arguments of one case; nil if all cases have the same.
	resolve func(Case) (operator, error)
	// traffic is the number of bytes of a call, see [Declaration.Traffic]; nil: those of the tensors.
	traffic func(Case) int64
	// multiplyAdds is the arithmetic of a call, see [Declaration.MultiplyAdds]; nil if the operator has no sums of products, or so
	// few that memory alone limits it.
	multiplyAdds func(Case) float64
	// infer determines sizes, types and options from given arguments.
	infer func(given args) (Case, error)
	// reference computes every output from the inputs, row-major, by name.
	reference func(in inputs) map[string][]float64
}

// argument declares one argument of an operator. A tensor has shape and dtype, an
// option has value.
type argument struct {
	name string
	role role
	// present reports whether the case passes the argument; nil if every case does.
	// Without it the call passes nil.
	present func(Case) bool

	shape func(Case) []int64
	dtype func(Case) tensor.DType
	// order lists the dimensions from the smallest stride to the largest; nil for
	// row-major.
	order func(c Case, rank int) []int
	// unitStride keeps the first of them at stride 1 in sliced tensors too.
	unitStride bool
	// placement is where the tensor lies in its storage; nil for an aligned one without gaps.
	placement func(Case) Placement
	// fill makes an input's values, row-major.
	fill func(c Case, r *rand.Rand, values []float64)
	// timingFill makes an input's values for timing if random ones would change the
	// amount of work; nil for fill.
	timingFill func(c Case, values []float64)
	// timedAsFilled reports whether timing needs the values of fill.
	timedAsFilled bool
	// elementsMoved is the number of elements that a call reads or writes; nil for all.
	elementsMoved func(Case) int64
	// tolerance is an output's largest error; nil for [shortSum].
	tolerance tolerances

	value func(Case) any
}

// role is how an operator uses an argument.
type role int

const (
	input   role = iota
	output       // every element is written, none is read
	updated      // read, then written in place
	option       // a number or a flag
)

func (a argument) written() bool { return a.role == output || a.role == updated }

func (a argument) isPassed(c Case) bool { return a.present == nil || a.present(c) }

// args are arguments by name, as given: *tensor.Tensor, bool, int64, Wanted or
// nil.
type args map[string]any

// tensor returns the tensor of that name, nil if there is none.
func (a args) tensor(name string) *tensor.Tensor {
	t, _ := a[name].(*tensor.Tensor)
	return t
}

// has reports whether an argument is given: a tensor, or Wanted.
func (a args) has(name string) bool { return a[name] != nil }

// inputs holds the values that a reference reads.
type inputs struct {
	Case
	values map[string][]float64 // row-major; absent for arguments not passed
}

// Operators lists the names of the operators that have a reference.
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
