package optests

import (
	"fmt"
	"math/rand/v2"

	"github.com/aiter-go/aiter/tensor"
)

// Conv1d holds the sizes and options of the causal_conv1d operators. Sizes count
// elements and may be 0, except Width, which is at least 1.
type Conv1d struct {
	Batch, Dim, Seqlen, Width int64

	Layout Layout
	// MixedLayout gives the outputs the layout that the inputs do not have.
	MixedLayout bool
	SiLU        bool
	NoBias      bool
	// EmptyBias passes a bias of no elements, which means the same as none.
	EmptyBias bool

	// WithSeqIdx packs several sequences, and some padding, into each row.
	WithSeqIdx bool
	// WithStates is WithInitial and WithFinal together.
	WithStates bool
	// WithInitial passes initial_states; backward then computes their gradient.
	WithInitial bool
	// WithFinal makes forward return the final states and passes their gradient to backward.
	WithFinal bool

	// State is for the operators that keep states from call to call.
	State State
	// Dout places backward's dout.
	Dout Placement
}

// Layout tells which dimension of a (batch, dim, seqlen) tensor has stride 1.
type Layout int

const (
	// ChannelFirst: the positions of a channel are adjacent; seqlen has stride 1.
	ChannelFirst Layout = iota
	// ChannelLast: the channels of a position are adjacent; dim has stride 1.
	ChannelLast
)

// String is the layout as the command line spells it.
func (l Layout) String() string {
	if l == ChannelLast {
		return "channel_last"
	}
	return "channel_first"
}

// ParseLayout reads channel_first or channel_last.
func ParseLayout(s string) (Layout, error) {
	switch s {
	case "channel_first":
		return ChannelFirst, nil
	case "channel_last":
		return ChannelLast, nil
	}
	return 0, &CaseError{Field: "layout", Got: s, Expected: "channel_first or channel_last"}
}

func (c *Conv1d) isZero() bool { return *c == Conv1d{} }

func (c *Conv1d) setDefaults() {
	c.WithInitial = c.WithInitial || c.WithStates
	c.WithFinal = c.WithFinal || c.WithStates
	c.WithStates = c.WithInitial && c.WithFinal
}

func (c *Conv1d) check() error {
	err := checkAtLeast(atLeast{"batch", c.Batch, 0}, atLeast{"dim", c.Dim, 0}, atLeast{"seqlen", c.Seqlen, 0}, atLeast{"width", c.Width, 1})
	if err != nil {
		return err
	}
	if err := checkMaxElements("batch*dim*seqlen", float64(c.Batch)*float64(c.Dim)*float64(c.Seqlen+c.Width)); err != nil {
		return err
	}
	return checkAtLeast(atLeast{"slots", c.State.Slots, 0}, atLeast{"tokens", c.State.Tokens, 0}, atLeast{"state length", c.stateLen(), c.Width - 1})
}

func (c *Conv1d) elements() int64 { return c.Batch * c.Dim * c.Seqlen }

func (c *Conv1d) sizeWords() []string {
	return []string{fmt.Sprintf("b%d_d%d_l%d_w%d", c.Batch, c.Dim, c.Seqlen, c.Width)}
}

func (c *Conv1d) optionWords() []string {
	words := append([]string{c.Layout.String()}, setWords(
		flagWord{c.MixedLayout, "mixed"}, flagWord{c.SiLU, "silu"}, flagWord{c.NoBias, "nobias"}, flagWord{c.EmptyBias, "emptybias"},
		flagWord{c.WithSeqIdx, "seqidx"}, flagWord{c.WithInitial, "initial"}, flagWord{c.WithFinal, "final"},
	)...)
	return append(append(words, c.Dout.words("dout")...), c.State.words()...)
}

// hasBias reports whether a bias is added.
func (c Conv1d) hasBias() bool { return !c.NoBias && !c.EmptyBias }

// activation completes the declaration of a (batch, dim, seqlen) or (dim, seqlen)
// tensor, which has the case's layout and placement.
func activation(a argument) argument {
	a.unitStride = true
	a.order = func(c Case, rank int) []int {
		if (c.Layout == ChannelLast) != (c.MixedLayout && a.written()) {
			return [][]int{{}, {0}, {0, 1}, {1, 2, 0}}[rank]
		}
		return rowMajor(rank)
	}
	if a.placement == nil {
		a.placement = a.activationPlacement
	}
	return a
}

func conv1dParams(c *Case) params { return &c.Conv1d }

func shapeX(c Case) []int64      { return []int64{c.Batch, c.Dim, c.Seqlen} }
func shapeWeight(c Case) []int64 { return []int64{c.Dim, c.Width} }
func shapeSeqIdx(c Case) []int64 { return []int64{c.Batch, c.Seqlen} }
func shapeStates(c Case) []int64 { return []int64{c.Batch, c.Dim, c.Width - 1} }

func shapeBias(c Case) []int64 {
	if c.EmptyBias {
		return []int64{0}
	}
	return []int64{c.Dim}
}

func typeX(c Case) tensor.DType      { return c.DType }
func typeWeight(c Case) tensor.DType { return c.WeightDType }
func typeBias(c Case) tensor.DType   { return c.BiasDType }
func typeGrad(c Case) tensor.DType   { return c.GradDType }
func typeInt32(Case) tensor.DType    { return tensor.Int32 }

func passesBias(c Case) bool    { return !c.NoBias }
func passesSeqIdx(c Case) bool  { return c.WithSeqIdx }
func passesInitial(c Case) bool { return c.WithInitial }
func passesFinal(c Case) bool   { return c.WithFinal }
func hasBias(c Case) bool       { return c.hasBias() }

// layoutOf returns ChannelLast if the strides allow no other layout.
func layoutOf(x *tensor.Tensor) Layout {
	if last := x.Rank() - 1; x.Stride(last-1) == 1 && x.Stride(last) != 1 {
		return ChannelLast
	}
	return ChannelFirst
}

// randomSequences divides each row of (batch, seqlen) into runs with one sequence
// number each. About one run in four is padding, with a negative number; a sequence
// may continue after it.
func randomSequences(c Case, r *rand.Rand, values []float64) {
	for b := range c.Batch {
		row := values[b*c.Seqlen : (b+1)*c.Seqlen]
		for at, number := 0, 0; at < len(row); number++ {
			id := number
			if r.IntN(4) == 0 {
				id = -1 - r.IntN(2)
				number -= r.IntN(3)
			}
			end := min(len(row), at+1+r.IntN(len(row)/3+int(c.Width)))
			for ; at < end; at++ {
				row[at] = float64(id)
			}
		}
	}
}
