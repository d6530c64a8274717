package optests

// defaultWidth is the filter width if no states are given.
const defaultWidth = 4

// causalConv1dVarlenStates declares the last Width-1 values of packed sequences.
func causalConv1dVarlenStates() operator {
	return operator{
		name: "causal_conv1d_varlen_states",
		args: []argument{
			{name: "states", role: output, shape: shapeVarlenStates, dtype: typeX, tolerance: copied},
			activation(argument{name: "x", shape: shapeTokenRows, dtype: typeX, fill: randomNormals, elementsMoved: varlenStateElements}),
			{name: "cu_seqlens", shape: shapeStarts, dtype: typeInt32, fill: randomStarts, timingFill: evenStarts},
		},
		family:    causalConv1d,
		cases:     wholeSequenceCases,
		adapt:     adaptVarlenStates,
		infer:     inferVarlenStates,
		reference: referenceVarlenStates,
	}
}

func shapeVarlenStates(c Case) []int64 { p := conv(c); return []int64{p.Batch, p.Dim, p.stateLen()} }

func shapeTokenRows(c Case) []int64 { p := conv(c); return []int64{p.tokens(), p.Dim} }

func adaptVarlenStates(c Case) Case {
	return With(c, func(p *Conv1d) { p.SiLU = false; p.drawState(c.Seed, p.WithFinal, false) })
}

func inferVarlenStates(given args) (Case, error) {
	x, err := given.ranked("x", 2, "(tokens, dim)")
	if err != nil {
		return Case{}, err
	}
	starts, err := given.starts("cu_seqlens")
	if err != nil {
		return Case{}, err
	}
	p := Conv1d{Batch: starts.Dim(0) - 1, Dim: x.Dim(1), Width: defaultWidth, Layout: layoutOf(x)}
	p.setTokens(x.Dim(0))
	if states := given.tensor("states"); states != nil && states.Rank() == 3 {
		p.Width = states.Dim(2) + 1
	}
	return Case{DType: x.DType(), Params: p}, nil
}

func referenceVarlenStates(in inputs) map[string][]float64 {
	p := conv(in.Case)
	length, dim, x := int(p.stateLen()), int(p.Dim), in.values["x"]
	rows := packed{in.values["cu_seqlens"], int(p.tokens())}
	states := make([]float64, int(p.Batch)*dim*length)
	for b := range int(p.Batch) {
		from, to, ok := rows.bounds(b)
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
