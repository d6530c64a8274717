package registry

import (
	"slices"

	"github.com/aiter-go/aiter/internal/hostcall"
	"github.com/aiter-go/aiter/tensor"
)

// restAxis is the name of the axis of leading dimensions.
const restAxis = "..."

// hostCall describes a call on host memory: the arguments that it reads and writes, and, if splits is true, the axes along which it
// may be split.
func (o *opVersion) hostCall(args []any, splits bool) hostcall.Call {
	tensors := tensorsOf(args)
	call := hostcall.Call{Args: make([]hostcall.Argument, len(tensors))}
	for i, t := range tensors {
		written := o.isWritten(i)
		output := o.decl.Args[o.decl.Schema.Args[i].Name].Output
		call.Args[i] = hostcall.Argument{Tensor: t, Written: written && t != nil, Read: !output && t != nil}
	}
	if !splits {
		return call
	}
	var s sizes
	if o.checks != nil {
		s = o.checks.sizes(args, new([]int64))
	}
	for _, axis := range o.decl.Split {
		units, along, ok := o.splitAlong(axis, tensors, &s)
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

// splitAlong returns the number of units into which an axis may be split, and for each tensor its dimension along the axis, -1 for
// none. axis has the names of sizes that stand for the axis. ok is false if a call with these tensors cannot be split along the axis: a
// written tensor lacks it, or the declared shape of a tensor is not known, or has the size in a sum such as B+1.
func (o *opVersion) splitAlong(axis []string, tensors []*tensor.Tensor, s *sizes) (units int64, along []int, ok bool) {
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

// shapeOf returns the declared shape of argument i that the tensor has. It returns false if none is declared.
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

// dimension returns the dimension of a shape along an axis, -1 for none. known is false if the shape has several such dimensions, or
// has the axis in a sum.
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
