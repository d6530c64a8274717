package registry

import (
	"errors"
	"fmt"
	"strings"

	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/tensor"
)

// choice is what a call chooses by the axes of its module: for each that the operator
// depends on, in the order of code.axes, the element type or which range of sizes.
type choice [opconfig.MaxAxes]uint32

// choiceAxis is an axis of the module that the operator depends on.
type choiceAxis struct {
	name      string
	arg       int             // position of the argument that chooses
	dimension int             // of it, whose size chooses among ranges
	ranges    opconfig.Ranges // empty where the element type chooses
}

func choiceAxes(mod *opconfig.Module, decl *opconfig.Op) []choiceAxis {
	var list []choiceAxis
	for _, a := range mod.Axes {
		for i, arg := range decl.Schema.Args {
			if arg.Name == a.Argument {
				list = append(list, choiceAxis{a.Name, i, a.Dimension, a.Ranges})
			}
		}
	}
	return list
}

// choose reads the choice off arguments that were packed: they are all there,
// and tensors.
func (o *code) choose(args []any) (c choice) {
	for i := range o.axes {
		a := &o.axes[i]
		if t, ok := args[a.arg].(*tensor.Tensor); ok {
			c[i] = a.of(t)
		}
	}
	return c
}

// of is the axis's part of a choice. A tensor without the dimension chooses the first
// range, whose code refuses it.
func (a *choiceAxis) of(t *tensor.Tensor) uint32 {
	switch {
	case len(a.ranges) == 0:
		return uint32(t.DType())
	case a.dimension >= t.Rank():
		return 0
	}
	return uint32(a.ranges.Of(t.Dim(a.dimension)))
}

// value is the axis's value that was chosen.
func (c choice) value(i int, a opconfig.Axis) string {
	if a.BySize() {
		return a.Values[c[i]]
	}
	return tensor.DType(c[i]).String()
}

// request asks for what a call with that choice needs.
func (o *code) request(t target.Target, c choice) (jit.Request, error) {
	spec, err := o.from.mod.Part(o.decl, t, func(a opconfig.Axis) string {
		for i, mine := range o.axes {
			if mine.name == a.Name {
				return c.value(i, a)
			}
		}
		return ""
	})
	var unknown *opconfig.UnknownAxisError
	if errors.As(err, &unknown) {
		return jit.Request{}, o.dtypeError(unknown)
	}
	return jit.Request{Module: o.from.mod.Name, Target: t, Part: spec}, err
}

// dtypeError says what the operator itself says of a type that it does not
// have: no code has to be built for that. Every size has its range.
func (o *code) dtypeError(e *opconfig.UnknownAxisError) error {
	arg := ""
	for _, a := range o.axes {
		if a.name == e.Axis {
			arg = o.decl.Schema.Args[a.arg].Name
		}
	}
	return &OperatorError{
		Op: o.Name(), Kind: "TypeError", Arg: arg, About: "dtype",
		Message: fmt.Sprintf("%s: argument '%s': expected dtype %s, got %s", o.Name(), arg, oneOf(e.Known), e.Value),
	}
}

// oneOf lists alternatives: "a, b or c".
func oneOf(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// whole asks for all that the operator's module has.
func (o *code) whole(t target.Target) jit.Request {
	return jit.Request{Module: o.from.mod.Name, Target: t}
}

// parts asks for all that calls of the operator may need.
func (o *code) parts(t target.Target) []jit.Request {
	specs, err := o.from.mod.Parts(t, opconfig.Selection{Ops: []string{o.Name()}})
	if err != nil {
		return nil // it is an operator of this module
	}
	var reqs []jit.Request
	for _, s := range specs {
		reqs = append(reqs, jit.Request{Module: o.from.mod.Name, Target: t, Part: s})
	}
	return reqs
}
