//go:build linux

package optests_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

// exactly fills a tensor with these values. It panics if the tensor has another size, which possibleProblem recovers.
func exactly(list ...float64) func(*rand.Rand, []float64) {
	return func(_ *rand.Rand, values []float64) {
		if copy(values, list); len(values) != len(list) {
			panic(fmt.Sprintf("%d values for %d elements", len(list), len(values)))
		}
	}
}

// normals fills a tensor of n elements with random values. It panics like exactly.
func normals(n int64) func(*rand.Rand, []float64) {
	return func(r *rand.Rand, values []float64) {
		normal(r, values)
		if int64(len(values)) != n {
			panic(fmt.Sprintf("%d values for %d elements", n, len(values)))
		}
	}
}

// numbers is a tensor of given values.
func numbers(dt tensor.DType, list ...float64) optests.TensorArg {
	return optests.TensorArg{DType: dt, Shape: []int64{int64(len(list))}, Fill: exactly(list...)}
}

// splitQKVModule declares AIter's convolution of packed sequences. Lengths are below the filter's width, and below, at and above the
// sizes of pieces. The results of a sequence that is left out keep their values.
func splitQKVModule() upstreamModule {
	op := optests.Operator{Name: "aiter_causal_conv1d_fwd_split_qkv_hip", Reference: splitQKV}
	op.Tolerance = func(arg string, _ tensor.DType) optests.Tolerance {
		if arg == "conv_states" {
			return optests.Tolerance{}
		}
		return optests.Tolerance{Rel: 1.0 / (1 << 7), Abs: 1e-5} // truncated
	}
	for i, c := range []struct {
		k, v, piece, slots int64
		lengths            []int64
		channelsLast, bias bool
		silu               bool
	}{
		{64, 32, 8, 3, []int64{5, 9}, false, true, true},
		{64, 72, 8, 5, []int64{1, 2, 3, 8, 17}, false, true, false},
		{64, 64, 16, 4, []int64{40, 2, 16}, false, false, true},
		{128, 200, 32, 3, []int64{33, 64, 3}, false, true, true},
		{64, 40, 64, 3, []int64{150, 7}, false, false, false},
		{20, 31, 8, 5, []int64{1, 2, 3, 8, 17}, true, true, true},
		{64, 300, 16, 3, []int64{40, 2, 16}, true, false, false},
		{6, 5, 32, 2, []int64{33, 64}, true, true, false},
		{130, 1, 64, 3, []int64{150, 7}, true, false, true},
	} {
		of := func(dt tensor.DType, shape ...int64) optests.TensorArg {
			return optests.TensorArg{DType: dt, Shape: shape}
		}
		starts, slots, initial, of16 := []float64{0}, []float64{}, []float64{}, tensor.BFloat16
		var sequences, pieces []float64
		end := int64(0)
		for n, length := range c.lengths {
			end += length
			starts = append(starts, float64(end))
			slots = append(slots, float64(c.slots-1-int64(n))) // not in order
			initial = append(initial, float64((n+1)%2))
			for p := range (length + c.piece - 1) / c.piece {
				sequences, pieces = append(sequences, float64(n)), append(pieces, float64(p))
			}
		}
		dim, flag := 2*c.k+c.v, []tensor.DType{tensor.UInt8, tensor.Bool}[i%2]
		x, states := of(of16, dim, end), of(of16, c.slots, dim, 3)
		x.Fill, states.Fill = normals(dim*end), normal
		if c.channelsLast {
			x.Order = []int{0, 1}
		}
		if i%3 > 0 {
			states.Order = []int{1, 2, 0}
		}
		args := map[string]any{"x": x, "weight": of(of16, dim, 4), "bias": nil, "conv_states": states,
			"has_initial_state": numbers(flag, initial...), "query_start_loc": numbers(tensor.Int32, starts...),
			"batch_ptr": numbers(tensor.Int32, sequences...), "token_chunk_offset_ptr": numbers(tensor.Int32, pieces...),
			"q": of(of16, end, c.k), "k": of(of16, end, c.k), "v": of(of16, end, c.v), "k_dim": int(c.k), "v_dim": int(c.v),
			"n_programs": len(pieces), "block_m": int(c.piece), "has_bias": c.bias, "silu": c.silu, "pad_slot_id": -1}
		if c.bias {
			args["bias"] = of(of16, dim)
		}
		if i%4 == 0 {
			slots, args["pad_slot_id"] = []float64{0, 2}, 2
			for name, columns := range map[string]int64{"q": c.k, "k": c.k, "v": c.v} {
				t := of(of16, end, columns)
				t.Fill = normals(end * columns)
				args[name] = t
			}
		}
		args["cache_indices"] = numbers(tensor.Int32, slots...)
		name := fmt.Sprintf("k=%d v=%d piece=%d lengths=%v channelsLast=%v bias=%v silu=%v", c.k, c.v, c.piece, c.lengths, c.channelsLast,
			c.bias, c.silu)
		op.Cases = append(op.Cases, optests.Call{Name: name, Seed: uint64(i), Args: args})
	}
	refused := optests.Call{Name: "k=20, positions adjacent", Args: maps.Clone(op.Cases[5].Args)}
	x := refused.Args["x"].(optests.TensorArg)
	x.Order = nil
	refused.Args["x"] = x
	return upstreamModule{name: "module_aiter_causal_conv1d_fwd_split_qkv", more: []string{"gfx1100"}, ops: []optests.Operator{op},
		refused: []upstreamRefusal{{op, refused, "argument 'k_dim': expected a multiple of 64, or x with adjacent channels, got 20"}}}
}

