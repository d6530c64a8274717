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

// cacheModule declares AIter's writes to paged caches. Slots are not in order, one is left out, and the elements that no token writes
// keep their values.
func cacheModule(to targets.Target) upstreamModule {
	paged := optests.Operator{Name: "aiter_reshape_and_cache", Reference: pagedCache, Tolerance: cacheTolerance}
	flash := optests.Operator{Name: "aiter_reshape_and_cache_flash", Reference: pagedFlash, Tolerance: cacheTolerance}
	latent := optests.Operator{Name: "aiter_concat_and_cache_mla", Reference: latentCache, Tolerance: cacheTolerance}
	m := upstreamModule{name: "module_aiter_cache"}
	for n, dt := range upstreamFloats() {
		of := func(dt tensor.DType, shape ...int64) optests.TensorArg {
			return optests.TensorArg{DType: dt, Shape: shape, Fill: normals(elements(shape))}
		}
		for i, word := range []string{"auto", "fp8", "fp8_e4m3"} {
			cache, index := dt, []tensor.DType{tensor.Int64, tensor.Int32}[(i+n)%2]
			if word != "auto" {
				cache = registry.Float8E4M3(to)
			}
			scale := func(v float64) optests.TensorArg { return numbers(tensor.Float32, v) }
			for j, s := range []struct{ heads, size, x, tokens, blocks int64 }{{2, 16, 8, 4, 3}, {3, 40, 4, 8, 2}, {5, 128, 16, 16, 2}} {
				args := map[string]any{"key": of(dt, 3, s.heads, s.size), "value": of(dt, 3, s.heads, s.size),
					"slot_mapping": numbers(index, float64(s.blocks*s.tokens-1), -1, 1), "kv_cache_dtype": word}
				shape := []int64{s.blocks, s.tokens, s.heads, s.size}
				more := map[string]any{"key_cache": of(cache, shape...), "value_cache": of(cache, shape...), "k_scale": scale(0.5),
					"v_scale": scale(0.3)}
				flash.Cases = append(flash.Cases, optests.Call{Seed: uint64(j), Args: merged(args, more)})
				more = map[string]any{"key_cache": of(cache, s.blocks, s.heads, s.size/s.x, s.tokens, s.x),
					"value_cache": of(cache, s.blocks, s.heads, s.size, s.tokens)}
				if j == 0 && i == 0 {
					asm := merged(args, merged(more, map[string]any{"asm_layout": true}))
					m.refused = append(m.refused, upstreamRefusal{paged, optests.Call{Name: "4 tokens, x=8", Args: asm},
						"argument 'key_cache': expected blocks of a multiple of 8 tokens"})
				}
				if j > 0 {
					more["asm_layout"] = true
					more["value_cache"] = of(cache, s.blocks, s.heads, s.tokens/s.x, s.size, s.x)
				}
				if word == "fp8" {
					more["k_scale"], more["v_scale"] = scale(0.5), scale(0.3)
				}
				paged.Cases = append(paged.Cases, optests.Call{Seed: uint64(j), Args: merged(args, more)})
			}
			row := func(rank, rotated int64) map[string]any {
				return map[string]any{"kv_c": of(dt, 4, rank), "k_pe": of(dt, 4, rotated), "kv_cache": of(cache, 3, 5, rank+rotated),
					"slot_mapping": numbers(tensor.Int64, 14, -1, 6), "kv_cache_dtype": word, "scale": scale(0.4)}
			}
			for j, s := range [][2]int64{{13, 6}, {64, 32}, {512, 64}, {2048, 128}, {8, 3}, {520, 0}} {
				latent.Cases = append(latent.Cases, optests.Call{Seed: uint64(j), Args: row(s[0], s[1])})
			}
			most, more := int64(64), int64(72)
			if dt == tensor.Float32 {
				most, more = 32, 40
			}
			latent.Cases = append(latent.Cases, optests.Call{Args: row(64, most)})
			m.refused = append(m.refused, upstreamRefusal{latent, optests.Call{Args: row(64, more)},
				fmt.Sprintf("argument 'k_pe': expected rows of %d elements at most", most)})
		}
	}
	m.ops = []optests.Operator{paged, flash, latent, indexerKeys(to), indexerQueries(to), gatheredKeys(to)}
	more := []func(*upstreamModule, targets.Target){quantizedTokens, segmentedRows, rotatedRows, rotatedSegments}
	for _, add := range more {
		add(&m, to)
	}
	return m
}

