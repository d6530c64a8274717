//go:build linux

package optests_test

import (
	"fmt"
	"slices"

	targets "github.com/aiter-go/aiter/jit/target"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// segmentedRows declares the write to blocks that have the rows of kv_c of all tokens, and then those of k_pe.
func segmentedRows(m *upstreamModule, to targets.Target) {
	op := optests.Operator{Name: "aiter_concat_and_cache_mla_seg", Tolerance: cacheTolerance, Reference: segmentedCache}
	for n, dt := range upstreamFloats() {
		of := func(dt tensor.DType, shape ...int64) optests.TensorArg {
			return optests.TensorArg{DType: dt, Shape: shape, Fill: normals(elements(shape))}
		}
		for i, word := range []string{"auto", "fp8", "fp8_e4m3"} {
			cache := dt
			if word != "auto" {
				cache = registry.Float8E4M3(to)
			}
			for j, s := range []struct{ rank, rotated, tokens, blocks int64 }{{13, 6, 5, 3}, {64, 32, 4, 2}, {512, 64, 64, 2}, {8, 16, 1, 15},
				{520, 0, 3, 3}} {
				op.Cases = append(op.Cases, optests.Call{Seed: uint64(j + 5*i + 15*n), Args: map[string]any{"kv_c": of(dt, 4, s.rank),
					"k_pe": of(dt, 4, s.rotated), "kv_cache": of(cache, s.blocks, s.tokens*(s.rank+s.rotated)), "kv_cache_dtype": word,
					"slot_mapping": numbers(tensor.Int64, float64(s.blocks*s.tokens-1), -1, 1), "scale": numbers(tensor.Float32, 0.4)}})
			}
		}
	}
	m.ops = append(m.ops, op)
	cache := op.Cases[0].Args["kv_cache"].(optests.TensorArg)
	cache.Shape, cache.Fill = []int64{3, 96}, normal
	m.refused = append(m.refused, upstreamRefusal{op, optests.Call{Args: merged(op.Cases[0].Args, map[string]any{"kv_cache": cache})},
		"argument 'kv_cache': expected blocks of a multiple of 19 elements"})
}

// segmentedCache writes rows of both tensors to blocks that have those of kv_c first.
func segmentedCache(in optests.Inputs) map[string][]float64 {
	cache := slices.Clone(in.Values["kv_cache"])
	rank, rotated, block := int(in.Shape("kv_c")[1]), int(in.Shape("k_pe")[1]), int(in.Shape("kv_cache")[1])
	for t, slot := range in.Values["slot_mapping"] {
		if slot >= 0 {
			row := make([]float64, rank+rotated)
			for i := range row {
				if i < rank {
					row[i] = scaled(in, in.Values["kv_c"][t*rank+i], "scale")
				} else {
					row[i] = scaled(in, in.Values["k_pe"][t*rotated+i-rank], "scale")
				}
			}
			writeSegments(cache, int(slot), block, row[:rank], row[rank:])
		}
	}
	return map[string][]float64{"kv_cache": cache}
}

// writeSegments writes two parts of a token to a cache with blocks of a number of elements.
func writeSegments(cache []float64, slot, block int, first, second []float64) {
	tokens := block / (len(first) + len(second))
	part := cache[slot/tokens*block:]
	copy(part[slot%tokens*len(first):], first)
	copy(part[tokens*len(first)+slot%tokens*len(second):], second)
}

// latentCase is the sizes and options of a call that rotates, and that writes to the cache of latent attention.
type latentCase struct {
	rank, rotated, heads, tokens int64
	groups                       int64 // heads of k, 0: kv_c has no such dimension
	adjacent, rotatedFirst, all  bool
	narrow                       bool // for types of 16 bits only
}

// latentCases has each kernel of AIter: a block of threads for each head, or for all heads of a token with 512 and 64 elements or with
// other sizes, for one head of k or more.
func latentCases() []latentCase {
	return []latentCase{
		{rank: 16, rotated: 8, heads: 2, tokens: 4}, {rank: 24, rotated: 4, heads: 3, tokens: 5, adjacent: true, rotatedFirst: true},
		{rank: 128, rotated: 64, heads: 2, tokens: 1}, {rank: 256, rotated: 64, heads: 3, tokens: 1, groups: 1, adjacent: true},
		{rank: 512, rotated: 64, heads: 2, tokens: 1, all: true, adjacent: true}, {rank: 512, rotated: 64, heads: 4, tokens: 4, groups: 1},
		{rank: 512, rotated: 64, heads: 5, tokens: 3, rotatedFirst: true, adjacent: true, all: true},
		{rank: 512, rotated: 64, heads: 9, tokens: 3, rotatedFirst: true}, {rank: 512, rotated: 64, heads: 4, tokens: 2, adjacent: true},
		{rank: 40, rotated: 16, heads: 4, tokens: 4, groups: 2},
		{rank: 16, rotated: 8, heads: 3, tokens: 4, groups: 3, rotatedFirst: true, adjacent: true},
		{rank: 512, rotated: 64, heads: 7, tokens: 4, groups: 5, adjacent: true, narrow: true},
		{rank: 512, rotated: 64, heads: 2, tokens: 4, groups: 2, rotatedFirst: true, narrow: true},
	}
}

func (c latentCase) call(dt, cache, out tensor.DType) optests.Call {
	of := func(dt tensor.DType, shape ...int64) optests.TensorArg {
		return optests.TensorArg{DType: dt, Shape: shape, Fill: normals(elements(shape))}
	}
	args := map[string]any{"q_nope": of(dt, 4, c.heads, c.rank), "q_pe": of(dt, 4, c.heads, c.rotated), "kv_c": of(dt, 4, c.rank),
		"k_pe": of(dt, 4, c.rotated), "kv_cache": of(cache, 9, c.tokens, c.rank+c.rotated), "q_out": of(out, 4, c.heads, c.rank+c.rotated),
		"slot_mapping": numbers(tensor.Int64, float64(9*c.tokens-1), -1, 1), "k_scale": numbers(tensor.Float32, 0.4),
		"q_scale": numbers(tensor.Float32, 0.3), "positions": numbers(tensor.Int64, 4, 2, 0, 3), "cos_cache": of(dt, 5, c.rotated/2),
		"sin_cache": of(dt, 5, c.rotated/2), "is_neox": !c.adjacent, "is_nope_first": !c.rotatedFirst, "compute_all_q_rope": c.all}
	if c.groups > 0 {
		args["kv_c"], args["k_pe"] = of(dt, 4, c.groups, c.rank), of(dt, 4, c.groups, c.rotated)
		args["kv_cache"] = of(cache, 9, c.tokens, c.groups, c.rank+c.rotated)
	}
	return optests.Call{Name: fmt.Sprintf("%s,%s,%s,%+v", dt, cache, out, c), Args: args}
}

// rotatedRows declares the rotation of queries and keys, and their writes to q_out and to the cache of latent attention.
func rotatedRows(m *upstreamModule, to targets.Target) {
	op := optests.Operator{Name: "aiter_fused_qk_rope_concat_and_cache_mla", Reference: latentRotated, Tolerance: latentTolerance}
	float8 := registry.Float8E4M3(to)
	for n, dt := range upstreamFloats() {
		for _, types := range [][2]tensor.DType{{dt, dt}, {float8, dt}, {float8, float8}} {
			for i, c := range latentCases() {
				if c.narrow && dt == tensor.Float32 {
					m.refused = append(m.refused, upstreamRefusal{op, c.call(dt, types[0], types[1]), "kv_c': expected float16 or bfloat16"})
					continue
				}
				call := c.call(dt, types[0], types[1])
				call.Seed = uint64(i + 20*n)
				op.Cases = append(op.Cases, call)
			}
		}
	}
	m.ops = append(m.ops, op)
	refuse := func(words string, c latentCase, dt tensor.DType) {
		call := c.call(dt, dt, dt)
		call.Name = words
		m.refused = append(m.refused, upstreamRefusal{op, call, words})
	}
	refuse("kv_c': expected 128 elements, or 256 and more, for blocks of one token, got 64",
		latentCase{rank: 64, rotated: 64, heads: 2, tokens: 1}, tensor.BFloat16)
	refuse("kv_c': expected 128 elements, or 256 and more, for blocks of one token, got 248",
		latentCase{rank: 248, rotated: 64, heads: 2, tokens: 1}, tensor.Float16)
	refuse("kv_c': expected a multiple of 8 elements", latentCase{rank: 12, rotated: 8, heads: 2, tokens: 2}, tensor.Float16)
	refuse("kv_c': expected 1 to 2 heads of k", latentCase{rank: 16, rotated: 8, heads: 2, groups: 3, tokens: 2}, tensor.Float16)
	refuse("compute_all_q_rope is only supported", latentCase{rank: 16, rotated: 8, heads: 2, tokens: 2, all: true}, tensor.Float16)
	refuse("q_pe': expected an even number of elements", latentCase{rank: 16, rotated: 7, heads: 2, tokens: 2}, tensor.Float16)
}

// latentTolerance allows the rounding of rotated elements, to bfloat16 not to the nearest.
func latentTolerance(name string, dt tensor.DType) optests.Tolerance {
	switch dt {
	case tensor.BFloat16:
		return optests.Tolerance{Rel: 1.001 / (1 << 7), Abs: 1e-6}
	case tensor.Float16:
		return optests.Tolerance{Rel: 1.001 / (1 << 11), Abs: 1e-6}
	case tensor.Float32:
		return optests.Tolerance{Rel: 1e-5, Abs: 1e-6}
	}
	return quantTolerance(name, dt)
}

// latentRotated writes rows of elements and rotated elements to a cache and to q_out. Scales are for 8-bit floats.
func latentRotated(in optests.Inputs) map[string][]float64 {
	cache, out := slices.Clone(in.Values["kv_cache"]), slices.Clone(in.Values["q_out"])
	rank, rotated, heads := int(in.Shape("q_nope")[2]), int(in.Shape("q_pe")[2]), int(in.Shape("q_nope")[1])
	row, wide, groups := rank+rotated, int(in.Shape("q_out")[2]), 1
	if s := in.Shape("kv_c"); len(s) == 3 {
		groups = int(s[1])
	}
	joined := func(plain, pairs, written string, i, t int) []float64 {
		first, second := in.Values[plain][i*rank:][:rank], rotatedRow(in, in.Values[pairs][i*rotated:][:rotated], t)
		if in.Call.Args["is_nope_first"] == false {
			first, second = second, first
		}
		list := slices.Concat(first, second)
		name := map[string]string{"kv_cache": "k_scale", "q_out": "q_scale"}[written]
		if in.Call.Args[written].(optests.TensorArg).DType.Size() == 1 {
			for i := range list {
				list[i] /= in.Values[name][0]
			}
		}
		return list
	}
	for t, slot := range in.Values["slot_mapping"] {
		for h := 0; h < heads && (slot >= 0 || in.Call.Args["compute_all_q_rope"] == true); h++ {
			copy(out[(t*heads+h)*wide:], joined("q_nope", "q_pe", "q_out", t*heads+h, t))
		}
		for g := 0; g < groups && slot >= 0; g++ {
			list := joined("kv_c", "k_pe", "kv_cache", t*groups+g, t)
			if s := in.Shape("kv_cache"); len(s) == 2 {
				writeSegments(cache, int(slot), int(s[1]), list[:rank], list[rank:])
			} else {
				copy(cache[(int(slot)*groups+g)*row:], list)
			}
		}
	}
	return map[string][]float64{"kv_cache": cache, "q_out": out}
}

// rotatedSegments declares the same for blocks of segments, of 8-bit floats. Elements of q_out behind the row keep their values.
func rotatedSegments(m *upstreamModule, to targets.Target) {
	op := optests.Operator{Name: "aiter_fused_qk_rope_concat_and_cache_mla_seg", Reference: latentRotated, Tolerance: latentTolerance}
	float8 := registry.Float8E4M3(to)
	for n, dt := range upstreamFloats()[1:] {
		for i, heads := range []int64{1, 3} {
			args := latentCase{rank: 512, rotated: 64, heads: heads, tokens: 64, adjacent: i > 0}.call(dt, float8, float8).Args
			delete(args, "compute_all_q_rope")
			for name, shape := range map[string][]int64{"kv_cache": {2, 64 * 576}, "q_out": {4, heads, 576 + 16*int64(i)}} {
				args[name] = optests.TensorArg{DType: float8, Shape: shape, Fill: normals(elements(shape))}
			}
			args["slot_mapping"] = numbers(tensor.Int64, 127, -1, 1)
			op.Cases = append(op.Cases, optests.Call{Name: fmt.Sprintf("%s,heads=%d", dt, heads), Seed: uint64(i + 2*n), Args: args})
		}
	}
	m.ops = append(m.ops, op)
	refuse := func(words string, change map[string]any) {
		c := optests.Call{Name: words, Args: merged(op.Cases[0].Args, change)}
		m.refused = append(m.refused, upstreamRefusal{op, c, words})
	}
	refuse("is_nope_first': expected true", map[string]any{"is_nope_first": false})
	short := optests.TensorArg{DType: float8, Shape: []int64{4, 1, 560}, Fill: normal}
	refuse("q_out': expected 576 elements or more", map[string]any{"q_out": short})
}
