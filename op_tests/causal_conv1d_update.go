package optests

// causalConv1dUpdate declares the next outputs of sequences whose last positions
// are in conv_state; the call appends the new positions to conv_state.
//
// Of the grid's options, WithInitial makes the state longer than the filter needs,
// WithFinal makes it circular and WithSeqIdx passes slot indices.
func causalConv1dUpdate() operator {
	return operator{
		name:         "causal_conv1d_update",
		multiplyAdds: forwardMultiplyAdds,
		args: []argument{
			activation(argument{name: "out", role: output, shape: shapeUpdate, dtype: typeX}),
			activation(argument{name: "x", shape: shapeUpdate, dtype: typeX, fill: randomNormals}),
			activation(argument{name: "conv_state", role: updated, shape: shapeSlots, dtype: typeX, tolerance: copied, fill: randomNormals,
				elementsMoved: stateElements}),
			{name: "weight", shape: shapeWeight, dtype: typeWeight, fill: randomNormals},
			{name: "bias", shape: shapeBias, dtype: typeBias, fill: randomNormals, present: passesBias},
			{name: "use_silu", role: option, value: siluOption},
			{name: "cache_seqlens", shape: shapeSequences, dtype: typeInt32, fill: randomRingPositions, present: passesCacheSeqlens},
			{name: "conv_state_indices", shape: shapeSequences, dtype: typeInt32, fill: randomSlotIndices, present: passesIndices},
			{name: "pad_slot_id", role: option, value: padSlotOption},
		},
		family:    causalConv1d,
		cases:     decodeCases,
		adapt:     adaptUpdate,
		infer:     inferUpdate,
		reference: referenceUpdate,
	}
}

func shapeUpdate(c Case) []int64 {
	if p := conv(c); p.State.Flat {
		return []int64{p.Batch, p.Dim}
	}
	return shapeX(c)
}

func passesCacheSeqlens(c Case) bool { return conv(c).State.Circular }

func adaptUpdate(c Case) Case {
	return With(c, func(p *Conv1d) {
		given := p.State != (State{})
		p.drawState(c.Seed, p.WithInitial, p.WithSeqIdx)
		if !given {
			p.State.Circular, p.State.Flat = p.WithFinal, p.Seqlen == 1 && c.Seed%2 == 1
		}
	})
}

func inferUpdate(given args) (Case, error) {
	rank := 3
	if x := given.tensor("x"); x != nil && x.Rank() == 2 {
		rank = 2
	}
	x, err := given.ranked("x", rank, "(batch, dim, seqlen) or (batch, dim)")
	if err != nil {
		return Case{}, err
	}
	state, err := given.ranked("conv_state", 3, "(slots, dim, length)")
	if err != nil {
		return Case{}, err
	}
	c, p, err := inferFilter(given)
	p.Batch, p.Dim, p.Seqlen, c.DType, p.Layout = x.Dim(0), x.Dim(1), 1, x.DType(), layoutOf(x)
	if rank == 3 {
		p.Seqlen = x.Dim(2)
	}
	p.State.inferSlots(given, state, "conv_state_indices")
	p.State.Circular, p.State.Flat = given.has("cache_seqlens"), rank == 2
	c.Params = p
	return c, err
}

func referenceUpdate(in inputs) map[string][]float64 {
	s := newStatefulConv1d(in, "conv_state")
	n, x := int(conv(in.Case).Seqlen), in.values["x"]
	row := s.dim * n
	out := make([]float64, len(x))
	for b := range s.batch {
		slot, ok := s.slotOf(b, in.values["conv_state_indices"])
		if !ok {
			continue
		}
		v := slotSequence{x: x[b*row : (b+1)*row], n: n, slot: slot, readsState: true}
		if processed := in.values["cache_seqlens"]; processed != nil {
			v.circular, v.ringStart = true, modulo(int(processed[b]), s.length)
		}
		copy(out[b*row:], s.run(v))
	}
	return map[string][]float64{"out": out, "conv_state": s.state}
}
