package optests

// causalConv1dFwd declares y = conv(x), or silu(conv(x)), and the final states.
func causalConv1dFwd() operator {
	return operator{
		name:         "causal_conv1d_fwd",
		multiplyAdds: forwardMultiplyAdds,
		args: []argument{
			activation(argument{name: "out", role: output, shape: shapeX, dtype: typeX}),
			activation(argument{name: "x", shape: shapeX, dtype: typeX, fill: randomNormals}),
			{name: "weight", shape: shapeWeight, dtype: typeWeight, fill: randomNormals},
			{name: "bias", shape: shapeBias, dtype: typeBias, fill: randomNormals, present: passesBias},
			{name: "use_silu", role: option, value: siluOption},
			{name: "seq_idx", shape: shapeSeqIdx, dtype: typeInt32, fill: randomSequences, timingFill: evenSequences, present: passesSeqIdx},
			{name: "initial_states", shape: shapeStates, dtype: typeX, fill: randomNormals, present: passesInitial},
			{name: "final_states_out", role: output, shape: shapeStates, dtype: typeX, tolerance: copied, present: passesFinal},
		},
		family: causalConv1dSequences,
		cases:  wholeSequenceCases,
		infer:  func(given args) (Case, error) { return inferConv1d(given, "final_states_out") },
		reference: func(in inputs) map[string][]float64 {
			c := newConv1d(in)
			return map[string][]float64{"out": c.out(), "final_states_out": c.final()}
		},
	}
}

// newConv1d gathers the inputs that forward and backward have in common.
func newConv1d(in inputs) *conv1d {
	p := conv(in.Case)
	c := &conv1d{
		batch: int(p.Batch), dim: int(p.Dim), seqlen: int(p.Seqlen), width: int(p.Width), groups: int(p.Groups),
		x: in.values["x"], weight: in.values["weight"],
		initial: in.values["initial_states"], seq: in.values["seq_idx"], silu: p.SiLU,
	}
	if p.hasBias() {
		c.bias = in.values["bias"]
	}
	return c
}

// inferConv1d determines the case from x, weight and the optional arguments. The case
// has WithFinal if the argument named final is given.
func inferConv1d(given args, final string) (Case, error) {
	x, err := given.ranked("x", 3, "(batch, dim, seqlen)")
	if err != nil {
		return Case{}, err
	}
	w, err := given.ranked("weight", 2, "(groups, width)")
	if err != nil {
		return Case{}, err
	}
	bias := given.tensor("bias")
	silu, _ := given["use_silu"].(bool)
	c := Case{
		DType: x.DType(), WeightDType: w.DType(),
		Params: Conv1d{
			Batch: x.Dim(0), Dim: x.Dim(1), Seqlen: x.Dim(2), Width: w.Dim(1), Groups: w.Dim(0), SiLU: silu, Layout: layoutOf(x),
			NoBias: bias == nil, EmptyBias: bias != nil && bias.Numel() == 0 && x.Dim(1) != 0,
			WithSeqIdx: given.tensor("seq_idx") != nil, WithInitial: given.tensor("initial_states") != nil,
			WithFinal: given.has(final),
		},
	}
	if bias != nil {
		c.BiasDType = bias.DType()
	}
	return c, nil
}
