package optests

import (
	"fmt"
	"iter"
	"strings"
)

// CaseResult is the outcome of one case of an operator.
type CaseResult struct {
	Op      string
	Case    Case
	Results []Result
	Err     error // the operator could not be called, or its outputs could not be read
}

// OK reports whether the case ran and every output is right.
func (c CaseResult) OK() bool { return c.Err == nil && Passed(c.Results) }

// Ideal reports whether the case is OK and every element is as accurate as a
// float32 sum that is rounded once.
func (c CaseResult) Ideal() bool {
	for _, r := range c.Results {
		if r.BeyondIdeal > 0 {
			return false
		}
	}
	return c.OK()
}

// String returns the case and its error, or a line for each output.
func (c CaseResult) String() string {
	if c.Err != nil {
		return fmt.Sprintf("%s %s: %v", c.Op, c.Case, c.Err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", c.Op, c.Case)
	for _, r := range c.Results {
		fmt.Fprintf(&b, "\n\t%s", r)
	}
	return b.String()
}

// RunCases runs the cases one after another and yields the result of each.
func (r Runner) RunCases(op string, cases iter.Seq[Case]) iter.Seq[CaseResult] {
	return func(yield func(CaseResult) bool) {
		for c := range cases {
			results, err := r.RunCase(op, c)
			if !yield(CaseResult{Op: op, Case: c, Results: results, Err: err}) {
				return
			}
		}
	}
}
