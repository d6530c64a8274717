// Package causalconv1d calls the causal depthwise 1-D convolutions of a
// registry with named arguments. For each channel they compute
//
//	y[t] = bias + sum over k of weight[k] x[t-(W-1)+k]
//
// and then apply SiLU if requested. In shapes, B is the batch, D the number of
// channels (dim), L the number of positions (seqlen), W the width, G the number of
// filters (groups), N the number of state slots, S the length of a decoding state, and
// T the number of tokens in packed sequences.
//
// G divides D, and is D if each channel has a filter of its own. Otherwise D/G
// neighbouring channels share a filter: channel d has filter d/(D/G).
//
// Activations and states are float32, float16 or bfloat16, all of the same type in one
// call; weight and bias are any of the three. Any strides are allowed; channel-last is
// a (B, D, L) view whose D has stride 1. Indices are int32. All tensors of a call are on
// one device, and outputs share no memory with other arguments. Calls overwrite outputs
// in full.
//
// Calls use [registry.Op.Call]: it builds the operator on first use, queues the work on
// the stream of [github.com/aiter-go/aiter/device.WithStream], and returns its errors. A
// required tensor that is nil is a [*registry.TypeError].
package causalconv1d

import (
	"context"

	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// Ops is the family of operators of one registry. It is safe for concurrent use.
type Ops struct {
	forward, backward, update, varlenForward, varlenStates *registry.Op
}

// New looks up the operators. It builds nothing; call [registry.Registry.Warm] to build
// before the first call. The errors are [*registry.UnknownOpError], for a configuration
// without the operators, and [registry.ErrClosed].
func New(reg *registry.Registry) (*Ops, error) {
	o := &Ops{}
	for _, want := range []struct {
		op   **registry.Op
		name string
	}{
		{&o.forward, "causal_conv1d_fwd"},
		{&o.backward, "causal_conv1d_bwd"},
		{&o.update, "causal_conv1d_update"},
		{&o.varlenForward, "causal_conv1d_varlen_fwd"},
		{&o.varlenStates, "causal_conv1d_varlen_states"},
	} {
		op, err := reg.Lookup(want.name)
		if err != nil {
			return nil, err
		}
		*want.op = op
	}
	return o, nil
}

// Forward are the arguments of [Ops.Forward].
type Forward struct {
	Out    *tensor.Tensor // written: (B, D, L), X's type
	X      *tensor.Tensor // (B, D, L)
	Weight *tensor.Tensor // (G, W)
	Bias   *tensor.Tensor // (D), or nil for none
	SiLU   bool

	// SeqIdx is (B, L) int32, or nil: the sequence number of each position. Out at a
	// position depends only on positions of the same sequence. Negative numbers are
	// padding, where Out is 0.
	SeqIdx *tensor.Tensor
	// InitialStates is (B, D, W-1), X's type: the positions before X; nil for zeros.
	// With SeqIdx no position depends on it.
	InitialStates *tensor.Tensor
	// FinalStates is written: (B, D, W-1), X's type, the last W-1 positions of
	// InitialStates followed by X; nil if not needed.
	FinalStates *tensor.Tensor
}

// Forward convolves whole sequences (causal_conv1d_fwd).
func (o *Ops) Forward(ctx context.Context, a Forward) error {
	return o.forward.Call(ctx, a.Out, a.X, a.Weight, a.Bias, a.SiLU, a.SeqIdx, a.InitialStates, a.FinalStates)
}

// Backward are the arguments of [Ops.Backward]. X, Weight, Bias, SiLU, SeqIdx
// and InitialStates are those of the forward call.
type Backward struct {
	DX      *tensor.Tensor // written: (B, D, L), X's type
	DWeight *tensor.Tensor // written, not added to: (G, W), float32 or Weight's type
	DBias   *tensor.Tensor // written, not added to: (D), float32 or Weight's type; nil without Bias

	X      *tensor.Tensor // (B, D, L)
	Weight *tensor.Tensor // (G, W)
	Bias   *tensor.Tensor // (D) or nil
	DOut   *tensor.Tensor // (B, D, L), X's type: the gradient of Out
	SiLU   bool

	SeqIdx         *tensor.Tensor // (B, L) int32 or nil
	InitialStates  *tensor.Tensor // (B, D, W-1), X's type, or nil
	DFinalStates   *tensor.Tensor // (B, D, W-1), X's type: the gradient of FinalStates, or nil for zero
	DInitialStates *tensor.Tensor // written: (B, D, W-1), X's type; nil if not needed
}

// Backward computes the gradients of [Ops.Forward] (causal_conv1d_bwd). Two calls with
// equal arguments return equal bits.
func (o *Ops) Backward(ctx context.Context, a Backward) error {
	return o.backward.Call(ctx, a.DX, a.DWeight, a.DBias, a.X, a.Weight, a.Bias, a.DOut, a.SiLU,
		a.SeqIdx, a.InitialStates, a.DFinalStates, a.DInitialStates)
}

// NoSlot is the default slot index of padding rows.
const NoSlot int64 = -1

// Update are the arguments of [Ops.Update].
type Update struct {
	Out       *tensor.Tensor // written: X's shape and type
	X         *tensor.Tensor // (B, D), or (B, D, L) for several new positions
	ConvState *tensor.Tensor // read and written: (N, D, S), X's type, S of W-1 or more
	Weight    *tensor.Tensor // (G, W)
	Bias      *tensor.Tensor // (D), or nil for none
	SiLU      bool

	// CacheSeqlens is (B) int32: ConvState is a circular buffer, and the new positions
	// begin at CacheSeqlens modulo S. The call does not change CacheSeqlens. nil: the
	// call shifts the state, whose last position is the newest.
	CacheSeqlens *tensor.Tensor
	// ConvStateIndices is (B) int32: the slot of each row; nil: row b has slot b.
	ConvStateIndices *tensor.Tensor
	// PadSlot is the slot index of rows to skip: their Out is 0, and no state changes.
	// nil is [NoSlot].
	PadSlot *int64
}

// Update convolves the next positions of each sequence, and reads and writes its
// state: a step of decoding (causal_conv1d_update).
func (o *Ops) Update(ctx context.Context, a Update) error {
	return o.update.Call(ctx, a.Out, a.X, a.ConvState, a.Weight, a.Bias, a.SiLU, a.CacheSeqlens, a.ConvStateIndices, slot(a.PadSlot))
}

// VarlenForward are the arguments of [Ops.VarlenForward].
type VarlenForward struct {
	Out    *tensor.Tensor // written: (D, T), X's type
	X      *tensor.Tensor // (D, T): sequences one after another; any strides
	Weight *tensor.Tensor // (G, W)
	Bias   *tensor.Tensor // (D), or nil for none
	SiLU   bool

	// QueryStartLoc is (B+1) int32: sequence b has the tokens from QueryStartLoc[b] up
	// to QueryStartLoc[b+1].
	QueryStartLoc *tensor.Tensor
	// ConvStates is read and written: (N, D, S), X's type, S of W-1 or more; the slot
	// of each sequence receives its last S positions. nil: no states.
	ConvStates *tensor.Tensor
	// CacheIndices is (B) int32: the slot of each sequence; nil: sequence b has slot b.
	CacheIndices *tensor.Tensor
	// HasInitialState is (B) bool: true for a sequence that continues the state of its
	// slot; nil: no sequence does.
	HasInitialState *tensor.Tensor
	// PadSlot is the slot index of sequences to skip, as in [Update].
	PadSlot *int64
}

// VarlenForward convolves sequences of different lengths that are packed into
// one row (causal_conv1d_varlen_fwd). The positions before a sequence are its state, or
// zeros, as before a row of [Ops.Forward].
func (o *Ops) VarlenForward(ctx context.Context, a VarlenForward) error {
	return o.varlenForward.Call(ctx, a.Out, a.X, a.Weight, a.Bias, a.SiLU, a.QueryStartLoc, a.ConvStates, a.CacheIndices,
		a.HasInitialState, slot(a.PadSlot))
}

// VarlenStates are the arguments of [Ops.VarlenStates].
type VarlenStates struct {
	States    *tensor.Tensor // written: (B, D, S), X's type
	X         *tensor.Tensor // (T, D): sequences one after another; any strides
	CuSeqlens *tensor.Tensor // (B+1) int32: where each sequence begins, and the end of the last
}

// VarlenStates copies the last S positions of each packed sequence to States, with
// zeros before a shorter sequence (causal_conv1d_varlen_states).
func (o *Ops) VarlenStates(ctx context.Context, a VarlenStates) error {
	return o.varlenStates.Call(ctx, a.States, a.X, a.CuSeqlens)
}

// slot returns the slot index of padding.
func slot(pad *int64) int64 {
	if pad == nil {
		return NoSlot
	}
	return *pad
}
