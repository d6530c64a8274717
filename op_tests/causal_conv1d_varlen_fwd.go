package optests

import (
	"fmt"

	"github.com/aiter-go/aiter/tensor"
)

// causalConv1dVarlenFwd declares forward over sequences packed into one row. Batch
// is the number of sequences, Seqlen their mean length.
//
// A sequence begins as a row of causal_conv1d_fwd does: its state, or zeros that
// the taps multiply, lies before it.
//
// Of the grid's options, WithInitial makes some sequences start from their states,
// WithFinal passes conv_states that are longer than the filter needs, and
// WithSeqIdx passes slot indices.
func causalConv1dVarlenFwd() operator {
	return operator{
		name: "causal_conv1d_varlen_fwd",
		args: []argument{
			activation(argument{name: "out", role: output, shape: shapeTokens, dtype: typeX}),
			activation(argument{name: "x", shape: shapeTokens, dtype: typeX, fill: randomNormals}),
			{name: "weight", shape: shapeWeight, dtype: typeWeight, fill: randomNormals},
			{name: "bias", shape: shapeBias, dtype: typeBias, fill: randomNormals, present: passesBias},
			{name: "use_silu", role: option, value: siluOption},
			{name: "query_start_loc", shape: shapeStarts, dtype: typeInt32, fill: randomStarts, timingFill: evenStarts},
			activation(argument{name: "conv_states", role: updated, shape: shapeSlots, dtype: typeX, tolerance: copied, fill: randomNormals, present: passesStates, elementsMoved: stateElements}),
			{name: "cache_indices", shape: shapeSequences, dtype: typeInt32, fill: randomSlotIndices, present: passesIndices},
			{name: "has_initial_state", shape: shapeSequences, dtype: typeBool, fill: randomBools, present: passesInitial},
			{name: "pad_slot_id", role: option, value: padSlotOption},
		},
		params:    conv1dParams,
		cases:     wholeSequenceCases,
		adapt:     func(c Case) Case { return c.drawState(c.WithFinal, c.WithSeqIdx) },
		infer:     inferVarlen,
		reference: referenceVarlen,
	}
}

func shapeTokens(c Case) []int64 { return []int64{c.Dim, c.tokens()} }
func passesStates(c Case) bool   { return c.WithInitial || c.WithFinal }

func inferVarlen(given args) (Case, error) {
	x, err := given.ranked("x", 2, "(dim, tokens)")
	if err != nil {
		return Case{}, err
	}
	starts, err := given.starts("query_start_loc")
	if err != nil {
		return Case{}, err
	}
	c, err := inferFilter(given)
	c.Batch, c.Dim, c.DType = starts.Dim(0)-1, x.Dim(0), x.DType()
	c.setTokens(x.Dim(1))
	c.Layout = layoutOf(x)
	c.WithInitial = given.has("has_initial_state")
	if states := given.tensor("conv_states"); states != nil && states.Rank() == 3 {
		c.WithFinal = true
		c.State.inferSlots(given, states, "cache_indices")
	}
	c.State.Indexed = given.has("cache_indices")
	return c, err
}

// starts is a given tensor of batch+1 positions.
func (a args) starts(name string) (*tensor.Tensor, error) {
	t, err := a.ranked(name, 1, "(batch+1)")
	if err == nil && t.Dim(0) == 0 {
		return nil, &ArgumentError{Arg: name, Expected: "a tensor (batch+1)", Got: fmt.Sprintf("shape %v", t.Shape())}
	}
	return t, err
}

// inferFilter determines the case's part that weight, bias and use_silu define.
func inferFilter(given args) (Case, error) {
	w, err := given.ranked("weight", 2, "(dim, width)")
	if err != nil {
		return Case{}, err
	}
	bias := given.tensor("bias")
	silu, _ := given["use_silu"].(bool)
	c := Case{WeightDType: w.DType(), Conv1d: Conv1d{Width: w.Dim(1), SiLU: silu, NoBias: bias == nil}}
	c.EmptyBias = bias != nil && bias.Numel() == 0 && w.Dim(0) != 0
	if bias != nil {
		c.BiasDType = bias.DType()
	}
	return c, nil
}

// inferSlots determines the slots from a (slots, dim, length) tensor.
func (s *State) inferSlots(given args, states *tensor.Tensor, indices string) {
	s.Slots, s.Len, s.Indexed = states.Dim(0), states.Dim(2), given.has(indices)
	if pad, ok := given["pad_slot_id"].(int64); ok {
		s.Pad = pad + 1
	}
}

func referenceVarlen(in inputs) map[string][]float64 {
	s, x := newStatefulConv1d(in, "conv_states"), in.values["x"]
	p := packed{in.values["query_start_loc"], int(in.tokens())}
	out := make([]float64, len(x))
	for b := range s.batch {
		from, to, within := p.bounds(b)
		slot, ok := s.slotOf(b, in.values["cache_indices"])
		if !within || !ok {
			continue
		}
		v := slotSequence{x: columns(x, p.tokens, from, to), n: to - from, slot: slot}
		if has := in.values["has_initial_state"]; has != nil {
			v.readsState = s.state != nil && has[b] != 0
		}
		setColumns(out, p.tokens, from, to, s.run(v))
	}
	return map[string][]float64{"out": out, "conv_states": s.state}
}
