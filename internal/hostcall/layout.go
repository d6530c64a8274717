package hostcall

import (
	"cmp"
	"slices"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/tensor"
)

// layout is a tensor's elements in the order of its strides, without gaps and repetitions: the order in which a device has them.
type layout struct {
	strides []int64 // of the device's tensor, in elements
	dims    []dim   // of the host's memory, outermost first, joined where they are adjacent
	first   int64   // byte of the storage at which element 0 begins
	run     int64   // bytes of the innermost dimension that are adjacent
	bytes   int64
}

// dim is a dimension of runs: size steps of step bytes.
type dim struct{ size, step int64 }

// layoutOf describes a tensor. The strides on the device have the order of the host's, so that a channel-last tensor stays one.
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

// reach orders dimensions: those with larger strides are outer. Repeated elements are outermost, because they are far apart on
// the device.
func reach(t *tensor.Tensor, i int) int64 {
	s := max(t.Stride(i), -t.Stride(i))
	if s == 0 {
		return 1<<63 - 1
	}
	return s
}

// join joins dimensions whose elements are adjacent, and the innermost with the run.
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

// rows returns the number of runs that one copy of rows moves, and their distance: those of the innermost dimension. It is one if a
// device does not accept the distance.
func (l *layout) rows() (count, pitch int64) {
	if n := len(l.dims); n > 0 && l.dims[n-1].step >= l.run && l.dims[n-1].step <= device.MaxPitch {
		return l.dims[n-1].size, l.dims[n-1].step
	}
	return 1, l.run
}

// copies returns the number of copies of rows.
func (l *layout) copies() int64 {
	count, _ := l.rows()
	return l.runs() / max(count, 1)
}

// at returns the byte of the storage at which run i begins.
func (l *layout) at(i int64) int64 {
	at := l.first
	for _, d := range slices.Backward(l.dims) {
		at += i % d.size * d.step
		i /= d.size
	}
	return at
}

// move copies bytes [from, to) of the packed elements between them and the storage's bytes.
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
