//go:build linux

package optests_test

import (
	"math"
	"math/rand/v2"
	"slices"

	targets "github.com/aiter-go/aiter/jit/target"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// quantizedTokens declares the write of tokens with a scale for each token of each head.
func quantizedTokens(m *upstreamModule, to targets.Target) {
	op := optests.Operator{Name: "aiter_reshape_and_cache_with_pertoken_quant", Tolerance: quantTolerance, Reference: tokensQuantized}
	for n, dt := range upstreamFloats() {
		of := func(dt tensor.DType, shape ...int64) optests.TensorArg {
			return optests.TensorArg{DType: dt, Shape: shape, Fill: normals(elements(shape))}
		}
		whole := func(dt tensor.DType, shape ...int64) optests.TensorArg { // int8 has no other numbers
			return optests.TensorArg{DType: dt, Shape: shape, Fill: func(r *rand.Rand, values []float64) {
				normals(elements(shape))(r, values)
				for i := range values {
					values[i] = math.Round(4 * values[i])
				}
			}}
		}
		for i, cache := range []tensor.DType{registry.Float8E4M3(to), tensor.Int8} {
			for j, s := range []struct {
				heads, size, x, tokens, blocks, more int64
				asm                                  bool
			}{{2, 16, 8, 4, 3, 0, false}, {3, 40, 4, 8, 2, 5, true}, {1, 512, 16, 16, 2, 1, true}, {2, 130, 2, 3, 2, 2, false}} {
				args := map[string]any{"key": of(dt, 3, s.heads, s.size), "value": of(dt, 3, s.heads, s.size), "asm_layout": s.asm,
					"slot_mapping": numbers(tensor.Int64, float64(s.blocks*s.tokens-1), -1, 1),
					"key_cache":    whole(cache, s.blocks, s.heads, s.size/s.x, s.tokens, s.x),
					"value_cache":  whole(cache, s.blocks, s.heads, s.size, s.tokens)}
				scales := of(tensor.Float32, s.heads, s.blocks*s.tokens+s.more)
				if s.asm {
					scales = of(tensor.Float32, s.blocks, s.heads, s.tokens)
					args["value_cache"] = whole(cache, s.blocks, s.heads, s.tokens/s.x, s.size, s.x)
				}
				args["k_dequant_scales"], args["v_dequant_scales"] = scales, scales
				op.Cases = append(op.Cases, optests.Call{Seed: uint64(j + 4*i + 8*n), Args: args})
			}
		}
	}
	m.ops = append(m.ops, op)
	refuse := func(words string, change map[string]any) {
		c := optests.Call{Name: words, Args: merged(op.Cases[0].Args, change)}
		m.refused = append(m.refused, upstreamRefusal{op, c, words})
	}
	f := func(shape ...int64) optests.TensorArg {
		return optests.TensorArg{DType: tensor.Float32, Shape: shape, Fill: normal}
	}
	short := f(2, 11)
	refuse("k_dequant_scales': expected rows of 3 * 4 elements or more", map[string]any{"k_dequant_scales": short, "v_dequant_scales": short})
	refuse("v_dequant_scales': expected the shape and the element type of k_dequant_scales", map[string]any{"v_dequant_scales": f(2, 13)})
	refuse("key_cache': expected blocks of a multiple of 8 tokens", map[string]any{"asm_layout": true})
	wide := optests.TensorArg{DType: op.Cases[0].Args["key_cache"].(optests.TensorArg).DType, Shape: []int64{3, 2, 65, 4, 8}, Fill: normal}
	wider := wide
	wider.Shape = []int64{3, 2, 520, 4}
	refuse("key': expected 512 elements of a head at most", map[string]any{"key": f(3, 2, 520), "value": f(3, 2, 520), "key_cache": wide,
		"value_cache": wider})
}

// tokensQuantized computes scales from the largest element of a row.
func tokensQuantized(in optests.Inputs) map[string][]float64 {
	want := map[string][]float64{}
	heads, size, s := int(in.Shape("key")[1]), int(in.Shape("key")[2]), in.Shape("key_cache")
	most, tokens := largest8Bit[in.Call.Args["key_cache"].(optests.TensorArg).DType], int(s[3])
	for _, names := range [][3]string{{"key", "key_cache", "k_dequant_scales"}, {"value", "value_cache", "v_dequant_scales"}} {
		cache, scales := slices.Clone(in.Values[names[1]]), slices.Clone(in.Values[names[2]])
		for t, slot := range in.Values["slot_mapping"] {
			for h := 0; h < heads && slot >= 0; h++ {
				row, scale := in.Values[names[0]][(t*heads+h)*size:][:size], 0.0
				for _, v := range row {
					scale = max(scale, math.Abs(v)/most)
				}
				block, offset := int(slot)/tokens, int(slot)%tokens
				if in.Call.Args["asm_layout"] == true {
					scales[(block*heads+h)*tokens+offset] = scale
				} else {
					scales[h*int(in.Shape(names[2])[1])+int(slot)] = scale
				}
				for i, v := range row {
					cache[placeOf(names[0])(in, block, offset, h, i)] = max(-most, min(v/max(scale, 1e-12), most))
				}
			}
		}
		want[names[1]], want[names[2]] = cache, scales
	}
	return want
}

// placeOf returns the function for the cache of keys or of values.
func placeOf(name string) cacheIndex {
	if name == "key" {
		return pagedKey
	}
	return pagedValue
}
