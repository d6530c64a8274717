package optests

import (
	"slices"
	"strings"
)

// Conv1dOperators lists the operators of the causal_conv1d family.
func Conv1dOperators() []string {
	return slices.DeleteFunc(Operators(), func(op string) bool { return !strings.HasPrefix(op, "causal_conv1d_") })
}

// Conv returns the parameters of a case of the family.
func Conv(c Case) Conv1d { return conv(c) }