// splitQKV computes piece by piece, as AIter lists them.
func splitQKV(in optests.Inputs) map[string][]float64 {
	args, x, values := in.Call.Args, in.Shape("x"), in.Values
	dim, end, piece := int(x[0]), int(x[1]), args["block_m"].(int)
	widths := []int{args["k_dim"].(int), args["k_dim"].(int), args["v_dim"].(int)}
	states := slices.Clone(values["conv_states"])
	var outs [3][]float64
	for i, name := range []string{"q", "k", "v"} {
		if outs[i] = slices.Clone(values[name]); outs[i] == nil {
			outs[i] = make([]float64, end*widths[i])
		}
	}
	for p := range args["n_programs"].(int) {
		sequence, number := int(values["batch_ptr"][p]), int(values["token_chunk_offset_ptr"][p])
		slot := int(values["cache_indices"][sequence])
		if slot == args["pad_slot_id"].(int) {
			continue
		}
		first, last := int(values["query_start_loc"][sequence]), int(values["query_start_loc"][sequence+1])
		for c := range dim {
			line := make([]float64, 3, 3+last-first) // the state, and the positions of the sequence
			if values["has_initial_state"][sequence] != 0 {
				copy(line, values["conv_states"][(slot*dim+c)*3:])
			}
			line = append(line, values["x"][c*end+first:c*end+last]...)
			out, column := 0, c
			for out < 2 && column >= widths[out] {
				column -= widths[out]
				out++
			}
			for i := number * piece; i < min((number+1)*piece, last-first); i++ {
				sum := 0.0
				if args["has_bias"].(bool) {
					sum = values["bias"][c]
				}
				for k := range 4 {
					sum += values["weight"][c*4+k] * line[i+k]
				}
				if args["silu"].(bool) {
					sum *= sigmoid(sum)
				}
				outs[out][(first+i)*widths[out]+column] = sum
			}
			if number == 0 {
				copy(states[(slot*dim+c)*3:][:3], line[last-first:])
			}
		}
	}
	return map[string][]float64{"q": outs[0], "k": outs[1], "v": outs[2], "conv_states": states}
}
