package hostcall

import (
	"cmp"
	"slices"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/tensor"
)

// layout describes how the elements of a tensor in host memory are packed for a device. Packed elements have the order of the
// tensor's strides, without gaps. Elements that share memory (stride 0) are repeated. The host's memory consists of runs of adjacent
// bytes.
type layout struct {
	strides []int64 // of the packed tensor, in elements
	dims    []dim   // dimensions of runs in the host's memory, outermost first; adjacent ones are joined
	first   int64   // offset in bytes of element 0 in the host's storage
	run     int64   // bytes of one run
	bytes   int64   // of all packed elements
}

// dim is a dimension of runs: size runs at distances of step bytes.
type dim struct{ size, step int64 }

// layoutOf returns the layout of a tensor. The packed strides have the order of the tensor's strides, so that a channel-last tensor
// stays channel-last.
func layoutOf(t *tensor.Tensor) layout {
	size := t.DType().Size()
	order := make([]int, t.Rank())
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(reach(t, b), reach(t, a)) })
	l := layout{strides: make([]int64, t.Rank()), first: t.ByteOffset(), run: size, bytes: t.Numel() * size}
	next := int64(1)
	for _, i := range slices.Backward(order) {
		l.strides[i] = next
		next *= max(t.Dim(i), 1)
	}
	for _, i := range order {
		if t.Dim(i) != 1 {
			l.dims = append(l.dims, dim{t.Dim(i), t.Stride(i) * size})
		}
	}
	l.join()
	return l
}

// reach returns a number by which dimensions are ordered, outermost first: the size of the stride. Dimensions of stride 0 are
// outermost.
func reach(t *tensor.Tensor, i int) int64 {
	s := max(t.Stride(i), -t.Stride(i))
	if s == 0 {
		return 1<<63 - 1
	}
	return s
}

// join joins adjacent dimensions with each other, and the innermost dimension with the run if its runs are adjacent.
func (l *layout) join() {
	for n := len(l.dims); n > 0 && l.dims[n-1].step == l.run; n = len(l.dims) {
		l.run *= l.dims[n-1].size
		l.dims = l.dims[:n-1]
	}
	for i := len(l.dims) - 1; i > 0; i-- {
		outer, inner := l.dims[i-1], l.dims[i]
		if outer.step == inner.size*inner.step {
			l.dims = slices.Replace(l.dims, i-1, i+1, dim{outer.size * inner.size, inner.step})
		}
	}
}

// runs returns the number of runs.
func (l *layout) runs() int64 {
	if l.bytes == 0 {
		return 0
	}
	return l.bytes / l.run
}

// rows returns the number of runs that one copy of rows (two-dimensional copy) moves, and their distance in bytes. They are those of
// the innermost dimension; the number is 1 if a device does not accept their distance.
func (l *layout) rows() (count, pitch int64) {
	if n := len(l.dims); n > 0 && l.dims[n-1].step >= l.run && l.dims[n-1].step <= device.MaxPitch {
		return l.dims[n-1].size, l.dims[n-1].step
	}
	return 1, l.run
}

// copies returns the number of copies of rows that move all elements.
func (l *layout) copies() int64 {
	count, _ := l.rows()
	return l.runs() / max(count, 1)
}

// at returns the offset in bytes of run i in the host's storage.
func (l *layout) at(i int64) int64 {
	at := l.first
	for _, d := range slices.Backward(l.dims) {
		at += i % d.size * d.step
		i /= d.size
	}
	return at
}

// move copies bytes [from, to) of the packed elements: from memory, the bytes of the host's storage, to packed if pack is true, else from
// packed to memory.
func (l *layout) move(packed, memory []byte, from, to int64, pack bool) {
	for from < to {
		run, within := from/l.run, from%l.run
		n := min(l.run-within, to-from)
		at := l.at(run) + within
		if pack {
			copy(packed[from:from+n], memory[at:at+n])
		} else {
			copy(memory[at:at+n], packed[from:from+n])
		}
		from += n
	}
}
