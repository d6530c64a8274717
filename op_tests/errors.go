package optests

import (
	"fmt"
	"strings"
)

// UnknownOpError is the error for an operator without a reference.
type UnknownOpError struct {
	Op    string
	Known []string
}

func (e *UnknownOpError) Error() string {
	return fmt.Sprintf("no reference for operator %q; operators with a reference: %s; declare others with optests.Operator, in a test "+
		"or in a program of package aitercmd; aiterctl run calls operators without a reference",
		e.Op, strings.Join(e.Known, ", "))
}

// CaseError is the error for a case that no problem can have.
type CaseError struct{ Field, Got, Expected string }

func (e *CaseError) Error() string {
	return fmt.Sprintf("%s: expected %s, got %s", e.Field, e.Expected, e.Got)
}

// ArgumentError is the error for an argument that does not fit its operator or the
// other arguments.
type ArgumentError struct{ Op, Arg, Expected, Got string }

func (e *ArgumentError) Error() string {
	return fmt.Sprintf("%s: argument %s: expected %s, got %s", e.Op, e.Arg, e.Expected, e.Got)
}
