package optests

import "slices"

// statefulConv1d is a convolution of sequences that continue from the states in slots.
type statefulConv1d struct {
	conv1d                  // weight, bias, dim, width and silu of every sequence
	state         []float64 // (slots, dim, length), or nil
	slots, length int
	pad           int
}

// slotSequence is one sequence and its slot.
type slotSequence struct {
	x          []float64 // (dim, n)
	n          int
	slot       int
	ringStart  int  // index in the slot at which x[0] is stored, if circular
	circular   bool // the slot is a ring buffer
	readsState bool // the slot holds the positions before x
}

func newStatefulConv1d(in inputs, state string) *statefulConv1d {
	p := conv(in.Case)
	return &statefulConv1d{
		conv1d: *newConv1d(in), state: slices.Clone(in.values[state]),
		slots: int(p.slots()), length: int(p.stateLen()), pad: int(p.padSlot()),
	}
}

// slotOf returns the slot of sequence b and reports whether it exists; padding has none.
func (s *statefulConv1d) slotOf(b int, indices []float64) (int, bool) {
	slot := b
	if indices != nil {
		if slot = int(indices[b]); slot == s.pad {
			return slot, false
		}
	}
	return slot, s.state == nil || slot >= 0 && slot < s.slots
}

// run computes a sequence's out, (dim, n), and updates its slot.
func (s *statefulConv1d) run(v slotSequence) []float64 {
	c := s.conv1d
	c.batch, c.seqlen, c.x, c.initial = 1, v.n, v.x, nil
	if v.readsState {
		c.initial = s.history(v)
	}
	out := c.out()
	if s.state != nil {
		for d := range s.dim {
			s.storeState(v, s.slotValues(v.slot, d), v.x[d*v.n:(d+1)*v.n])
		}
	}
	return out
}

// slotValues returns the values of a channel in a slot.
func (s *statefulConv1d) slotValues(slot, d int) []float64 {
	at := (slot*s.dim + d) * s.length
	return s.state[at : at+s.length]
}

// history returns the width-1 values before x, (dim, width-1).
func (s *statefulConv1d) history(v slotSequence) []float64 {
	n := s.width - 1
	h := make([]float64, s.dim*n)
	for i := range h {
		h[i] = s.slotValues(v.slot, i/n)[modulo(v.ringStart-n+i%n, s.length)]
	}
	return h
}

// storeState stores the last values of (cells, x) in cells.
func (s *statefulConv1d) storeState(v slotSequence, cells, x []float64) {
	if v.circular {
		for i := range x {
			if len(cells) > 0 {
				cells[modulo(v.ringStart+i, len(cells))] = x[i]
			}
		}
		return
	}
	if !v.readsState {
		clear(cells)
	}
	all := slices.Concat(cells, x)
	copy(cells, all[len(all)-len(cells):])
}

// modulo returns a mod n, never negative; 0 for n = 0.
func modulo(a, n int) int {
	if n == 0 {
		return 0
	}
	return (a%n + n) % n
}

// packed describes sequences packed into one row of tokens.
type packed struct {
	starts []float64 // (batch+1)
	tokens int
}

// bounds returns sequence b's first position and the position after its last; ok
// reports whether the sequence is within the tokens.
func (p packed) bounds(b int) (from, to int, ok bool) {
	from, to = int(p.starts[b]), int(p.starts[b+1])
	return from, to, from >= 0 && from <= to && to <= p.tokens
}

// copyColumns returns a copy of v[:, from:to], where v has rows of n values; setColumns writes such values to v.
func copyColumns(v []float64, n, from, to int) []float64 {
	var out []float64
	for at := 0; n > 0 && at < len(v); at += n {
		out = append(out, v[at+from:at+to]...)
	}
	return out
}

func setColumns(v []float64, n, from, to int, values []float64) {
	for row := 0; row*n < len(v) && to > from; row++ {
		copy(v[row*n+from:row*n+to], values[row*(to-from):])
	}
}
