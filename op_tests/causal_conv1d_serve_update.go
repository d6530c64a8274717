package optests

import (
	"slices"

	"github.com/aiter-go/aiter/tensor"
)

// causalConv1dServeUpdate declares update for serving. The seed of a case selects its options.
func causalConv1dServeUpdate() operator {
	return operator{
		name:         "causal_conv1d_serve_update",
		multiplyAdds: forwardMultiplyAdds,
		args: []argument{
			servedTensor(argument{name: "out", role: output, shape: shapeServed, dtype: typeX}),
			servedTensor(argument{name: "x", shape: shapeServed, dtype: typeX, fill: randomNormals}),
			activation(argument{name: "conv_state", role: updated, shape: shapeSlots, dtype: typeState, tolerance: copied, fill: randomNormals,
				elementsMoved: stateElements}),
			{name: "weight", shape: shapeWeight, dtype: typeWeight, fill: randomNormals},
			{name: "bias", shape: shapeBias, dtype: typeBias, fill: randomNormals, present: passesBias},
			{name: "use_silu", role: option, value: siluOption},
			{name: "conv_state_indices", shape: shapeTable, dtype: typeIndex, fill: randomTable, present: passesIndices},
			{name: "query_start_loc", shape: shapeStarts, dtype: typeIndex, fill: randomServedStarts, present: passesStarts},
			{name: "max_query_len", role: option, value: longestOption},
			{name: "num_accepted_tokens", shape: shapeSequences, dtype: typeIndex, fill: randomAccepted, present: passesAccepted},
			{name: "block_idx_last_scheduled_token", shape: shapeSequences, dtype: typeIndex, fill: randomLaterBlocks, present: passesBlocks},
			{name: "initial_state_idx", shape: shapeSequences, dtype: typeIndex, fill: randomBlocks, present: passesBlocks},
			{name: "retrieve_parent_token", shape: shapeParents, dtype: typeIndex, fill: randomParents, present: passesParents},
			servedTensor(argument{name: "residual", shape: shapeServed, dtype: typeX, fill: randomNormals, present: passesResidual}),
			{name: "intermediate_conv_window", role: updated, shape: shapeWindow, dtype: typeState, tolerance: copied, fill: randomNormals,
				present: passesWindow},
			{name: "intermediate_state_indices", shape: shapeSequences, dtype: typeIndex, fill: randomWindowRows, present: passesWindowRows},
			{name: "leading_state", role: option, value: leadingOption},
			{name: "clear_padding", role: option, value: clearOption},
			{name: "pad_slot_id", role: option, value: padSlotOption},
		},
		family:    causalConv1d,
		cases:     decodeCases,
		adapt:     func(c Case) Case { return With(c, func(p *Conv1d) { p.drawServing(c.Seed, true) }) },
		infer:     inferServed,
		reference: referenceServed,
	}
}

// causalConv1dUpdateSplitQKV declares update with the outputs q, k and v: x's shape with fewer channels.
func causalConv1dUpdateSplitQKV() operator {
	split := func(name string, channels func(Conv1d) int64) argument {
		return servedTensor(argument{name: name, role: output, dtype: typeX, shape: func(c Case) []int64 {
			shape := shapeServed(c)
			shape[1] = channels(conv(c))
			return shape
		}})
	}
	keyDim := func(p Conv1d) int64 { return p.State.Serve.KeyDim }
	return operator{
		name:         "causal_conv1d_update_split_qkv",
		multiplyAdds: forwardMultiplyAdds,
		args: []argument{
			split("q", keyDim), split("k", keyDim), split("v", func(p Conv1d) int64 { return p.Dim - 2*keyDim(p) }),
			servedTensor(argument{name: "x", shape: shapeServed, dtype: typeX, fill: randomNormals}),
			activation(argument{name: "conv_state", role: updated, shape: shapeSlots, dtype: typeState, tolerance: copied, fill: randomNormals,
				elementsMoved: stateElements}),
			{name: "weight", shape: shapeWeight, dtype: typeWeight, fill: randomNormals},
			{name: "bias", shape: shapeBias, dtype: typeBias, fill: randomNormals, present: passesBias},
			{name: "use_silu", role: option, value: siluOption},
			{name: "conv_state_indices", shape: shapeSequences, dtype: typeIndex, fill: randomTable, present: passesIndices},
			{name: "leading_state", role: option, value: leadingOption},
			{name: "pad_slot_id", role: option, value: padSlotOption},
		},
		family:    causalConv1d,
		cases:     decodeCases,
		adapt:     func(c Case) Case { return With(c, func(p *Conv1d) { p.drawServing(c.Seed, false) }) },
		infer:     inferServed,
		reference: referenceSplit,
	}
}

