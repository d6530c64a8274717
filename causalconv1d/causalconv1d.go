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
// [Ops.Forward] convolves whole sequences, and [Ops.Backward] computes its gradients: two
// calls with equal arguments return equal bits. [Ops.VarlenForward] convolves sequences of
// different lengths that are packed into one row. Sequence b has the tokens from
// QueryStartLoc[b] up to QueryStartLoc[b+1]. The positions before it are its state, or
// zeros. [Ops.VarlenStates] copies the last S positions of each packed sequence, with
// zeros before a shorter sequence.
//
// [Ops.Update] is a step of decoding: it convolves the next positions of each sequence,
// and reads and writes its state. It shifts the state: the newest position is the last.
// With CacheSeqlens the state is a circular buffer, and the new positions begin at
// CacheSeqlens modulo S. The call does not change CacheSeqlens.
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
// required tensor that is nil is a [*registry.TypeError]. The operators that [Ops.OnHost] returns take tensors in host
// memory, and copy them to the device and back in pieces, at the same time as the kernels run.
package causalconv1d

// The names of the Go API are shorter than those of the operators, which PyTorch users know.
//go:generate go run ../cmd/aiterctl --root .. --no-builtin generate go module_causal_conv1d --output ops.go --name causal_conv1d_fwd=Forward,causal_conv1d_bwd=Backward,causal_conv1d_update=Update,causal_conv1d_varlen_fwd=VarlenForward,causal_conv1d_varlen_states=VarlenStates,causal_conv1d_serve_update=ServeUpdate,causal_conv1d_update_split_qkv=UpdateSplitQKV,causal_conv1d_serve_fwd=ServeForward,causal_conv1d_fwd_split_qkv=ForwardSplitQKV --name use_silu=SiLU,pad_slot_id=PadSlot,final_states_out=FinalStates --name dx=DX,dweight=DWeight,dbias=DBias,dout=DOut,dfinal_states=DFinalStates,dinitial_states=DInitialStates

// NoSlot is the default slot index of padding rows.
const NoSlot int64 = -1
