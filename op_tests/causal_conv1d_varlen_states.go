package optests

// defaultWidth is the filter width if no states are given.
const defaultWidth = 4

// causalConv1dVarlenStates declares the last Width-1 values of packed sequences.
func causalConv1dVarlenStates() operator {
	return operator{
		name: "causal_conv1d_varlen_states",
		args: []argument{
			{name: "states", role: output, shape: shapeVarlenStates, dtype: typeX, tolerance: copied},
			activation(argument{name: "x", shape: func(c Case) []int64 { return []int64{c.tokens(), c.Dim} }, dtype: typeX, fill: randomNormals, elementsMoved: varlenStateElements}),
			{name: "cu_seqlens", shape: shapeStarts, dtype: typeInt32, fill: randomStarts, timingFill: evenStarts},
		},
		params:    conv1dParams,
		cases:     wholeSequenceCases,
		adapt:     func(c Case) Case { c.SiLU = false; return c.drawState(c.WithFinal, false) },
		infer:     inferVarlenStates,
		reference: referenceVarlenStates,
	}
}

func shapeVarlenStates(c Case) []int64 { return []int64{c.Batch, c.Dim, c.stateLen()} }

func inferVarlenStates(given args) (Case, error) {
	x, err := given.ranked("x", 2, "(tokens, dim)")
	if err != nil {
		return Case{}, err
	}
	starts, err := given.starts("cu_seqlens")
	if err != nil {
		return Case{}, err
	}
	c := Case{DType: x.DType(), Conv1d: Conv1d{Batch: starts.Dim(0) - 1, Dim: x.Dim(1), Width: defaultWidth, Layout: layoutOf(x)}}
	c.setTokens(x.Dim(0))
	if states := given.tensor("states"); states != nil && states.Rank() == 3 {
		c.Width = states.Dim(2) + 1
	}
	return c, nil
}

func referenceVarlenStates(in inputs) map[string][]float64 {
	length, dim, x := int(in.stateLen()), int(in.Dim), in.values["x"]
	p := packed{in.values["cu_seqlens"], int(in.tokens())}
	states := make([]float64, int(in.Batch)*dim*length)
	for b := range int(in.Batch) {
		from, to, ok := p.bounds(b)
		for d := range dim {
			for j := 0; ok && j < length; j++ {
				if t := to - length + j; t >= from {
					states[(b*dim+d)*length+j] = x[t*dim+d]
				}
			}
		}
	}
	return map[string][]float64{"states": states}
}
