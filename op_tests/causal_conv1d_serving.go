package optests

import (
	"math/rand/v2"

	"github.com/aiter-go/aiter/tensor"
)

// Serving holds the options of the operators for serving. The zero value of a field is its default.
type Serving struct {
	// Packed passes query_start_loc: sequences of up to Seqlen tokens are packed.
	Packed bool
	// Accepted passes num_accepted_tokens.
	Accepted bool
	// Tree passes retrieve_parent_token.
	Tree bool
	// Window passes intermediate_conv_window, WindowRows its rows' indices too.
	Window, WindowRows bool
	// Residual passes a residual.
	Residual bool
	// Trailing clears leading_state.
	Trailing bool
	// Wide makes indices int64.
	Wide bool
	// Blocks is the number of slots of a sequence; 0 for one without columns.
	Blocks int64
	// Align is block_size_to_align; 0 passes neither it nor the columns of the first blocks.
	Align int64
	// StoresEmpty clears skip_empty.
	StoresEmpty bool
	// Key is the number of channels of each of q and k.
	Key int64
	// Type is the element type of states; default that of x.
	Type tensor.DType
}

func (s Serving) words() []string {
	words := setWords(flagWord{s.Packed, "packed"}, flagWord{s.Accepted, "accepted"}, flagWord{s.Tree, "tree"}, flagWord{s.Window, "window"},
		flagWord{s.WindowRows, "rows"}, flagWord{s.Residual, "residual"}, flagWord{s.Trailing, "trailing"}, flagWord{s.Wide, "wide"},
		flagWord{s.Blocks > 0, "blocks"}, flagWord{s.Align > 0, "align"}, flagWord{s.StoresEmpty, "empty"}, flagWord{s.Key > 0, "key"})
	if s.Type != 0 {
		words = append(words, "state-"+s.Type.String())
	}
	return words
}

// longestServed is the number of tokens of a sequence of the grid's longer cases.
const longestServed = 24

// drawServing makes a State if there is none. full allows everything but q, k and v.
func (c *Conv1d) drawServing(seed uint64, full bool) {
	if c.State != (State{}) {
		return
	}
	r := random(seed, "serving")
	options := 0 // of three: none of them passes no optional argument, all of them every one
	for _, given := range []bool{c.WithInitial, c.WithFinal, c.WithSeqIdx} {
		if given {
			options++
		}
	}
	coin := func() bool { return options == 3 || options > 0 && r.IntN(2) == 0 }
	c.Seqlen = min(c.Seqlen, longestServed)
	s := Serving{Trailing: coin(), Wide: coin()}
	if r.IntN(3) == 0 {
		s.Type = []tensor.DType{tensor.Float32, tensor.Float16, tensor.BFloat16}[r.IntN(3)]
	}
	c.State = State{Indexed: coin(), Flat: c.Seqlen == 1 && coin(), Len: max(c.Width-1+r.Int64N(3), 1)}
	if full {
		s.Packed, s.Accepted, s.Tree, s.Window, s.WindowRows, s.Residual = coin(), coin(), coin(), coin(), coin(), coin()
		if s.Packed {
			c.State.Flat = false
		}
		if c.State.Indexed && coin() {
			s.Blocks, s.WindowRows = 2+r.Int64N(3), true // sequences that share a slot have windows of their own
		}
		if s.Accepted {
			c.State.Len = max(c.Width-1, c.Width-2+c.Seqlen) + r.Int64N(3)
		}
		if s.Packed {
			c.State.Tokens = c.Batch*c.Seqlen + r.Int64N(3)
		}
	} else {
		s.Key = c.Dim / 4
	}
	if c.State.Indexed && seed%4 == 3 {
		c.State.Pad = 1
	}
	c.State.Serve = s
}

func serving(c Case) Serving { return conv(c).State.Serve }

func typeState(c Case) tensor.DType {
	if t := serving(c).Type; t != 0 {
		return t
	}
	return c.DType
}

func typeIndex(c Case) tensor.DType {
	if serving(c).Wide {
		return tensor.Int64
	}
	return tensor.Int32
}

// shapeServed is (batch, dim), (batch, dim, seqlen) or (tokens, dim).
func shapeServed(c Case) []int64 {
	switch p := conv(c); {
	case p.State.Serve.Packed:
		return []int64{p.tokens(), p.Dim}
	case p.State.Flat:
		return []int64{p.Batch, p.Dim}
	}
	return shapeX(c)
}

// servedTensor is [activation] for such a tensor, whose layout matters only with three dimensions.
func servedTensor(a argument) argument {
	a = activation(a)
	order := a.order
	a.order = func(c Case, rank int) []int {
		if rank == 2 {
			return rowMajor(rank)
		}
		return order(c, rank)
	}
	return a
}

