package optests

import "github.com/aiter-go/aiter/tensor"

// causalConv1dFwd declares y = conv(x), or silu(conv(x)), and the last states.
func causalConv1dFwd() operator {
	return operator{
		name: "causal_conv1d_fwd",
		args: []argument{
			{name: "out", role: output, shape: shapeX, dtype: typeX, activation: true},
			{name: "x", shape: shapeX, dtype: typeX, activation: true, fill: randomNormals},
			{name: "weight", shape: shapeWeight, dtype: typeWeight, fill: randomNormals},
			{name: "bias", shape: shapeBias, dtype: typeBias, fill: randomNormals, present: passesBias},
			{name: "use_silu", role: option, value: func(c Case) any { return c.SiLU }},
			{name: "seq_idx", shape: shapeSeqIdx, dtype: typeInt32, fill: randomSequences, present: passesSeqIdx},
			{name: "initial_states", shape: shapeStates, dtype: typeX, fill: randomNormals, present: passesInitial},
			{name: "final_states_out", role: output, shape: shapeStates, dtype: typeX, tolerance: copied, present: passesFinal},
		},
		infer: func(given args) (Case, error) { return inferConv1d(given, "final_states_out") },
		reference: func(in inputs) map[string][]float64 {
			c := newConv1d(in)
			return map[string][]float64{"out": c.out(), "final_states_out": c.final()}
		},
	}
}

// newConv1d gathers what the forward and the backward operators both read.
func newConv1d(in inputs) *conv1d {
	c := &conv1d{
		batch: int(in.Batch), dim: int(in.Dim), seqlen: int(in.Seqlen), width: int(in.Width),
		x: in.values["x"], weight: in.values["weight"],
		initial: in.values["initial_states"], seq: in.values["seq_idx"], silu: in.SiLU,
	}
	if in.hasBias() {
		c.bias = in.values["bias"]
	}
	return c
}

func shapeX(c Case) []int64      { return []int64{c.Batch, c.Dim, c.Seqlen} }
func shapeWeight(c Case) []int64 { return []int64{c.Dim, c.Width} }
func shapeSeqIdx(c Case) []int64 { return []int64{c.Batch, c.Seqlen} }
func shapeStates(c Case) []int64 { return []int64{c.Batch, c.Dim, c.Width - 1} }

func shapeBias(c Case) []int64 {
	if c.EmptyBias {
		return []int64{0}
	}
	return []int64{c.Dim}
}

func typeX(c Case) tensor.DType      { return c.DType }
func typeWeight(c Case) tensor.DType { return c.WeightDType }
func typeBias(c Case) tensor.DType   { return c.BiasDType }
func typeGrad(c Case) tensor.DType   { return c.GradDType }
func typeInt32(Case) tensor.DType    { return tensor.Int32 }

func passesBias(c Case) bool    { return !c.NoBias }
func passesSeqIdx(c Case) bool  { return c.WithSeqIdx }
func passesInitial(c Case) bool { return c.WithInitial }
func passesFinal(c Case) bool   { return c.WithFinal }

// inferConv1d reads a case off x, weight and the optional arguments; final names
// the argument whose presence means that final states take part.
func inferConv1d(given args, final string) (Case, error) {
	x, err := given.ranked("x", 3, "(batch, dim, seqlen)")
	if err != nil {
		return Case{}, err
	}
	w, err := given.ranked("weight", 2, "(dim, width)")
	if err != nil {
		return Case{}, err
	}
	bias := given.tensor("bias")
	silu, _ := given["use_silu"].(bool)
	c := Case{
		Batch: x.Dim(0), Dim: x.Dim(1), Seqlen: x.Dim(2), Width: w.Dim(1),
		DType: x.DType(), WeightDType: w.DType(), SiLU: silu, Layout: layoutOf(x),
		NoBias: bias == nil, EmptyBias: bias != nil && bias.Numel() == 0 && x.Dim(1) != 0,
		WithSeqIdx:  given.tensor("seq_idx") != nil,
		WithInitial: given.tensor("initial_states") != nil,
		WithFinal:   given.has(final),
	}
	if bias != nil {
		c.BiasDType = bias.DType()
	}
	return c, nil
}

// layoutOf is channel-last if that is the only way to read the strides.
func layoutOf(x *tensor.Tensor) Layout {
	if last := x.Rank() - 1; x.Stride(last-1) == 1 && x.Stride(last) != 1 {
		return ChannelLast
	}
	return ChannelFirst
}
