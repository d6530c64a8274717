package optests

import (
	"fmt"
	"strings"
)

// UnknownOpError says that the suite has no declaration of an operator.
type UnknownOpError struct {
	Op    string
	Known []string
}

func (e *UnknownOpError) Error() string {
	return fmt.Sprintf("no reference for operator %q; there is one for %s", e.Op, strings.Join(e.Known, ", "))
}

// CaseError says that a case describes no possible problem.
type CaseError struct{ Field, Got, Expected string }

func (e *CaseError) Error() string {
	return fmt.Sprintf("%s: expected %s, got %s", e.Field, e.Expected, e.Got)
}

// ArgumentError says that an argument does not fit its operator, or the other
// arguments.
type ArgumentError struct{ Op, Arg, Expected, Got string }

func (e *ArgumentError) Error() string {
	return fmt.Sprintf("%s: argument %s: expected %s, got %s", e.Op, e.Arg, e.Expected, e.Got)
}
