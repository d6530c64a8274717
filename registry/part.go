package registry

import (
	"errors"
	"fmt"
	"slices"

	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/spelling"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/tensor"
)

// partKey holds the element type of a call, or the index of its range or layout, for each axis that the
// operator depends on, in the order of opVersion.axes.
type partKey [opconfig.MaxAxes]uint32

// keyAxis is an axis of the module that the operator depends on.
type keyAxis struct {
	name      string
	arg       int             // position of the argument
	dimension int             // dimension of the argument; its size is in one of the ranges
	ranges    opconfig.Ranges // empty for an axis by element type or layout
	adjacent  []int           // dimensions of the argument, one for each layout; empty for other axes
}

// keyAxes returns the axes of the module that the operator depends on.
func keyAxes(mod *opconfig.Module, decl *opconfig.Op) []keyAxis {
	var list []keyAxis
	for _, a := range mod.Axes {
		for i, arg := range decl.Schema.Args {
			if arg.Name == a.Argument {
				list = append(list, keyAxis{a.Name, i, a.Dimension, a.Ranges, a.Adjacent})
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
	case len(a.adjacent) > 0:
		return a.layout(t)
	case len(a.ranges) == 0:
		return uint32(t.DType())
	case a.dimension >= t.Rank():
		return 0
	}
	return uint32(a.ranges.Of(t.Dim(a.dimension)))
}

// layout returns the index of the layout of a tensor: that of the dimension whose elements are nearest in memory. A
// dimension of size 1 is not compared, because its stride is arbitrary. In tensors without elements the first dimension of the axis
// is compared too, so that all tensors agree with C++: for [2, 1] the second layout has
// size(1) > 1 && (size(2) == 1 || abs(stride(1)) < abs(stride(2))).
func (a *keyAxis) layout(t *tensor.Tensor) uint32 {
	if slices.Max(a.adjacent) >= t.Rank() {
		return 0 // the code of the first layout refuses the tensor
	}
	nearest := 0
	for i, d := range a.adjacent {
		best := a.adjacent[nearest]
		if t.Dim(d) > 1 && (t.Dim(best) == 1 || distance(t.Stride(d)) < distance(t.Stride(best))) {
			nearest = i
		}
	}
	return uint32(nearest)
}

// distance returns the absolute value of a stride.
func distance(stride int64) int64 { return max(stride, -stride) }

// value returns the value of an axis in the key; i is the position of the axis in
// opVersion.axes.
func (k partKey) value(i int, a opconfig.Axis) string {
	if a.ByType() {
		return tensor.DType(k[i]).String()
	}
	return a.Values[k[i]]
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
// error for sizes and layouts, because each of them selects a value.
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