func inferServed(given args) (Case, error) {
	c, p, err := inferFilter(given)
	if err != nil {
		return Case{}, err
	}
	s, rank := Serving{Packed: given.has("query_start_loc")}, 3
	if x := given.tensor("x"); x != nil && (s.Packed || x.Rank() == 2) {
		rank = 2
	}
	x, err := given.ranked("x", rank, "(batch, dim, seqlen), (batch, dim) or (tokens, dim)")
	if err != nil {
		return Case{}, err
	}
	state, err := given.ranked("conv_state", 3, "(slots, dim, length)")
	if err != nil {
		return Case{}, err
	}
	p.Batch, p.Dim, p.Seqlen, c.DType, s.Type = x.Dim(0), x.Dim(1), 1, x.DType(), state.DType()
	if rank == 3 {
		p.Seqlen, p.Layout = x.Dim(2), layoutOf(x)
	}
	p.State.inferSlots(given, state, "conv_state_indices")
	p.State.Flat = rank == 2
	if s.Packed {
		starts, err := given.starts("query_start_loc")
		if err != nil {
			return Case{}, err
		}
		p.Batch, p.State.Tokens = starts.Dim(0)-1, x.Dim(0)
		p.Seqlen, _ = given["max_query_len"].(int64)
	}
	s.infer(given)
	p.State.Serve = s
	c.Params = p
	return c, nil
}

// infer sets the options that follow from the given arguments.
func (s *Serving) infer(given args) {
	for _, name := range []string{"conv_state_indices", "cache_indices", "query_start_loc", "num_accepted_tokens", "retrieve_parent_token"} {
		if t := given.tensor(name); t != nil {
			s.Wide = t.DType() == tensor.Int64
		}
	}
	for _, name := range []string{"conv_state_indices", "cache_indices"} {
		if t := given.tensor(name); t != nil && t.Rank() == 2 {
			s.Blocks = t.Dim(1)
		}
	}
	s.Accepted, s.Tree, s.Residual = given.has("num_accepted_tokens"), given.has("retrieve_parent_token"), given.has("residual")
	s.Window, s.WindowRows = given.has("intermediate_conv_window"), given.has("intermediate_state_indices")
	if leading, ok := given["leading_state"].(bool); ok {
		s.Trailing = !leading
	}
	if q := given.tensor("q"); q != nil && q.Rank() > 1 {
		s.KeyDim = q.Dim(1)
	}
}

// served is one sequence of a serving operator.
type served struct {
	row, start, n  int             // x's row, the position of the first token in it, and the number of tokens
	from, to       int             // the slots that are read and written; -1: none
	end            int             // X[u], u < 0, is entry end + u of a channel in slot from
	blank          bool            // zeros precede the sequence
	parent, window func(t int) int // see parentsOf and windowOf
}

// servedConv1d is a convolution of sequences. A table lists their slots.
type servedConv1d struct {
	*statefulConv1d
	in      inputs
	table   string    // the argument with the slots
	rows    bool      // x is (tokens, dim)
	stored  []float64 // x, rounded to conv_state's type
	kept    int       // the first entries of a channel in a slot that hold values of the sequence
	longest int       // the largest number of tokens of a sequence; longer ones are skipped
	before  []float64 // conv_state before the call
}

func newServedConv1d(in inputs, state, table string) *servedConv1d {
	p := conv(in.Case)
	s := &servedConv1d{statefulConv1d: newStatefulConv1d(in, state), in: in, table: table, rows: p.State.Serve.Packed, kept: int(p.Width) - 1}
	if p.State.Serve.Trailing {
		s.kept = s.length
	}
	s.longest = int(p.Seqlen)
	s.stored, s.before = storedAs(typeState(in.Case), s.x), slices.Clone(s.state)
	return s
}

// storedAs returns the values, rounded to an element type.
func storedAs(dt tensor.DType, v []float64) []float64 {
	t, err := tensor.New(dt, int64(len(v)))
	if err == nil {
		err = t.SetFloat64s(v)
	}
	if err != nil {
		return nil
	}
	v, _ = t.Float64s()
	return v
}

// at returns the index in x of position t of a sequence.
func (s *servedConv1d) at(v served, d, t int) int {
	if s.rows {
		return (v.start+t)*s.dim + d
	}
	return (v.row*s.dim+d)*s.seqlen + v.start + t
}

// slotAt returns the slot of sequence b that the table lists. The argument named block has the index into the sequence's
// row of the table, by default 0. It returns -1 for padding, and for a slot or an index out of range.
func (s *servedConv1d) slotAt(b int, block string) int {
	table, blocks := s.in.values[s.table], max(int(serving(s.in.Case).Blocks), 1)
	if table == nil {
		return b
	}
	at := 0
	if indices := s.in.values[block]; indices != nil {
		at = int(indices[b])
	}
	if at < 0 || at >= blocks {
		return -1
	}
	if slot := int(table[b*blocks+at]); slot >= 0 && slot < s.slots && slot != s.pad {
		return slot
	}
	return -1
}

