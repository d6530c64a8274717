package hostcall

import (
	"github.com/aiter-go/aiter/tensor"
)

// alignment is the alignment in bytes of each argument in the memory of a piece. Allocators of GPU memory have the same.
const alignment = 256

// A pinned argument is direct (copied without packing) if at most directCopies copies move its elements of a piece, and its rows are not
// too short: a device copies rows of fewer than directRow bytes at half of its speed or less.
const (
	directCopies = 16
	directRow    = 128
)

// slice returns the view of the elements of t that a piece has. along is an [Argument.Along].
func (p unitRange) slice(t *tensor.Tensor, along []int, units []int64) (*tensor.Tensor, error) {
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

// In a call of one piece, tensors of up to smallPinned bytes are staged even if they are pinned: packing such a tensor takes less time
// than a separate copy.
const smallPinned = 16 << 10

// slot is an argument of the call, with its offsets in the memory of pieces.
type slot struct {
	Argument
	same     int  // the position of an equal argument before this one, else -1; both share the device's memory
	resident bool // each piece reads the whole argument, which is uploaded once
	direct   bool // copies use the host's memory; the opposite is staged, through pinned memory

	bytes       int64 // of the argument in the largest piece
	at          int64 // offset in the device's memory of a piece, in bytes
	inAt, outAt int64 // offsets in the pinned memory for uploads and for downloads, in bytes
}

// sizes has the bytes of the memory of a buffer, and of the resident arguments.
type sizes struct{ device, in, out, resident, residentIn int64 }

// assignOffsets assigns the offsets of all arguments. On the device those that are only written come first, then those that are also
// read, then those that are only read. So the staged arguments of each direction are adjacent, as in pinned memory, and one copy moves
// them.
func (r *execution) assignOffsets() error {
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
				r.reserve(s)
			}
		}
	}
	return nil
}

// measure computes the bytes of an argument in a piece, and whether it is staged.
func (r *execution) measure(s *slot) error {
	if s.Tensor == nil || s.same >= 0 {
		return nil
	}
	first := s.Tensor
	if !s.resident {
		var err error
		if first, err = r.ranges[len(r.ranges)/2].slice(s.Tensor, s.Along, r.call.Units); err != nil {
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

// reserve assigns an argument its offsets, behind those of the arguments before it.
func (r *execution) reserve(s *slot) {
	device, in := &r.sizes.device, &r.sizes.in
	if s.resident {
		device, in = &r.sizes.resident, &r.sizes.residentIn
	}
	s.at = reserveBytes(device, s.bytes)
	if s.Read && !s.direct {
		s.inAt = reserveBytes(in, s.bytes)
	}
	if s.Written && !s.direct {
		s.outAt = reserveBytes(&r.sizes.out, s.bytes)
	}
}

// direct reports whether a device copies the elements efficiently without packing, if their memory is pinned.
func (l *layout) direct() bool {
	return l.copies() <= directCopies && (l.run >= directRow || l.runs() <= directCopies)
}

// reserveBytes returns the next aligned offset from *end on, and sets *end to the end of n bytes there.
func reserveBytes(end *int64, n int64) int64 {
	at := (*end + alignment - 1) / alignment * alignment
	*end = at + n
	return at
}

// largest returns the number of bytes of an argument in the largest piece.
func (r *execution) largest(s *slot) int64 {
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
