package optests

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/aiter-go/aiter/tensor"
)

// State holds the options of the operators that keep sequences' states in slots.
// The zero value of a field is its default.
type State struct {
	// Len is the number of positions in a slot; default Width-1.
	Len int64
	// Slots is the number of slots; default one for each sequence, with Indexed
	// three more.
	Slots int64
	// Indexed passes the slots' indices: some are padding, some are out of range,
	// some are those of another sequence.
	Indexed bool
	// Pad is pad_slot_id + 1; the default is therefore -1, and 1 stands for slot 0.
	Pad int64
	// Circular passes cache_seqlens.
	Circular bool
	// Flat passes x as (batch, dim); Seqlen is 1.
	Flat bool
	// Tokens is the number of positions that the packed sequences share; default
	// Batch*Seqlen, or Seqlen without any sequence.
	Tokens int64
	// Serve holds the options of the operators for serving.
	Serve Serving
}

// words returns the parts of a case's name.
func (s State) words() []string {
	var words []string
	for _, f := range []struct {
		name  string
		value int64
	}{{"s", s.Len}, {"slots", s.Slots}, {"t", s.Tokens}, {"pad", s.Pad}} {
		if f.value != 0 {
			words = append(words, fmt.Sprintf("%s%d", f.name, f.value))
		}
	}
	words = append(words, setWords(flagWord{s.Indexed, "indexed"}, flagWord{s.Circular, "circular"}, flagWord{s.Flat, "flat"})...)
	return append(words, s.Serve.words()...)
}

func (c Conv1d) stateLen() int64 {
	if c.State.Len == 0 {
		return c.Width - 1
	}
	return c.State.Len
}

func (c Conv1d) slots() int64 {
	switch {
	case c.State.Slots != 0:
		return c.State.Slots
	case c.State.Indexed:
		return c.Batch*max(c.State.Serve.Blocks, 1) + 3
	}
	return c.Batch
}

func (c Conv1d) tokens() int64 {
	if c.State.Tokens == 0 {
		return max(c.Batch, 1) * c.Seqlen
	}
	return c.State.Tokens
}

// setTokens sets the number of tokens and the mean length of a sequence.
func (c *Conv1d) setTokens(n int64) { c.State.Tokens, c.Seqlen = n, n/max(c.Batch, 1) }

func (c Conv1d) padSlot() int64 { return c.State.Pad - 1 }

// drawState draws the State of a case that has none. With long a slot has 1 to 4 positions more than
// the filter needs. With indexed the call passes slot indices.
func (c *Conv1d) drawState(seed uint64, long, indexed bool) {
	if c.State != (State{}) {
		return
	}
	if long {
		c.State.Len = c.Width + int64(seed%4)
	}
	c.State.Indexed = indexed
	if indexed && seed%4 == 3 {
		c.State.Pad = 1
	}
}

func shapeSlots(c Case) []int64     { p := conv(c); return []int64{p.slots(), p.Dim, p.stateLen()} }
func shapeSequences(c Case) []int64 { return []int64{conv(c).Batch} }
func shapeStarts(c Case) []int64    { return []int64{conv(c).Batch + 1} }
func typeBool(Case) tensor.DType    { return tensor.Bool }
func passesIndices(c Case) bool     { return conv(c).State.Indexed }
func padSlotOption(c Case) any      { return conv(c).padSlot() }
func siluOption(c Case) any         { return conv(c).SiLU }

// randomSlotIndices gives most sequences a slot of their own. The other indices are
// padding, out of range, or those of an earlier sequence.
func randomSlotIndices(c Case, r *rand.Rand, values []float64) {
	p := conv(c)
	for i, slot := range r.Perm(int(max(p.slots(), p.Batch)))[:len(values)] {
		values[i] = float64(slot)
		switch r.IntN(12) {
		case 0, 1:
			values[i] = float64(p.padSlot())
		case 2:
			values[i] = float64(p.slots() + r.Int64N(1<<20))
		case 3:
			values[i] = float64(-2 - r.Int64N(1<<20))
		case 4, 5:
			values[i] = values[r.IntN(i+1)]
		}
	}
}

// randomRingPositions are numbers of positions that each sequence has processed, from 0.
func randomRingPositions(c Case, r *rand.Rand, values []float64) {
	for i := range values {
		values[i] = float64(r.Int64N([]int64{1, 4*conv(c).stateLen() + 1, 1 << 31}[r.IntN(3)]))
	}
}

// randomBools are 1 with a probability of 3/4, else 0.
func randomBools(_ Case, r *rand.Rand, values []float64) {
	for i := range values {
		values[i] = float64(min(r.IntN(4), 1))
	}
}

// randomStarts divides the tokens into sequences, some of them short or empty.
// Tokens may precede the first and follow the last. In one case in 16 the last
// sequence extends beyond the tokens, and in one in 16 it ends before the first token.
func randomStarts(c Case, r *rand.Rand, values []float64) {
	tokens := conv(c).tokens()
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

// evenStarts divides the tokens into sequences of equal length.
func evenStarts(c Case, values []float64) {
	p := conv(c)
	for i := range values {
		values[i] = float64(int64(i) * p.tokens() / max(p.Batch, 1))
	}
}

// stateElements returns the number of elements of one slot for each sequence.
func stateElements(c Case) int64 { p := conv(c); return p.Batch * p.Dim * p.stateLen() }

// varlenStateElements returns the number of elements that are copied to states.
func varlenStateElements(c Case) int64 { p := conv(c); return min(p.tokens()*p.Dim, stateElements(c)) }
