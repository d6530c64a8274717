package optests

import (
	"fmt"

	"github.com/aiter-go/aiter/tensor"
)

// causalConv1dVarlenFwd declares forward over sequences packed into one row. Batch
// is the number of sequences, Seqlen their mean length.
//
// A sequence begins as a row of causal_conv1d_fwd does: its state, or zeros that
// the taps multiply, precede it.
//
// Of the grid's options, WithInitial makes some sequences start from their states,
// WithFinal passes conv_states that are longer than the filter needs, and
// WithSeqIdx passes slot indices.
func causalConv1dVarlenFwd() operator {
	return operator{
		name:         "causal_conv1d_varlen_fwd",
		multiplyAdds: packedMultiplyAdds,
		args: []argument{
			activation(argument{name: "out", role: output, shape: shapeTokens, dtype: typeX}),
			activation(argument{name: "x", shape: shapeTokens, dtype: typeX, fill: randomNormals}),
			{name: "weight", shape: shapeWeight, dtype: typeWeight, fill: randomNormals},
			{name: "bias", shape: shapeBias, dtype: typeBias, fill: randomNormals, present: passesBias},
			{name: "use_silu", role: option, value: siluOption},
			{name: "query_start_loc", shape: shapeStarts, dtype: typeInt32, fill: randomStarts, timingFill: evenStarts},
			activation(argument{name: "conv_states", role: updated, shape: shapeSlots, dtype: typeX, tolerance: copied, fill: randomNormals,
				present: passesStates, elementsMoved: stateElements}),
			{name: "cache_indices", shape: shapeSequences, dtype: typeInt32, fill: randomSlotIndices, present: passesIndices},
			{name: "has_initial_state", shape: shapeSequences, dtype: typeBool, fill: randomBools, present: passesInitial},
			{name: "pad_slot_id", role: option, value: padSlotOption},
		},
		family:    causalConv1d,
		cases:     wholeSequenceCases,
		adapt:     adaptVarlen,
		infer:     inferVarlen,
		reference: referenceVarlen,
	}
}

func shapeTokens(c Case) []int64 { p := conv(c); return []int64{p.Dim, p.tokens()} }
func passesStates(c Case) bool   { p := conv(c); return p.WithInitial || p.WithFinal }

func adaptVarlen(c Case) Case {
	return With(c, func(p *Conv1d) { p.drawState(c.Seed, p.WithFinal, p.WithSeqIdx) })
}

func inferVarlen(given args) (Case, error) {
	x, err := given.ranked("x", 2, "(dim, tokens)")
	if err != nil {
		return Case{}, err
	}
	starts, err := given.starts("query_start_loc")
	if err != nil {
		return Case{}, err
	}
	c, p, err := inferFilter(given)
	p.Batch, p.Dim, c.DType = starts.Dim(0)-1, x.Dim(0), x.DType()
	p.setTokens(x.Dim(1))
	p.Layout = layoutOf(x)
	p.WithInitial = given.has("has_initial_state")
	if states := given.tensor("conv_states"); states != nil && states.Rank() == 3 {
		p.WithFinal = true
		p.State.inferSlots(given, states, "cache_indices")
	}
	p.State.Indexed = given.has("cache_indices")
	c.Params = p
	return c, err
}

// starts returns a given tensor of batch+1 positions.
func (a args) starts(name string) (*tensor.Tensor, error) {
	t, err := a.ranked(name, 1, "(batch+1)")
	if err == nil && t.Dim(0) == 0 {
		return nil, &ArgumentError{Arg: name, Expected: "a tensor (batch+1)", Got: fmt.Sprintf("shape %v", t.Shape())}
	}
	return t, err
}

// inferFilter determines the element types and the parameters that follow from weight, bias and use_silu.
func inferFilter(given args) (Case, Conv1d, error) {
	w, err := given.ranked("weight", 2, "(groups, width)")
	if err != nil {
		return Case{}, Conv1d{}, err
	}
	bias := given.tensor("bias")
	silu, _ := given["use_silu"].(bool)
	c := Case{WeightDType: w.DType()}
	if bias != nil {
		c.BiasDType = bias.DType()
	}
	p := Conv1d{Width: w.Dim(1), Groups: w.Dim(0), SiLU: silu, NoBias: bias == nil}
	p.EmptyBias = bias != nil && bias.Numel() == 0 && w.Dim(0) != 0
	return c, p, nil
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
	p := packed{in.values["query_start_loc"], int(conv(in.Case).tokens())}
	out := make([]float64, len(x))
	for b := range s.batch {
		from, to, within := p.bounds(b)
		slot, ok := s.slotOf(b, in.values["cache_indices"])
		if !within || !ok {
			continue
		}
		v := slotSequence{x: copyColumns(x, p.tokens, from, to), n: to - from, slot: slot}
		if has := in.values["has_initial_state"]; has != nil {
			v.readsState = s.state != nil && has[b] != 0
		}
		setColumns(out, p.tokens, from, to, s.run(v))
	}
	return map[string][]float64{"out": out, "conv_states": s.state}
}
