package registry

import (
	"errors"
	"fmt"

	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/spelling"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/tensor"
)

// partKey holds the element type or range index of a call for each axis that the
// operator depends on, in the order of opVersion.axes.
type partKey [opconfig.MaxAxes]uint32

// keyAxis is an axis of the module that the operator depends on.
type keyAxis struct {
	name      string
	arg       int             // position of the argument
	dimension int             // dimension of the argument; its size is in one of the ranges
	ranges    opconfig.Ranges // empty for an axis of element types
}

// keyAxes returns the axes of the module that the operator depends on.
func keyAxes(mod *opconfig.Module, decl *opconfig.Op) []keyAxis {
	var list []keyAxis
	for _, a := range mod.Axes {
		for i, arg := range decl.Schema.Args {
			if arg.Name == a.Argument {
				list = append(list, keyAxis{a.Name, i, a.Dimension, a.Ranges})
			}
		}
	}
	return list
}

// key returns the part key of packed arguments. All arguments of axes are tensors.
func (o *opVersion) key(args []any) (key partKey) {
	for i := range o.axes {
		a := &o.axes[i]
		if t, ok := args[a.arg].(*tensor.Tensor); ok {
			key[i] = a.of(t)
		}
	}
	return key
}

// of returns the axis's element of a part key for a tensor. A tensor without the dimension gets the
// first range; the code of that range refuses the tensor.
func (a *keyAxis) of(t *tensor.Tensor) uint32 {
	switch {
	case len(a.ranges) == 0:
		return uint32(t.DType())
	case a.dimension >= t.Rank():
		return 0
	}
	return uint32(a.ranges.Of(t.Dim(a.dimension)))
}

// value returns the value of an axis in the key; i is the position of the axis in
// opVersion.axes.
func (k partKey) value(i int, a opconfig.Axis) string {
	if a.BySize() {
		return a.Values[k[i]]
	}
	return tensor.DType(k[i]).String()
}

// request returns the request for the part that calls with a part key need.
func (o *opVersion) request(t target.Target, key partKey) (jit.Request, error) {
	part, err := o.module.decl.Part(o.decl, t, func(a opconfig.Axis) string {
		for i, own := range o.axes {
			if own.name == a.Name {
				return key.value(i, a)
			}
		}
		return ""
	})
	var unknown *opconfig.UnknownAxisError
	if errors.As(err, &unknown) {
		return jit.Request{}, o.dtypeError(unknown)
	}
	return jit.Request{Module: o.module.decl.Name, Target: t, Part: part}, err
}

// dtypeError returns the error that the operator itself would return for an element type
// that it does not support, so that no code is built for a call that fails. There is no such
// error for sizes, because each size is in a range.
func (o *opVersion) dtypeError(e *opconfig.UnknownAxisError) error {
	arg := ""
	for _, a := range o.axes {
		if a.name == e.Axis {
			arg = o.decl.Schema.Args[a.arg].Name
		}
	}
	return &OperatorError{
		Op: o.Name(), Kind: "TypeError", Arg: arg, About: "dtype",
		Message: fmt.Sprintf("%s: argument '%s': expected dtype %s, got %s", o.Name(), arg, spelling.OneOf(e.Known), e.Value),
	}
}

// whole requests the operator's whole module.
func (o *opVersion) whole(t target.Target) jit.Request {
	return jit.Request{Module: o.module.decl.Name, Target: t}
}
