package hostcall

import (
	"github.com/aiter-go/aiter/tensor"
)

// alignment is that of arguments in the memory of a piece, as allocators of GPU memory align.
const alignment = 256

// Pinned memory is copied without packing by up to directCopies copies for a piece. A device copies rows of fewer than directRow
// bytes at half of its speed or less.
const (
	directCopies = 16
	directRow    = 128
)

// part returns the elements of t that a piece has. along is an [Argument.Along].
func (p unitRange) part(t *tensor.Tensor, along []int, units []int64) (*tensor.Tensor, error) {
	for axis, dim := range along {
		if dim < 0 || p.to[axis]-p.from[axis] == units[axis] {
			continue
		}
		unit := t.Dim(dim) / max(units[axis], 1)
		var err error
		if t, err = t.Slice(dim, p.from[axis]*unit, p.to[axis]*unit); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Tensors of up to smallPinned bytes of a call in one piece are staged even if they are pinned: packing them takes less time than a
// copy of their own.
const smallPinned = 16 << 10

// slot is an argument of the call and its place in the memory of pieces.
type slot struct {
	Argument
	same     int  // the position of an equal argument before this one, else -1: they share the device's memory
	resident bool // all pieces read the whole, which is copied once
	direct   bool // copies use the host's memory itself

	bytes, at   int64 // of the largest piece, in the device's memory of a piece
	inAt, outAt int64 // in pinned memory
}

// sizes are the bytes of memory of a buffer, and of the arguments that are copied once.
type sizes struct{ device, in, out, resident, residentIn int64 }

// place gives the arguments of a call their places. On the device those that are only written come first, then those that are also read,
// then those that are only read. So the staged arguments of each direction are neighbours, as in pinned memory, and one copy moves them.
func (r *run) place() error {
	for i := range r.slots {
		if err := r.measure(&r.slots[i]); err != nil {
			return err
		}
	}
	for _, belongs := range []func(*slot) bool{
		func(s *slot) bool { return !s.direct && s.Written && !s.Read },
		func(s *slot) bool { return !s.direct && s.Written && s.Read },
		func(s *slot) bool { return !s.direct && !s.Written },
		func(s *slot) bool { return s.direct },
	} {
		for i := range r.slots {
			if s := &r.slots[i]; s.Tensor != nil && s.same < 0 && belongs(s) {
				r.put(s)
			}
		}
	}
	return nil
}

// measure computes the bytes of an argument in a piece, and whether it is staged.
func (r *run) measure(s *slot) error {
	if s.Tensor == nil || s.same >= 0 {
		return nil
	}
	first := s.Tensor
	if !s.resident {
		var err error
		if first, err = r.ranges[len(r.ranges)/2].part(s.Tensor, s.Along, r.call.Units); err != nil {
			return err
		}
	}
	s.bytes = s.Tensor.Numel() * s.Tensor.DType().Size()
	if !s.resident {
		s.bytes = r.largest(s)
	}
	l := layoutOf(first)
	small := len(r.ranges) == 1 && s.bytes <= smallPinned
	s.direct = !small && l.direct() && r.engine.pool.Pinned(s.Tensor.Storage())
	return nil
}

// put gives an argument its places behind the others.
func (r *run) put(s *slot) {
	device, in := &r.sizes.device, &r.sizes.in
	if s.resident {
		device, in = &r.sizes.resident, &r.sizes.residentIn
	}
	s.at = take(device, s.bytes)
	if s.Read && !s.direct {
		s.inAt = take(in, s.bytes)
	}
	if s.Written && !s.direct {
		s.outAt = take(&r.sizes.out, s.bytes)
	}
}

// direct reports whether devices copy the memory itself well, if it is pinned.
func (l *layout) direct() bool {
	return l.copies() <= directCopies && (l.run >= directRow || l.runs() <= directCopies)
}

// take returns an aligned place for n bytes behind the others.
func take(end *int64, n int64) int64 {
	at := (*end + alignment - 1) / alignment * alignment
	*end = at + n
	return at
}

// largest returns the bytes of an argument in the largest piece.
func (r *run) largest(s *slot) int64 {
	n := s.bytes
	for axis, dim := range s.Along {
		if units := r.call.Units[axis]; dim >= 0 && units > 0 {
			most := int64(0)
			for _, p := range r.ranges {
				most = max(most, p.to[axis]-p.from[axis])
			}
			n = n / units * most
		}
	}
	return n
}
