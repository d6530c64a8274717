package optests

import (
	"math/rand/v2"
	"slices"

	"github.com/aiter-go/aiter/tensor"
)

// causalConv1dServeFwd declares varlen_fwd for serving. The seed of a case selects its options; WithInitial makes some sequences start
// from their states.
func causalConv1dServeFwd() operator {
	op := prefillOperator("causal_conv1d_serve_fwd", true, activation(argument{name: "out", role: output, shape: shapeTokens, dtype: typeX}))
	op.reference = referencePrefill
	return op
}

// causalConv1dFwdSplitQKV declares the same with the outputs q, k and v, each (tokens, channels).
func causalConv1dFwdSplitQKV() operator {
	split := func(name string, channels func(Conv1d) int64) argument {
		return servedTensor(argument{name: name, role: output, dtype: typeX, shape: func(c Case) []int64 {
			return []int64{conv(c).tokens(), channels(conv(c))}
		}})
	}
	keyDim := func(p Conv1d) int64 { return p.State.Serve.KeyDim }
	op := prefillOperator("causal_conv1d_fwd_split_qkv", false,
		split("q", keyDim), split("k", keyDim), split("v", func(p Conv1d) int64 { return p.Dim - 2*keyDim(p) }))
	op.reference = referencePrefillSplit
	return op
}

// prefillOperator declares what the two have in common. With full the operator takes state blocks.
func prefillOperator(name string, full bool, outputs ...argument) operator {
	table := argument{name: "cache_indices", shape: shapeSequences, dtype: typeIndex, fill: randomTable, present: passesIndices}
	perSequence := func(name string, fill func(Case, *rand.Rand, []float64), present func(Case) bool) argument {
		return argument{name: name, shape: shapeSequences, dtype: typeIndex, fill: fill, present: present}
	}
	var blocks []argument
	if full {
		table.shape = shapeTable
		blocks = []argument{
			perSequence("block_idx_first_scheduled_token", randomLaterBlocks, passesAlign),
			perSequence("block_idx_last_scheduled_token", randomLaterBlocks, passesBlocks),
			perSequence("initial_state_idx", randomBlocks, passesBlocks),
			perSequence("num_computed_tokens", randomComputed, passesAlign),
			{name: "block_size_to_align", role: option, value: func(c Case) any { return serving(c).Align }},
		}
	}
	return operator{
		name:         name,
		multiplyAdds: packedMultiplyAdds,
		args: slices.Concat(outputs, []argument{
			activation(argument{name: "x", shape: shapeTokens, dtype: typeX, fill: randomNormals}),
			activation(argument{name: "conv_states", role: updated, shape: shapeSlots, dtype: typeState, tolerance: copied, fill: randomNormals,
				elementsMoved: stateElements}),
			{name: "weight", shape: shapeWeight, dtype: typeWeight, fill: randomNormals},
			{name: "query_start_loc", shape: shapeStarts, dtype: typeIndex, fill: randomStarts, timingFill: evenStarts},
			{name: "bias", shape: shapeBias, dtype: typeBias, fill: randomNormals, present: passesBias},
			{name: "use_silu", role: option, value: siluOption},
			table,
			{name: "has_initial_state", shape: shapeSequences, dtype: typeBool, fill: randomBools, present: passesInitial},
		}, blocks, []argument{
			{name: "leading_state", role: option, value: leadingOption},
			{name: "skip_empty", role: option, value: func(c Case) any { return !serving(c).StoresEmpty }},
			{name: "pad_slot_id", role: option, value: padSlotOption},
		}),
		family: causalConv1d,
		cases:  wholeSequenceCases,
		adapt:  func(c Case) Case { return With(c, func(p *Conv1d) { p.drawPrefill(c.Seed, full) }) },
		infer:  inferPrefill,
	}
}

