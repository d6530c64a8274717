package optests

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/aiter-go/aiter/tensor"
)

// State is the part of a case that concerns sequences with a state in a slot.
// The zero value is the usual choice.
type State struct {
	// Len is how many positions a slot keeps; zero means Width-1.
	Len int64
	// Slots is how many there are; zero means one for each sequence, or a few more
	// with Indexed.
	Slots int64
	// Indexed passes the slots' indices: some are padding, some name no slot, some
	// name another sequence's.
	Indexed bool
	// Pad is pad_slot_id counted from -1, its usual value: 1 is slot 0.
	Pad int64
	// Circular passes cache_seqlens.
	Circular bool
	// Flat passes x as (batch, dim), where Seqlen is 1.
	Flat bool
	// Tokens is the number of positions that packed sequences lie in; zero means
	// Batch*Seqlen, or Seqlen without any sequence.
	Tokens int64
}

func (s State) write(b *strings.Builder) {
	for _, f := range []struct {
		name  string
		value int64
	}{{"s", s.Len}, {"slots", s.Slots}, {"t", s.Tokens}, {"pad", s.Pad}} {
		if f.value != 0 {
			fmt.Fprintf(b, "_%s%d", f.name, f.value)
		}
	}
	for _, f := range []struct {
		on   bool
		word string
	}{{s.Indexed, "indexed"}, {s.Circular, "circular"}, {s.Flat, "flat"}} {
		if f.on {
			fmt.Fprintf(b, "_%s", f.word)
		}
	}
}

// checkState refuses a state too short for the filter.
func (c Case) checkState() error {
	for _, f := range []struct {
		name       string
		value, min int64
	}{{"slots", c.State.Slots, 0}, {"tokens", c.State.Tokens, 0}, {"state length", c.stateLen(), c.Width - 1}} {
		if f.value < f.min {
			return &CaseError{Field: f.name, Got: fmt.Sprint(f.value), Expected: fmt.Sprintf("at least %d", f.min)}
		}
	}
	return nil
}

func (c Case) stateLen() int64 {
	if c.State.Len == 0 {
		return c.Width - 1
	}
	return c.State.Len
}

func (c Case) slots() int64 {
	switch {
	case c.State.Slots != 0:
		return c.State.Slots
	case c.State.Indexed:
		return c.Batch + 3
	}
	return c.Batch
}

func (c Case) tokens() int64 {
	if c.State.Tokens == 0 {
		return max(c.Batch, 1) * c.Seqlen
	}
	return c.State.Tokens
}

// setTokens packs the sequences into n tokens.
func (c *Case) setTokens(n int64) { c.State.Tokens, c.Seqlen = n, n/max(c.Batch, 1) }

func (c Case) padSlot() int64 { return c.State.Pad - 1 }

// drawState gives a case without a State of its own one that its seed decides:
// a state longer than the filter needs where long, slots by index where indexed.
func (c Case) drawState(long, indexed bool) Case {
	if c.State != (State{}) {
		return c
	}
	if long {
		c.State.Len = c.Width + int64(c.Seed%4)
	}
	c.State.Indexed = indexed
	if indexed && c.Seed%4 == 3 {
		c.State.Pad = 1
	}
	return c
}

func shapeSlots(c Case) []int64     { return []int64{c.slots(), c.Dim, c.stateLen()} }
func shapeSequences(c Case) []int64 { return []int64{c.Batch} }
func shapeStarts(c Case) []int64    { return []int64{c.Batch + 1} }
func typeBool(Case) tensor.DType    { return tensor.Bool }
func passesIndices(c Case) bool     { return c.State.Indexed }
func padSlotOption(c Case) any      { return c.padSlot() }
func siluOption(c Case) any         { return c.SiLU }

// randomSlotIndices names a slot of its own for most sequences. The others are padding,
// have a number that is no slot's, or share one with a sequence before.
func randomSlotIndices(c Case, r *rand.Rand, values []float64) {
	for i, slot := range r.Perm(int(max(c.slots(), c.Batch)))[:len(values)] {
		values[i] = float64(slot)
		switch r.IntN(12) {
		case 0, 1:
			values[i] = float64(c.padSlot())
		case 2:
			values[i] = float64(c.slots() + r.Int64N(1<<20))
		case 3:
			values[i] = float64(-2 - r.Int64N(1<<20))
		case 4, 5:
			values[i] = values[r.IntN(i+1)]
		}
	}
}

// randomRingPositions counts what each sequence has seen: anything from nothing on.
func randomRingPositions(c Case, r *rand.Rand, values []float64) {
	for i := range values {
		values[i] = float64(r.Int64N([]int64{1, 4*c.stateLen() + 1, 1 << 31}[r.IntN(3)]))
	}
}

func randomBools(_ Case, r *rand.Rand, values []float64) {
	for i := range values {
		values[i] = float64(min(r.IntN(4), 1))
	}
}

// randomStarts cuts the tokens into sequences, some of them short or empty.
// There may be tokens before the first and behind the last; one case in eight
// ends with a sequence that does not lie within the tokens.
func randomStarts(c Case, r *rand.Rand, values []float64) {
	tokens := c.tokens()
	for i := range values {
		values[i] = float64(r.Int64N(tokens + 1))
	}
	slices.Sort(values)
	last := len(values) - 1
	if r.IntN(2) == 0 {
		values[0], values[last] = 0, float64(tokens)
	}
	switch r.IntN(16) {
	case 0:
		values[last] = float64(tokens + 1 + r.Int64N(1<<20))
	case 1:
		values[last] = float64(-r.Int64N(1 << 20))
	}
}
