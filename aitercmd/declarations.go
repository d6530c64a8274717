package aitercmd

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aiter-go/aiter/jit/schema"
	optests "github.com/aiter-go/aiter/op_tests"
)

// listed reports whether the operator is one that the program declares with a list of cases.
func (a *app) listed(op string) bool { return a.listedIndex(op) >= 0 }

func (a *app) listedIndex(op string) int {
	return slices.IndexFunc(a.program.Operators, func(o optests.Operator) bool { return o.Name == op })
}

// onlyOperator returns the operator of a program that declares exactly one, for command lines that name none. It returns "" for
// other programs.
func (a *app) onlyOperator() string {
	if len(a.program.Operators) == 1 {
		return a.program.Operators[0].Name
	}
	return ""
}

// flagOperator returns the operator whose flags a command line may have, "" if none is known.
func (a *app) flagOperator() string { return cmp.Or(a.operator, a.onlyOperator()) }

// examples returns the examples of a command: builtin, or for a program that declares operators listed, with the name of its first
// operator in place of OP.
func (a *app) examples(builtin, listed string) string {
	if len(a.program.Operators) == 0 {
		return builtin
	}
	return strings.ReplaceAll(listed, "OP", a.program.Operators[0].Name)
}

// opUse returns the text of the operator argument in the help of test, bench, tune, run and profile.
func (a *app) opUse() string {
	if a.onlyOperator() != "" {
		return "[OP]"
	}
	return "OP"
}

// opArgs returns the check of the operator argument.
func (a *app) opArgs() cobra.PositionalArgs {
	if a.onlyOperator() != "" {
		return args(cobra.MaximumNArgs(1))
	}
	return args(cobra.ExactArgs(1))
}

// opArg returns the operator argument, or the program's only operator.
func (a *app) opArg(args []string) string {
	if len(args) == 0 {
		return a.onlyOperator()
	}
	return args[0]
}

// declaredNames lists the operators with a reference.
func (a *app) declaredNames() []string {
	var names []string
	for _, op := range a.program.Operators {
		names = append(names, op.Name)
	}
	for _, op := range optests.Operators() {
		if !slices.Contains(names, op) {
			names = append(names, op)
		}
	}
	return names
}

// family returns the declaration of the operator that the command line names, without the configuration. It has no
// parameters if the program declares the operator, or if there is none.
func (a *app) family() optests.Declaration {
	if a.listed(a.operator) {
		return optests.Declaration{}
	}
	d, _ := optests.Lookup(a.operator) // the function that generates cases reports the error
	return d
}

// declaration returns the declaration of an operator's cases: that of the program, with the schema of the
// configuration, else that of aiter. The errors are an *optests.UnknownOpError, those of the configuration, and an
// *optests.ArgumentError for a case that does not fit the schema.
func (a *app) declaration(name string) (optests.Declaration, error) {
	i := a.listedIndex(name)
	if i < 0 {
		d, err := optests.Lookup(name)
		if unknown, ok := errors.AsType[*optests.UnknownOpError](err); ok {
			unknown.Known = a.declaredNames()
		}
		return d, err
	}
	cfg, err := a.loadConfig()
	if err != nil {
		return optests.Declaration{}, err
	}
	_, op, err := cfg.Op(name)
	if err != nil {
		return optests.Declaration{}, err
	}
	shapes := map[string]schema.Shape{}
	for arg, x := range op.Args {
		shapes[arg] = x.Shape
	}
	return a.program.Operators[i].Declare(op.Schema, shapes)
}

// caseNames returns the names of the cases of the operator that the command line names.
func (a *app) caseNames() []string {
	if i := a.listedIndex(a.flagOperator()); i >= 0 {
		var names []string
		for _, c := range a.program.Operators[i].Cases {
			if name := c.String(); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		return names
	}
	return configNames(a.family().Configs())
}

// usualCase returns the operator's case for command lines without sizes.
func usualCase(op optests.Declaration) optests.Case { return op.Default() }