// sequence returns sequence b and reports whether the operator computes it; otherwise it skips it.
func (s *servedConv1d) sequence(b int) (served, bool) {
	v := served{row: b, n: s.seqlen, from: s.slotAt(b, "initial_state_idx"), end: s.kept}
	v.to = v.from
	if s.in.values["block_idx_last_scheduled_token"] != nil {
		v.to = s.slotAt(b, "block_idx_last_scheduled_token")
	}
	ok := v.from >= 0
	if starts := s.in.values["query_start_loc"]; starts != nil {
		p := packed{starts, int(conv(s.in.Case).tokens())}
		from, to, within := p.bounds(b)
		v.row, v.start, v.n = 0, from, to-from
		ok = ok && within && v.n <= s.longest
	}
	if accepted := s.in.values["num_accepted_tokens"]; accepted != nil {
		n := int(accepted[b])
		v.end = s.width - 2 + n
		ok = ok && n >= 1 && v.end <= s.length
	}
	v.parent, v.window = s.parentsOf(b), s.windowOf(b, v)
	return v, ok
}

// parentsOf returns a function from a position to the one before it: a token's parent in its tree, or a negative position,
// which is in the state.
func (s *servedConv1d) parentsOf(b int) func(int) int {
	parents, seqlen := s.in.values["retrieve_parent_token"], int(conv(s.in.Case).Seqlen)
	return func(t int) int {
		if parents == nil || t <= 0 {
			return t - 1
		}
		if u := int(parents[b*seqlen+t]); u >= 0 && u < t {
			return u
		}
		return -1
	}
}

// windowOf returns a function from a token to the index of its first element in intermediate_conv_window, or -1 if the
// tensor has none for the token.
func (s *servedConv1d) windowOf(b int, v served) func(int) int {
	shape, row := shapeWindow(s.in.Case), v.from
	if rows := s.in.values["intermediate_state_indices"]; rows != nil {
		row = int(rows[b])
	}
	return func(t int) int {
		if row < 0 || row >= int(shape[0]) || t >= int(shape[1]) {
			return -1
		}
		return (row*int(shape[1]) + t) * s.dim * (s.width - 1)
	}
}

// values returns the values of a channel that the taps of token t multiply, the newest last. With stored they are rounded
// to the state's type.
func (s *servedConv1d) values(v served, d, t int, stored bool) []float64 {
	x, values := s.x, make([]float64, s.width)
	if stored {
		x = s.stored
	}
	for k := s.width - 1; k >= 0; k-- {
		if t >= 0 {
			values[k] = x[s.at(v, d, t)]
		} else {
			values[k] = s.past(v, d, t)
		}
		t = v.parent(t)
	}
	return values
}

// past is X[u] for u < 0.
func (s *servedConv1d) past(v served, d, u int) float64 {
	if v.blank {
		return 0
	}
	return s.before[(v.from*s.dim+d)*s.length+v.end+u]
}

// token returns the output before the residual.
func (s *servedConv1d) token(v served, d, t int) float64 {
	group, p := d/(s.dim/s.groups), 0.0
	if s.bias != nil {
		p = s.bias[d]
	}
	for k, x := range s.values(v, d, t, false) {
		p += s.weight[group*s.width+k] * x
	}
	return s.activate(p)
}

// store writes the last n values of a channel before token end to a slot.
func (s *servedConv1d) store(v served, d, slot, n, end int) {
	cells := s.slotValues(slot, d)
	for j := range n {
		if u := end - n + j; u >= 0 {
			cells[j] = s.stored[s.at(v, d, u)]
		} else {
			cells[j] = s.past(v, d, u)
		}
	}
}

// written returns the number of values of a channel that a sequence of n tokens writes to a slot.
func (s *servedConv1d) written(n int) int {
	if s.in.values["num_accepted_tokens"] != nil {
		return s.width - 2 + n
	}
	return s.kept
}

func referenceServed(in inputs) map[string][]float64 {
	s := newServedConv1d(in, "conv_state", "conv_state_indices")
	out, residual := make([]float64, len(s.x)), in.values["residual"]
	window := slices.Clone(in.values["intermediate_conv_window"])
	for b := range s.batch {
		v, ok := s.sequence(b)
		if !ok || v.n == 0 {
			continue
		}
		for d := range s.dim {
			for t := range v.n {
				i := s.at(v, d, t)
				if out[i] = s.token(v, d, t); residual != nil {
					out[i] += residual[i]
				}
				if at := v.window(t); window != nil && at >= 0 {
					copy(window[at+d*(s.width-1):], s.values(v, d, t, true)[1:])
				}
			}
			if v.to >= 0 {
				s.store(v, d, v.to, s.written(v.n), v.n)
			}
		}
	}
	return map[string][]float64{"out": out, "conv_state": s.state, "intermediate_conv_window": window}
}

func referenceSplit(in inputs) map[string][]float64 {
	want, p := referenceServed(in), conv(in.Case)
	n, dim, keyDim := int(p.Seqlen), int(p.Dim), int(p.State.Serve.KeyDim)
	channels := func(from, to int) []float64 {
		var values []float64
		for b := range int(p.Batch) {
			values = append(values, want["out"][(b*dim+from)*n:(b*dim+to)*n]...)
		}
		return values
	}
	return map[string][]float64{
		"q": channels(0, keyDim), "k": channels(keyDim, 2*keyDim), "v": channels(2*keyDim, dim), "conv_state": want["conv_state"],
	}
}
