package tensor

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

const (
	// shortNumel is the largest number of elements that %v prints completely.
	shortNumel = 64
	// edge is the number of elements, rows and so on that %v prints at each end of a dimension of a larger tensor.
	edge = 3
)

// Format implements [fmt.Formatter]. %v prints the description and, for host tensors, the elements: "float32[2 2] on cpu
// [[1 2] [3 4]]". Of a tensor with more than 64 elements it prints the first and the last three of each dimension, and no more
// than about 64 elements. Other verbs, such as %s, print only the description.
func (t *Tensor) Format(f fmt.State, verb rune) {
	text := t.String()
	if verb == 'v' {
		if mem, err := t.storage.Bytes(); err == nil && t.readable() {
			text += " " + t.contents(mem)
		}
	}
	_, _ = io.WriteString(f, text) // fmt reports errors of its writer
}

// contents returns the elements in brackets.
func (t *Tensor) contents(mem []byte) string {
	p := printer{t: t, mem: mem, left: shortNumel}
	p.dimension(0, t.offset)
	return p.out.String()
}

// printer prints elements, up to a budget.
type printer struct {
	t    *Tensor
	mem  []byte
	left int // number of elements that it may still print
	out  strings.Builder
}

// dimension prints the elements of the dimensions from dim on. at is the position of the first element in the storage.
func (p *printer) dimension(dim int, at int64) {
	if dim == len(p.t.shape) {
		p.left--
		p.out.WriteString(p.t.element(p.mem, at))
		return
	}
	n := p.t.shape[dim]
	p.out.WriteByte('[')
	for i := int64(0); i < n; i++ {
		if i > 0 {
			p.out.WriteByte(' ')
		}
		if p.left <= 0 {
			p.out.WriteString("...")
			break
		}
		if i == edge && n > 2*edge && p.t.numel > shortNumel {
			p.out.WriteString("... ")
			i = n - edge
		}
		p.dimension(dim+1, at+i*p.t.strides[dim])
	}
	p.out.WriteByte(']')
}

// element formats the element at a position in the storage. The type is one of DTypes or Float8DTypes.
func (t *Tensor) element(mem []byte, at int64) string {
	switch t.DType() {
	case Float16:
		return elements[F16](mem)[at].String()
	case BFloat16:
		return elements[BF16](mem)[at].String()
	case Float32:
		return strconv.FormatFloat(float64(elements[float32](mem)[at]), 'g', -1, 32)
	case Float64:
		return strconv.FormatFloat(elements[float64](mem)[at], 'g', -1, 64)
	case Bool:
		return strconv.FormatBool(mem[at] != 0)
	case UInt64:
		return strconv.FormatUint(elements[uint64](mem)[at], 10)
	case Int64:
		return strconv.FormatInt(elements[int64](mem)[at], 10)
	}
	// float64 represents the other integers exactly.
	one := build(t.storage, t.DType(), nil, nil, at)
	value := make([]float64, 1)
	one.read(mem, value)
	return strconv.FormatFloat(value[0], 'f', -1, 64)
}
