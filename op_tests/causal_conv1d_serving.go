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
	// Window passes intermediate_conv_window; with WindowRows it passes intermediate_state_indices too.
	Window, WindowRows bool
	// Residual passes a residual.
	Residual bool
	// Trailing clears leading_state.
	Trailing bool
	// Wide makes indices int64.
	Wide bool
	// Blocks is the number of state blocks of a sequence, each with its slot; 0 passes one slot for each sequence.
	Blocks int64
	// Align is block_size_to_align; 0 leaves out block_idx_first_scheduled_token and num_computed_tokens too.
	Align int64
	// StoresEmpty clears skip_empty.
	StoresEmpty bool
	// KeyDim is the number of channels of q, and of k.
	KeyDim int64
	// Type is the element type of states; default that of x.
	Type tensor.DType
}

func (s Serving) words() []string {
	words := setWords(flagWord{s.Packed, "packed"}, flagWord{s.Accepted, "accepted"}, flagWord{s.Tree, "tree"}, flagWord{s.Window, "window"},
		flagWord{s.WindowRows, "rows"}, flagWord{s.Residual, "residual"}, flagWord{s.Trailing, "trailing"}, flagWord{s.Wide, "wide"},
		flagWord{s.Blocks > 0, "blocks"}, flagWord{s.Align > 0, "align"}, flagWord{s.StoresEmpty, "empty"}, flagWord{s.KeyDim > 0, "key"})
	if s.Type != 0 {
		words = append(words, "state-"+s.Type.String())
	}
	return words
}

// longestServed is the largest number of tokens of a sequence in the grid's cases.
const longestServed = 24

// drawServing draws the State of a case that has none. With full it may have all options but KeyDim; without, it has KeyDim
// and may have those that both operators share.
func (c *Conv1d) drawServing(seed uint64, full bool) {
	if c.State != (State{}) {
		return
	}
	r := random(seed, "serving")
	options := 0 // of the case: with 0 the call passes no optional argument, with all 3 every one, else random ones
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
		s.KeyDim = c.Dim / 4
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

// servedTensor is like [activation] for a tensor of shapeServed. With two dimensions the tensor is row-major in each layout.
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

// randomTable gives each sequence slots of its own. If sequences have several blocks, two neighbours share the slot of the
// first one, which no sequence writes. Some slots are padding or out of range.
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

// randomBlocks are indices of the blocks that sequences read, some out of range.
func randomBlocks(c Case, r *rand.Rand, values []float64) {
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

// randomLaterBlocks are indices of the blocks that sequences write: never the first one, some out of range.
func randomLaterBlocks(c Case, r *rand.Rand, values []float64) {
	for i := range values {
		values[i] = float64(1 + r.Int64N(serving(c).Blocks))
		if r.IntN(8) == 0 {
			values[i] = -1
		}
	}
}

// randomAccepted are numbers of accepted tokens: mostly 1 to the number that the slot holds, some 0 or larger.
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

// randomParents are mostly earlier tokens. The others are no token before their own, which means that they have no parent.
func randomParents(c Case, r *rand.Rand, values []float64) {
	n := int(shapeParents(c)[1])
	for i := range values {
		values[i] = float64(r.IntN(i%n+2) - 1)
		if r.IntN(8) == 0 {
			values[i] = float64(r.Int64N(1<<20) - 1<<19)
		}
	}
}

// randomWindowRows gives each sequence a row of its own. Some rows are out of range.
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

// shapeWindow is (rows, steps, dim, width-1). There is a step less than a sequence may have tokens, but at least one.
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
func passesBlocks(c Case) bool     { return serving(c).Blocks > 0 }
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
