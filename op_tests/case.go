package optests

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/aiter-go/aiter/tensor"
)

// Layout says which dimension of a (batch, dim, seqlen) tensor has stride 1.
type Layout int

const (
	// ChannelFirst keeps a channel's positions together: seqlen has stride 1.
	ChannelFirst Layout = iota
	// ChannelLast keeps a position's channels together: dim has stride 1.
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

// Case describes one problem. Sizes count elements and may be 0, except Width,
// which is at least 1. The zero value of an optional field is its usual choice.
type Case struct {
	Batch, Dim, Seqlen, Width int64

	DType       tensor.DType // activations; zero means float32
	WeightDType tensor.DType // weight; zero means DType
	BiasDType   tensor.DType // bias; zero means WeightDType
	GradDType   tensor.DType // dweight and dbias; zero means WeightDType

	Layout Layout
	SiLU   bool
	NoBias bool
	// EmptyBias passes a bias of no elements, which means the same as none.
	EmptyBias bool

	// WithSeqIdx packs several sequences, and some padding, into each row.
	WithSeqIdx bool
	// WithStates is WithInitial and WithFinal together.
	WithStates bool
	// WithInitial passes initial_states, and asks backward for their gradient.
	WithInitial bool
	// WithFinal asks forward for final states, and gives backward their gradient.
	WithFinal bool

	// State is for the operators that keep states from call to call.
	State State

	// Slice lays every tensor out as a slice of a larger buffer: odd strides,
	// pointers aligned to an element only.
	Slice bool
	// Read and Written are where the activations lie that are read and written, Dout where backward's
	// dout does, which is not as Read says; the weights lie as ever.
	Inputs, Dout, Outputs Placement
	// Mixed gives the outputs the layout that the inputs do not have.
	Mixed bool
	Seed  uint64
}

// Placement is how an activation lies in memory: so many elements off alignment, its rows, or in channel-last its positions,
// so many further apart than what they have.
type Placement struct{ Offset, RowGap int64 }

// normal is the case with every default written out.
func (c Case) normal() Case {
	c.DType = cmp.Or(c.DType, tensor.Float32)
	c.WeightDType = cmp.Or(c.WeightDType, c.DType)
	c.BiasDType = cmp.Or(c.BiasDType, c.WeightDType)
	c.GradDType = cmp.Or(c.GradDType, c.WeightDType)
	c.WithInitial = c.WithInitial || c.WithStates
	c.WithFinal = c.WithFinal || c.WithStates
	c.WithStates = c.WithInitial && c.WithFinal
	return c
}

// check refuses sizes that no tensor can have.
func (c Case) check() error {
	for _, f := range []struct {
		name       string
		value, min int64
	}{{"batch", c.Batch, 0}, {"dim", c.Dim, 0}, {"seqlen", c.Seqlen, 0}, {"width", c.Width, 1}} {
		if f.value < f.min {
			return &CaseError{Field: f.name, Got: fmt.Sprint(f.value), Expected: fmt.Sprintf("at least %d", f.min)}
		}
	}
	if n := float64(c.Batch) * float64(c.Dim) * float64(c.Seqlen+c.Width); n > maxElements {
		return &CaseError{Field: "batch*dim*seqlen", Got: fmt.Sprintf("%.3g", n), Expected: fmt.Sprintf("at most %d", maxElements)}
	}
	if err := c.checkState(); err != nil {
		return err
	}
	return c.checkTypes()
}

// maxElements keeps products of sizes far from overflow; whether there is memory
// for a case is for the caller to ask, by HostBytes.
const maxElements = 1 << 36

func (c Case) checkTypes() error {
	for _, f := range []struct {
		name  string
		dtype tensor.DType
	}{{"dtype", c.DType}, {"weight dtype", c.WeightDType}, {"bias dtype", c.BiasDType}, {"gradient dtype", c.GradDType}} {
		if !isFloat(f.dtype) {
			return &CaseError{Field: f.name, Got: f.dtype.String(), Expected: "float32, float16 or bfloat16"}
		}
	}
	return nil
}

func isFloat(d tensor.DType) bool {
	return d == tensor.Float32 || d == tensor.Float16 || d == tensor.BFloat16
}

// hasBias reports whether a bias takes part in the sum.
func (c Case) hasBias() bool { return !c.NoBias && !c.EmptyBias }

// String names the case in words fit for a test's name: sizes, types, options.
func (c Case) String() string {
	c = c.normal()
	var b strings.Builder
	fmt.Fprintf(&b, "b%d_d%d_l%d_w%d_%s", c.Batch, c.Dim, c.Seqlen, c.Width, c.DType)
	c.writeTypes(&b)
	fmt.Fprintf(&b, "_%s", c.Layout)
	for _, f := range []struct {
		on   bool
		word string
	}{
		{c.SiLU, "silu"}, {c.NoBias, "nobias"}, {c.EmptyBias, "emptybias"}, {c.WithSeqIdx, "seqidx"},
		{c.WithInitial, "initial"}, {c.WithFinal, "final"}, {c.Slice, "slice"}, {c.Mixed, "mixed"},
	} {
		if f.on {
			fmt.Fprintf(&b, "_%s", f.word)
		}
	}
	for _, l := range []struct {
		word string
		lie  Placement
	}{{"read", c.Inputs}, {"dout", c.Dout}, {"written", c.Outputs}} {
		if l.lie != (Placement{}) {
			fmt.Fprintf(&b, "_%s-%d-%d", l.word, l.lie.Offset, l.lie.RowGap)
		}
	}
	c.State.write(&b)
	return b.String()
}

// writeTypes adds the types that are not what the activations' type implies.
func (c Case) writeTypes(b *strings.Builder) {
	for _, t := range []struct {
		name        string
		dtype, base tensor.DType
	}{{"w", c.WeightDType, c.DType}, {"b", c.BiasDType, c.WeightDType}, {"g", c.GradDType, c.WeightDType}} {
		if t.dtype != t.base {
			fmt.Fprintf(b, "_%s-%s", t.name, t.dtype)
		}
	}
}