// merged joins two lists of arguments.
func merged(a, b map[string]any) map[string]any {
	all := map[string]any{}
	for _, list := range []map[string]any{a, b} {
		for name, v := range list {
			all[name] = v
		}
	}
	return all
}

// cacheTolerance allows the rounding to 8 bits. Other values are copied.
func cacheTolerance(name string, dt tensor.DType) optests.Tolerance {
	switch dt {
	case tensor.Float8E4M3FN, tensor.Float8E4M3FNUZ:
		return quantTolerance(name, dt)
	}
	return optests.Tolerance{}
}

// scaled returns v as a cache holds it: divided by the scale in a cache of 8-bit floats.
func scaled(in optests.Inputs, v float64, scale string) float64 {
	if s := in.Values[scale]; s != nil && in.Call.Args["kv_cache_dtype"] != "auto" {
		return v / s[0]
	}
	return v
}

// cacheIndex returns the index of an element in a cache. offset is that of its token in the block.
type cacheIndex func(in optests.Inputs, block, offset, head, element int) int

// pagedKey is for keys (block, head, element / x, offset, x).
func pagedKey(in optests.Inputs, block, offset, head, element int) int {
	s := in.Shape("key_cache")
	heads, groups, tokens, x := int(s[1]), int(s[2]), int(s[3]), int(s[4])
	return (((block*heads+head)*groups+element/x)*tokens+offset)*x + element%x
}

// pagedValue is for values (block, head, element, offset), or (block, head, offset / x, element, x).
func pagedValue(in optests.Inputs, block, offset, head, element int) int {
	s := in.Shape("value_cache")
	if len(s) == 4 {
		return ((block*int(s[1])+head)*int(s[2])+element)*int(s[3]) + offset
	}
	return (((block*int(s[1])+head)*int(s[2])+offset/int(s[4]))*int(s[3])+element)*int(s[4]) + offset%int(s[4])
}

// pagedCache is for caches with the layouts of pagedKey and pagedValue.
func pagedCache(in optests.Inputs) map[string][]float64 {
	return writeTokens(in, int(in.Shape("key_cache")[3]), pagedKey, pagedValue)
}

// writeTokens writes the tokens that have a slot; tokens is the number of tokens of a block.
func writeTokens(in optests.Inputs, tokens int, key, value cacheIndex) map[string][]float64 {
	keys, values := slices.Clone(in.Values["key_cache"]), slices.Clone(in.Values["value_cache"])
	heads, size := int(in.Shape("key")[1]), int(in.Shape("key")[2])
	for t, slot := range in.Values["slot_mapping"] {
		for i := 0; i < heads*size && slot >= 0; i++ {
			block, offset := int(slot)/tokens, int(slot)%tokens
			keys[key(in, block, offset, i/size, i%size)] = scaled(in, in.Values["key"][t*heads*size+i], "k_scale")
			values[value(in, block, offset, i/size, i%size)] = scaled(in, in.Values["value"][t*heads*size+i], "v_scale")
		}
	}
	return map[string][]float64{"key_cache": keys, "value_cache": values}
}

// pagedFlash is for caches (block, offset, head, element).
func pagedFlash(in optests.Inputs) map[string][]float64 {
	s := in.Shape("key_cache")
	at := func(_ optests.Inputs, block, offset, head, element int) int {
		return ((block*int(s[1])+offset)*int(s[2])+head)*int(s[3]) + element
	}
	return writeTokens(in, int(s[1]), at, at)
}

// latentCache writes rows of both tensors to a cache (block, offset, element).
func latentCache(in optests.Inputs) map[string][]float64 {
	cache := slices.Clone(in.Values["kv_cache"])
	rank, rotated := int(in.Shape("kv_c")[1]), int(in.Shape("k_pe")[1])
	for t, slot := range in.Values["slot_mapping"] {
		if slot < 0 {
			continue
		}
		row := cache[int(slot)*(rank+rotated):][:rank+rotated]
		for i := range row {
			if i < rank {
				row[i] = scaled(in, in.Values["kv_c"][t*rank+i], "scale")
			} else {
				row[i] = scaled(in, in.Values["k_pe"][t*rotated+i-rank], "scale")
			}
		}
	}
	return map[string][]float64{"kv_cache": cache}
}
