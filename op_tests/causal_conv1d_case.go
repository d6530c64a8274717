package optests

import (
	"cmp"
	"fmt"
	"math/rand/v2"

	"github.com/aiter-go/aiter/tensor"
)

// Conv1d holds the sizes and options of the causal_conv1d operators. Sizes count
// elements and may be 0, except Width, which is at least 1.
type Conv1d struct {
	Batch, Dim, Seqlen, Width int64
	// Groups is the number of filters, each for Dim/Groups neighbouring channels;
	// default Dim.
	Groups int64

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

// Layout selects the dimension of a (batch, dim, seqlen) tensor that has stride 1.
type Layout int

const (
	// ChannelFirst: the positions of a channel are adjacent; seqlen has stride 1.
	ChannelFirst Layout = iota
	// ChannelLast: the channels of a position are adjacent; dim has stride 1.
	ChannelLast
)

// String returns the layout as the command line spells it.
func (l Layout) String() string {
	if l == ChannelLast {
		return "channel_last"
	}
	return "channel_first"
}

// causalConv1d declares the parameters of the family.
func causalConv1d() family {
	silu := boolParam("use_silu", "apply SiLU", func(p *Conv1d) *bool { return &p.SiLU })
	silu.Column, silu.Title = "silu", "SiLU"
	noBias := boolParam("no_bias", "no bias", func(p *Conv1d) *bool { return &p.NoBias })
	noBias.Column, noBias.negated, noBias.Untimed = "bias", true, true
	groups := intParam("groups", "filters, each for dim/groups neighbouring channels", func(p *Conv1d) *int64 { return &p.Groups })
	groups.Default = "dim"
	return family{
		zero: Conv1d{},
		params: []Param{
			sizeParam("batch", "batch size", func(p *Conv1d) *int64 { return &p.Batch }),
			sizeParam("dim", "channels", func(p *Conv1d) *int64 { return &p.Dim }),
			sizeParam("seqlen", "sequence length", func(p *Conv1d) *int64 { return &p.Seqlen }),
			intParam("width", "filter taps", func(p *Conv1d) *int64 { return &p.Width }),
			groups,
			choiceParam("layout", "layout of the activations", func(p *Conv1d) *Layout { return &p.Layout }, ChannelFirst, ChannelLast),
			silu, noBias, offsetParam(),
		},
	}
}

// causalConv1dSequences declares the parameters of the operators that take sequence numbers and states too.
func causalConv1dSequences() family {
	numbers := boolParam("seq_idx", "sequence numbers; in measurements a sequence has 300 positions",
		func(p *Conv1d) *bool { return &p.WithSeqIdx })
	states := boolParam("states", "initial and final states", func(p *Conv1d) *bool { return &p.WithStates })
	numbers.Default, states.Default = "none", "none"
	f := causalConv1d()
	f.params = append(f.params, numbers, states)
	return f
}

// offsetParam moves every activation away from an aligned address.
func offsetParam() Param {
	usage := "elements between an aligned address and the first one of each activation"
	p := intParam("offset", usage, func(*Conv1d) *int64 { return new(int64) })
	p.Default = "aligned"
	p.get = func(c Case) any { return c.Inputs.Offset }
	p.set = func(c Case, value any) (Case, bool) {
		n, ok := value.(int64)
		c.Inputs.Offset, c.Outputs.Offset = n, n
		return With(c, func(p *Conv1d) { p.Dout.Offset = n }), ok
	}
	return p
}

// conv returns the parameters of a case.
func conv(c Case) Conv1d { return ParamsOf[Conv1d](c) }

// Complete implements [Params].
func (c Conv1d) Complete() (Params, error) {
	c.Groups = cmp.Or(c.Groups, c.Dim)
	c.WithInitial = c.WithInitial || c.WithStates
	c.WithFinal = c.WithFinal || c.WithStates
	c.WithStates = c.WithInitial && c.WithFinal
	return c, c.check()
}

func (c Conv1d) check() error {
	err := checkAtLeast(atLeast{"batch", c.Batch, 0}, atLeast{"dim", c.Dim, 0}, atLeast{"seqlen", c.Seqlen, 0}, atLeast{"width", c.Width, 1})
	if err != nil {
		return err
	}
	if c.Groups != c.Dim && (c.Groups < 1 || c.Groups > c.Dim || c.Dim%c.Groups != 0) {
		return &CaseError{Field: "groups", Got: fmt.Sprint(c.Groups), Expected: fmt.Sprintf("a divisor of dim %d", c.Dim)}
	}
	if err := checkMaxElements("batch*dim*seqlen", float64(c.Batch)*float64(c.Dim)*float64(c.Seqlen+c.Width)); err != nil {
		return err
	}
	return checkAtLeast(atLeast{"slots", c.State.Slots, 0}, atLeast{"tokens", c.State.Tokens, 0},
		atLeast{"state length", c.stateLen(), c.Width - 1})
}

// Elements implements [Params].
func (c Conv1d) Elements() int64 { return c.Batch * c.Dim * c.Seqlen }

// Words implements [Params].
func (c Conv1d) Words() (sizes, options []string) {
	sizes = []string{fmt.Sprintf("b%d_d%d_l%d_w%d", c.Batch, c.Dim, c.Seqlen, c.Width)}
	if c.Groups != 0 && c.Groups != c.Dim {
		sizes = append(sizes, fmt.Sprintf("g%d", c.Groups))
	}
	options = append([]string{c.Layout.String()}, setWords(
		flagWord{c.MixedLayout, "mixed"}, flagWord{c.SiLU, "silu"}, flagWord{c.NoBias, "nobias"}, flagWord{c.EmptyBias, "emptybias"},
		flagWord{c.WithSeqIdx, "seqidx"}, flagWord{c.WithInitial || c.WithStates, "initial"}, flagWord{c.WithFinal || c.WithStates, "final"},
	)...)
	return sizes, append(append(options, c.Dout.words("dout")...), c.State.words()...)
}

// hasBias reports whether a bias is added.
func (c Conv1d) hasBias() bool { return !c.NoBias && !c.EmptyBias }

// forwardMultiplyAdds is one product for each tap of each output.
func forwardMultiplyAdds(c Case) float64 { return float64(c.Elements()) * float64(conv(c).Width) }

// packedMultiplyAdds returns the same for packed sequences.
func packedMultiplyAdds(c Case) float64 {
	p := conv(c)
	return float64(p.tokens()) * float64(p.Dim) * float64(p.Width)
}

// backwardMultiplyAdds is one product for each tap of each element of dx, and as many for dweight. With SiLU the gradient
// needs forward's sums too.
func backwardMultiplyAdds(c Case) float64 {
	if conv(c).SiLU {
		return 3 * forwardMultiplyAdds(c)
	}
	return 2 * forwardMultiplyAdds(c)
}

// activation completes the declaration of a (batch, dim, seqlen) or (dim, seqlen)
// tensor: the tensor has the case's layout and placement.
func activation(a argument) argument {
	a.unitStride = true
	a.order = func(c Case, rank int) []int {
		if p := conv(c); (p.Layout == ChannelLast) != (p.MixedLayout && a.written()) {
			return [][]int{{}, {0}, {0, 1}, {1, 2, 0}}[rank]
		}
		return rowMajor(rank)
	}
	if a.placement == nil {
		a.placement = a.activationPlacement
	}
	return a
}

func shapeX(c Case) []int64      { p := conv(c); return []int64{p.Batch, p.Dim, p.Seqlen} }
func shapeWeight(c Case) []int64 { p := conv(c); return []int64{p.Groups, p.Width} }
func shapeSeqIdx(c Case) []int64 { p := conv(c); return []int64{p.Batch, p.Seqlen} }
func shapeStates(c Case) []int64 { p := conv(c); return []int64{p.Batch, p.Dim, p.Width - 1} }

func shapeBias(c Case) []int64 {
	p := conv(c)
	if p.EmptyBias {
		return []int64{0}
	}
	return []int64{p.Dim}
}

func typeX(c Case) tensor.DType      { return c.DType }
func typeWeight(c Case) tensor.DType { return c.WeightDType }
func typeBias(c Case) tensor.DType   { return c.BiasDType }
func typeGrad(c Case) tensor.DType   { return c.GradDType }
func typeInt32(Case) tensor.DType    { return tensor.Int32 }

func passesBias(c Case) bool    { return !conv(c).NoBias }
func passesSeqIdx(c Case) bool  { return conv(c).WithSeqIdx }
func passesInitial(c Case) bool { return conv(c).WithInitial }
func passesFinal(c Case) bool   { return conv(c).WithFinal }
func hasBias(c Case) bool       { return conv(c).hasBias() }

// layoutOf returns ChannelLast if the strides allow no other layout.
func layoutOf(x *tensor.Tensor) Layout {
	if last := x.Rank() - 1; x.Stride(last-1) == 1 && x.Stride(last) != 1 {
		return ChannelLast
	}
	return ChannelFirst
}

// evenSequences numbers sequences of 300 positions each.
func evenSequences(c Case, values []float64) {
	for i := range values {
		values[i] = float64(int64(i) % conv(c).Seqlen / 300)
	}
}

// randomSequences divides each row of (batch, seqlen) into runs of one sequence
// number. About one run in four is padding, with a negative number. A sequence
// may continue after padding.
func randomSequences(c Case, r *rand.Rand, values []float64) {
	p := conv(c)
	for b := range p.Batch {
		row := values[b*p.Seqlen : (b+1)*p.Seqlen]
		for at, number := 0, 0; at < len(row); number++ {
			id := number
			if r.IntN(4) == 0 {
				id = -1 - r.IntN(2)
				number -= r.IntN(3)
			}
			end := min(len(row), at+1+r.IntN(len(row)/3+int(p.Width)))
			for ; at < end; at++ {
				row[at] = float64(id)
			}
		}
	}
}
