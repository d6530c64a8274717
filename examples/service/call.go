package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"

	"github.com/aiter-go/aiter/causalconv1d"
	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/examples/service/api"
	"github.com/aiter-go/aiter/tensor"
	"github.com/aiter-go/aiter/trace"
)

// caller calls causal_conv1d_varlen_fwd. It packs the sequences of a call one after another in pinned memory of the pool: a GPU copies
// from and to it without a processor's help.
type caller struct {
	conv *causalconv1d.Ops // for tensors in host memory
	pool *device.Pool
	rec  *trace.Recorder
}

// call computes the answers of requests with equal keys.
func (c *caller) call(ctx context.Context, list []*request) (err error) {
	p, err := c.newPacked(list)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.free(p, err)) }()
	pack := c.rec.Begin(trace.Host, "pack")
	err = p.pack(list)
	pack.End(err)
	if err != nil {
		return err
	}
	if err := c.conv.VarlenForward(ctx, p.args); err != nil {
		return err
	}
	answer := c.rec.Begin(trace.Host, "answer")
	err = p.answers(list)
	answer.End(err)
	return err
}

// free returns the memory of a call to the pool. After an error of the device it discards the memory, because a copy may still use it.
func (c *caller) free(p *packed, err error) error {
	if failed := (*device.Error)(nil); errors.As(err, &failed) {
		return c.pool.Discard(p.memory)
	}
	return c.pool.Free(device.Stream{Device: c.pool.Device()}, p.memory)
}

// packed has the tensors of a call, which are views of one block of pinned memory.
type packed struct {
	memory          *tensor.Storage
	used            int64          // bytes of memory
	x, out          *tensor.Tensor // (tokens, dim)
	states          *tensor.Tensor // (sequences, dim, width-1)
	starts, resumed *tensor.Tensor // (sequences+1) and (sequences)
	args            causalconv1d.VarlenForward
}

// newPacked allocates the memory of a call from the pool. It rounds the size up to a power of two, so that the pool soon has a block of
// each size.
func (c *caller) newPacked(list []*request) (*packed, error) {
	first, tokens, sequences := list[0], int64(0), int64(0)
	for _, r := range list {
		tokens, sequences = tokens+r.tokens(), sequences+r.batch()
	}
	if tokens > math.MaxInt32 {
		return nil, &requestError{fmt.Sprintf("x: expected at most %d positions, got %d", math.MaxInt32, tokens)}
	}
	dt, dim, past := first.x.DType(), first.dim(), first.width()-1
	size := dt.Size()*(2*tokens*dim+sequences*dim*past) + 4*(sequences+1) + sequences + 5*alignment
	memory, err := c.pool.AllocPinned(max(minBlock, int64(1)<<bits.Len64(uint64(size-1))))
	if err != nil {
		return nil, err
	}
	p := &packed{memory: memory}
	err = errors.Join(
		p.view(&p.x, dt, tokens, dim), p.view(&p.out, dt, tokens, dim), p.view(&p.states, dt, sequences, dim, past),
		p.view(&p.starts, tensor.Int32, sequences+1), p.view(&p.resumed, tensor.Bool, sequences))
	if err == nil {
		err = p.setArgs(first)
	}
	if err != nil {
		return nil, errors.Join(err, c.pool.Discard(memory))
	}
	return p, nil
}

const (
	minBlock  = 1 << 16 // bytes of the smallest block of a call
	alignment = 256     // bytes
)

// view makes a tensor in the next unused bytes of the memory.
func (p *packed) view(to **tensor.Tensor, dt tensor.DType, shape ...int64) (err error) {
	size, err := tensor.ByteSize(dt, shape...)
	if err != nil {
		return err
	}
	*to, err = tensor.View(p.memory, dt, shape, nil, p.used/dt.Size())
	p.used += (size + alignment - 1) / alignment * alignment
	return err
}

func (p *packed) setArgs(first *request) (err error) {
	a := &p.args
	a.Weight, a.Bias, a.SiLU, a.QueryStartLoc = first.filters.weight, first.filters.bias, first.silu, p.starts
	if first.width() > 1 {
		a.ConvStates, a.HasInitialState = p.states, p.resumed
	}
	if a.X, err = p.x.Transpose(0, 1); err == nil { // (dim, tokens), channels adjacent
		a.Out, err = p.out.Transpose(0, 1)
	}
	return err
}

// pack copies the tensors of the requests into the memory.
func (p *packed) pack(list []*request) error {
	x, err1 := p.x.Bytes()
	states, err2 := p.states.Bytes()
	starts, err3 := tensor.Data[int32](p.starts)
	resumed, err4 := tensor.Data[bool](p.resumed)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}
	at, sequence := int64(0), 0
	for _, r := range list {
		data, err := r.x.Bytes()
		if err != nil {
			return err
		}
		x = x[copy(x, data):]
		if r.initial != nil {
			data, err := r.initial.Bytes()
			if err != nil {
				return err
			}
			copy(states, data)
		}
		states = states[r.batch()*stateBytes(r):]
		for range r.batch() {
			starts[sequence], resumed[sequence] = int32(at), r.initial != nil
			at, sequence = at+r.seqlen(), sequence+1
		}
	}
	starts[sequence] = int32(at)
	return nil
}

// stateBytes returns the size of the state of one sequence in bytes.
func stateBytes(r *request) int64 { return r.dim() * (r.width() - 1) * r.x.DType().Size() }

// answers encodes the results of a call into the answers of its requests.
func (p *packed) answers(list []*request) error {
	tokens, sequences := int64(0), int64(0)
	for _, r := range list {
		out, err := slice(p.out, tokens, tokens+r.tokens(), r.outShape())
		if err != nil {
			return err
		}
		final, err := slice(p.states, sequences, sequences+r.batch(), r.stateShape())
		if err != nil {
			return err
		}
		var b bytes.Buffer
		b.Grow(int(out.Numel()*out.DType().Size()+r.batch()*stateBytes(r)) + 1<<10)
		if err := r.format.Encode(&b, map[string]*tensor.Tensor{api.Out: out, api.Final: final}, api.Out); err != nil {
			return err
		}
		r.answer = b.Bytes()
		tokens, sequences = tokens+r.tokens(), sequences+r.batch()
	}
	return nil
}

// slice returns a range of the first dimension, with the given shape.
func slice(t *tensor.Tensor, from, to int64, shape []int64) (*tensor.Tensor, error) {
	t, err := t.Slice(0, from, to)
	if err != nil {
		return nil, err
	}
	return t.Reshape(shape...)
}