// drawPrefill draws the State of a case that has none. With full it may have state blocks.
func (c *Conv1d) drawPrefill(seed uint64, full bool) {
	if c.State != (State{}) {
		return
	}
	r := random(seed, "prefill")
	all := c.WithInitial && c.WithFinal && c.WithSeqIdx
	coin := func() bool { return all || c.WithFinal && r.IntN(2) == 0 }
	s := Serving{Trailing: coin(), Wide: coin(), StoresEmpty: coin()}
	if c.WithFinal && r.IntN(3) == 0 {
		s.Type = []tensor.DType{tensor.Float32, tensor.Float16, tensor.BFloat16}[r.IntN(3)]
	}
	c.State = State{Indexed: c.WithSeqIdx, Len: max(c.Width-1, 1)}
	if c.WithFinal {
		c.State.Len += r.Int64N(3)
	}
	if c.State.Indexed && seed%4 == 3 {
		c.State.Pad = 1
	}
	if full && c.State.Indexed && coin() {
		s.Blocks = 2 + r.Int64N(4)
		if coin() {
			s.Align = 1 + r.Int64N(max(c.Seqlen, 4))
		}
	}
	if !full {
		s.KeyDim = c.Dim / 4
	}
	c.State.Serve = s
}

func inferPrefill(given args) (Case, error) {
	c, err := inferVarlen(given)
	if err != nil {
		return c, err
	}
	states, err := given.ranked("conv_states", 3, "(slots, dim, length)")
	if err != nil {
		return Case{}, err
	}
	return With(c, func(p *Conv1d) {
		p.State.Serve.Type = states.DType()
		p.State.Serve.infer(given)
		p.State.Serve.Align, _ = given["block_size_to_align"].(int64)
		if skips, ok := given["skip_empty"].(bool); ok {
			p.State.Serve.StoresEmpty = !skips
		}
	}), nil
}

// randomComputed are numbers of tokens: mostly less than four blocks, some negative, some about 2^30.
func randomComputed(c Case, r *rand.Rand, values []float64) {
	for i := range values {
		values[i] = float64(r.Int64N(4 * serving(c).Align))
		switch r.IntN(10) {
		case 0:
			values[i] = -1
		case 1:
			values[i] = float64(1<<30 + r.Int64N(1<<20))
		}
	}
}

func passesAlign(c Case) bool { return serving(c).Align > 0 }

// states calls store for each slot that the sequence writes; end is the number of tokens before the stored state.
func (s *servedConv1d) states(v served, b int, store func(slot, end int)) {
	if v.n == 0 && !serving(s.in.Case).StoresEmpty {
		return
	}
	if v.to >= 0 {
		store(v.to, v.n)
	}
	first, blocks, size := s.in.values["block_idx_first_scheduled_token"], int(serving(s.in.Case).Blocks), int(serving(s.in.Case).Align)
	if first == nil || v.n == 0 {
		return
	}
	done, from, to := int(s.in.values["num_computed_tokens"][b]), int(first[b]), int(s.in.values["block_idx_last_scheduled_token"][b])
	if from < 0 || to > blocks {
		return
	}
	last := (done+v.n-1)/size*size - done // the end of the last whole block before the last token
	for block := from; block < to; block++ {
		end, slot := last-(to-1-block)*size, int(s.in.values[s.table][b*blocks+block])
		if end > 0 && slot >= 0 && slot < s.slots && slot != s.pad {
			store(slot, end)
		}
	}
}

func referencePrefill(in inputs) map[string][]float64 {
	s := newServedConv1d(in, "conv_states", "cache_indices")
	s.seqlen = int(conv(in.Case).tokens())
	s.longest = s.seqlen
	out := make([]float64, len(s.x))
	for b := range s.batch {
		v, ok := s.sequence(b)
		if done := in.values["num_computed_tokens"]; done != nil {
			ok = ok && done[b] >= 0
		}
		if has := in.values["has_initial_state"]; has == nil || has[b] == 0 {
			v.blank = true
		}
		if !ok {
			continue
		}
		for d := range s.dim {
			for t := range v.n {
				out[s.at(v, d, t)] = s.token(v, d, t)
			}
			s.states(v, b, func(slot, end int) { s.store(v, d, slot, s.kept, end) })
		}
	}
	return map[string][]float64{"out": out, "conv_states": s.state}
}

func referencePrefillSplit(in inputs) map[string][]float64 {
	want, p := referencePrefill(in), conv(in.Case)
	n, dim, keyDim := int(p.tokens()), int(p.Dim), int(p.State.Serve.KeyDim)
	channels := func(from, to int) []float64 {
		var values []float64
		for t := range n {
			for d := from; d < to; d++ {
				values = append(values, want["out"][d*n+t])
			}
		}
		return values
	}
	return map[string][]float64{
		"q": channels(0, keyDim), "k": channels(keyDim, 2*keyDim), "v": channels(2*keyDim, dim), "conv_states": want["conv_states"],
	}
}
