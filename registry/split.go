package registry

import (
	"slices"

	"github.com/aiter-go/aiter/internal/hostcall"
	"github.com/aiter-go/aiter/tensor"
)

// restAxis is the name of the axis of leading dimensions.
const restAxis = "..."

// hostCall describes a call on host memory: the arguments that are read and written, and the axes along which it may be cut, if it may.
func (o *opVersion) hostCall(args []any, cuts bool) hostcall.Call {
	tensors := tensorsOf(args)
	call := hostcall.Call{Args: make([]hostcall.Argument, len(tensors))}
	for i, t := range tensors {
		written := o.isWritten(i)
		output := o.decl.Args[o.decl.Schema.Args[i].Name].Output
		call.Args[i] = hostcall.Argument{Tensor: t, Written: written && t != nil, Read: !output && t != nil}
	}
	if !cuts {
		return call
	}
	var s sizes
	if o.checks != nil {
		s = o.checks.sizes(args)
	}
	for _, axis := range o.decl.Split {
		units, along, ok := o.cut(axis, tensors, &s)
		if !ok {
			continue
		}
		call.Units = append(call.Units, units)
		for i := range call.Args {
			call.Args[i].Along = append(call.Args[i].Along, along[i])
		}
	}
	return call
}

// cut returns the number of units of an axis, and the dimension of each tensor along it, -1 for none. ok is false if a call with
// these tensors cannot be cut along the axis: a written tensor lacks it, or a shape is not known or has it in a sum such as B+1.
func (o *opVersion) cut(axis []string, tensors []*tensor.Tensor, s *sizes) (units int64, along []int, ok bool) {
	along = make([]int, len(tensors))
	for i, t := range tensors {
		along[i] = -1
		if t == nil {
			continue
		}
		shape, known := o.shapeOf(i, t, s)
		if !known {
			return 0, nil, false
		}
		if along[i], known = o.checks.dimension(shape, axis, t); !known || along[i] < 0 && o.isWritten(i) {
			return 0, nil, false
		}
		if along[i] >= 0 {
			units = commonDivisor(units, t.Dim(along[i]))
		}
	}
	return units, along, units > 0
}

// shapeOf returns the declared shape that a tensor has.
func (o *opVersion) shapeOf(i int, t *tensor.Tensor, s *sizes) ([]dimCheck, bool) {
	if o.checks == nil {
		return nil, false
	}
	for _, a := range o.checks.args {
		if a.position != i {
			continue
		}
		for _, shape := range a.shapes {
			if s.allows(shape, t) {
				return shape, true
			}
		}
	}
	return nil, false
}

// dimension returns the dimension of a shape along an axis, -1 for none. known is false if it has several, or one in a sum.
func (c *argChecks) dimension(shape []dimCheck, axis []string, t *tensor.Tensor) (dim int, known bool) {
	dims, lead, _ := fits(shape, t)
	dim, known = -1, true
	add := func(d int) { known, dim = known && dim < 0, d }
	if len(shape) > len(dims) && lead > 0 && slices.Contains(axis, restAxis) {
		add(0)
	}
	for i, d := range dims {
		if d.name < 0 || !slices.Contains(axis, c.names[d.name]) {
			continue
		}
		add(lead + i)
		known = known && d.offset == 0
	}
	return dim, known
}

// commonDivisor returns the greatest common divisor; 0 is a multiple of all numbers.
func commonDivisor(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
