package optests

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aiter-go/aiter/tensor"
)

// checkNames fails if the operator does not have a given argument, or if the argument is not a tensor where the operator
// has one, or not of the option's Go type. The error is an *ArgumentError.
func (op operator) checkNames(given args) error {
	var names []string
	for _, a := range op.args {
		names = append(names, a.name)
		if v := given[a.name]; v != nil && !a.accepts(v) {
			return &ArgumentError{Op: op.name, Arg: a.name, Expected: a.kindName(), Got: fmt.Sprintf("%T", v)}
		}
	}
	for name := range given {
		if !slices.Contains(names, name) {
			return &ArgumentError{Op: op.name, Arg: name, Expected: "one of " + strings.Join(names, ", "), Got: "an unknown name"}
		}
	}
	return nil
}

func (a argument) accepts(v any) bool {
	switch v := v.(type) {
	case *tensor.Tensor:
		return a.role != option && v != nil
	case Wanted:
		return a.role == output
	}
	return a.role == option && fmt.Sprintf("%T", v) == a.kindName()
}

func (a argument) kindName() string {
	if a.role != option {
		return "a tensor"
	}
	return fmt.Sprintf("%T", a.value(Case{}))
}

// fits fails if a given tensor differs in shape or element type from the one that the case needs. Any float type matches
// any other one: the operator itself checks which of them it accepts.
func (a argument) fits(c Case, t *tensor.Tensor) error {
	if slices.Equal(t.Shape(), a.shape(c)) && (t.DType() == a.dtype(c) || isFloat(t.DType()) && isFloat(a.dtype(c))) {
		return nil
	}
	return &ArgumentError{Arg: a.name, Expected: a.describe(c), Got: fmt.Sprintf("%s%v", t.DType(), t.Shape())}
}

// describe returns the tensor that the case needs, such as "float16[2 64 128]".
func (a argument) describe(c Case) string { return fmt.Sprintf("%s%v", a.dtype(c), a.shape(c)) }

// ranked returns the given tensor of that name. It fails if there is none, or if its rank differs. shape names the
// dimensions in the error, an *ArgumentError.
func (a args) ranked(name string, rank int, shape string) (*tensor.Tensor, error) {
	t := a.tensor(name)
	if t == nil {
		return nil, &ArgumentError{Arg: name, Expected: "a tensor " + shape, Got: "none"}
	}
	if t.Rank() != rank {
		return nil, &ArgumentError{Arg: name, Expected: "a tensor " + shape, Got: fmt.Sprintf("shape %v", t.Shape())}
	}
	return t, nil
}

// named sets the operator of an *ArgumentError and prefixes other errors with it.
func (op operator) named(err error) error {
	if e, ok := errors.AsType[*ArgumentError](err); ok {
		e.Op = op.name
		return err
	}
	return fmt.Errorf("%s: %w", op.name, err)
}