// randomServedStarts packs sequences of up to Seqlen tokens. Some are longer; the last one may extend beyond the tokens.
func randomServedStarts(c Case, r *rand.Rand, values []float64) {
	p, at := conv(c), int64(0)
	for i := range values {
		values[i] = float64(at)
		at = min(at+r.Int64N(p.Seqlen+2), p.tokens())
	}
	if r.IntN(8) == 0 && p.Batch > 0 {
		values[len(values)-1] = float64(p.tokens() + 1 + r.Int64N(1<<20))
	}
}

// randomTable gives each sequence slots of its own, except that neighbours share the first of several blocks, which no sequence
// writes. Some slots are padding or out of range.
func randomTable(c Case, r *rand.Rand, values []float64) {
	p := conv(c)
	blocks := int(p.State.Serve.Blocks)
	for i, slot := range r.Perm(int(max(p.slots(), int64(len(values)))))[:len(values)] {
		values[i] = float64(slot)
		switch r.IntN(12) {
		case 0:
			values[i] = float64(p.padSlot())
		case 1:
			values[i] = float64(p.slots() + r.Int64N(1<<20))
		case 2:
			values[i] = float64(-2 - r.Int64N(1<<20))
		}
		if blocks > 1 && i%(2*blocks) == blocks {
			values[i] = values[i-blocks]
		}
	}
}

// randomColumns are columns of the table to read; randomLaterColumns leaves the first one out. Some do not exist.
func randomColumns(c Case, r *rand.Rand, values []float64) {
	for i := range values {
		values[i] = float64(r.Int64N(serving(c).Blocks))
		switch r.IntN(12) {
		case 0:
			values[i] = -1
		case 1:
			values[i] = float64(serving(c).Blocks + r.Int64N(1<<20))
		}
	}
}

func randomLaterColumns(c Case, r *rand.Rand, values []float64) {
	for i := range values {
		values[i] = float64(1 + r.Int64N(serving(c).Blocks))
		if r.IntN(8) == 0 {
			values[i] = -1
		}
	}
}

// randomAccepted are numbers of tokens from 1 on, some of them 0 or more than the slot holds.
func randomAccepted(c Case, r *rand.Rand, values []float64) {
	p := conv(c)
	for i := range values {
		values[i] = float64(1 + r.Int64N(max(p.stateLen()-(p.Width-2), 1)))
		switch r.IntN(10) {
		case 0:
			values[i] = 0
		case 1:
			values[i] = float64(p.stateLen() - (p.Width - 2) + 1 + r.Int64N(100))
		}
	}
}

// randomParents are earlier tokens, or none.
func randomParents(c Case, r *rand.Rand, values []float64) {
	n := int(shapeParents(c)[1])
	for i := range values {
		values[i] = float64(r.IntN(i%n+2) - 1)
		if r.IntN(8) == 0 {
			values[i] = float64(r.Int64N(1<<20) - 1<<19)
		}
	}
}

// randomWindowRows gives each sequence a row of its own, or none.
func randomWindowRows(c Case, r *rand.Rand, values []float64) {
	for i, row := range r.Perm(len(values)) {
		values[i] = float64(row)
		if r.IntN(6) == 0 {
			values[i] = float64(conv(c).Batch + r.Int64N(100))
		}
	}
}

func shapeTable(c Case) []int64 {
	if n := serving(c).Blocks; n > 0 {
		return []int64{conv(c).Batch, n}
	}
	return shapeSequences(c)
}

func shapeParents(c Case) []int64 { p := conv(c); return []int64{p.Batch, p.Seqlen} }

// shapeWindow has a step less than a sequence may have tokens.
func shapeWindow(c Case) []int64 {
	p := conv(c)
	rows := p.slots()
	if p.State.Serve.WindowRows {
		rows = p.Batch
	}
	return []int64{rows, max(p.Seqlen-1, 1), p.Dim, p.Width - 1}
}

func passesStarts(c Case) bool     { return serving(c).Packed }
func passesAccepted(c Case) bool   { return serving(c).Accepted }
func passesColumns(c Case) bool    { return serving(c).Blocks > 0 }
func passesParents(c Case) bool    { return serving(c).Tree }
func passesResidual(c Case) bool   { return serving(c).Residual }
func passesWindow(c Case) bool     { return serving(c).Window }
func passesWindowRows(c Case) bool { return serving(c).Window && serving(c).WindowRows }
func leadingOption(c Case) any     { return !serving(c).Trailing }
func clearOption(Case) any         { return true }
func longestOption(c Case) any {
	if serving(c).Packed {
		return conv(c).Seqlen
	}
	return int64(-1)
}
