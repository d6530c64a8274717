package optests

// causalConv1dBwd declares the gradients of causal_conv1d_fwd.
func causalConv1dBwd() operator {
	return operator{
		name:         "causal_conv1d_bwd",
		multiplyAdds: backwardMultiplyAdds,
		args: []argument{
			activation(argument{name: "dx", role: output, shape: shapeX, dtype: typeX}),
			{name: "dweight", role: output, shape: shapeWeight, dtype: typeGrad, tolerance: longSum},
			{name: "dbias", role: output, shape: shapeBias, dtype: typeGrad, tolerance: longSum, present: hasBias},
			activation(argument{name: "x", shape: shapeX, dtype: typeX, fill: randomNormals}),
			{name: "weight", shape: shapeWeight, dtype: typeWeight, fill: randomNormals},
			{name: "bias", shape: shapeBias, dtype: typeBias, fill: randomNormals, present: passesBias},
			activation(argument{name: "dout", shape: shapeX, dtype: typeX, placement: func(c Case) Placement { return conv(c).Dout },
				fill: randomNormals}),
			{name: "use_silu", role: option, value: siluOption},
			{name: "seq_idx", shape: shapeSeqIdx, dtype: typeInt32, fill: randomSequences, timingFill: evenSequences, present: passesSeqIdx},
			{name: "initial_states", shape: shapeStates, dtype: typeX, fill: randomNormals, present: passesInitial},
			{name: "dfinal_states", shape: shapeStates, dtype: typeX, fill: randomNormals, present: passesFinal},
			{name: "dinitial_states", role: output, shape: shapeStates, dtype: typeX, present: passesInitial},
		},
		family: causalConv1dSequences,
		cases:  wholeSequenceCases,
		infer:  inferConv1dBwd,
		reference: func(in inputs) map[string][]float64 {
			g := newConv1d(in).grads(in.values["dout"], in.values["dfinal_states"])
			return map[string][]float64{"dx": g.x, "dweight": g.weight, "dbias": g.bias, "dinitial_states": g.initial}
		},
	}
}

// inferConv1dBwd is like inferConv1d; a given dweight determines GradDType.
func inferConv1dBwd(given args) (Case, error) {
	c, err := inferConv1d(given, "dfinal_states")
	if dw := given.tensor("dweight"); dw != nil {
		c.GradDType = dw.DType()
	}
	return c, err
}
