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

// indexerKeys declares the write of an indexer's keys. The cache consists of bytes: the code of an 8-bit float may be off by one.
func indexerKeys(to targets.Target) optests.Operator {
	op := optests.Operator{Name: "aiter_indexer_k_quant_and_cache", Reference: indexerReference(registry.Float8E4M3(to))}
	op.Tolerance = func(string, tensor.DType) optests.Tolerance { return optests.Tolerance{Abs: 1} }
	for n, dt := range upstreamFloats() {
		for i, c := range []struct {
			size, tokens, more int64
			format             string
			tiles              bool
		}{{128, 4, 4, "", false}, {256, 3, 12, "ue8m0", false}, {256, 16, 8, "", true}, {128, 32, 4, "ue8m0", true}} {
			cache := randomBytes(2, c.tokens, c.size+c.more)
			k := optests.TensorArg{DType: dt, Shape: []int64{4, c.size}, Fill: normals(4 * c.size)}
			op.Cases = append(op.Cases, optests.Call{Seed: uint64(i + 4*n), Args: map[string]any{"k": k, "kv_cache": cache,
				"slot_mapping":     numbers(tensor.Int64, float64(2*c.tokens-1), -1, 1, float64(c.tokens)),
				"quant_block_size": 128, "scale_fmt": c.format, "preshuffle": c.tiles}})
		}
	}
	return op
}

// indexerReference computes the bytes of the cache: in a block the elements of all tokens, then their scales.
func indexerReference(float8 tensor.DType) func(optests.Inputs) map[string][]float64 {
	return func(in optests.Inputs) map[string][]float64 {
		cache, s, size := slices.Clone(in.Values["kv_cache"]), in.Shape("kv_cache"), int(in.Shape("k")[1])
		tokens, bytes := int(s[1]), int(s[2])
		for t, slot := range in.Values["slot_mapping"] {
			for g := 0; g < size && slot >= 0; g += 128 {
				row, most := in.Values["k"][t*size+g:][:128], largest8Bit[float8]
				scale := 1e-4
				for _, v := range row {
					scale = max(scale, math.Abs(v))
				}
				if scale /= most; in.Call.Args["scale_fmt"] == "ue8m0" {
					scale = math.Exp2(math.Ceil(math.Log2(scale)))
				}
				block, offset := int(slot)/tokens*tokens*bytes, int(slot)%tokens
				putBytes(cache[block+tokens*size+(offset*size+g)/32:], tensor.Float32, scale)
				for i, v := range row {
					putBytes(cache[block+indexerPlace(in, offset, g+i, size):], float8, max(-most, min(v/scale, most)))
				}
			}
		}
		return map[string][]float64{"kv_cache": cache}
	}
}

// indexerPlace returns the place of an element of a token in its block.
func indexerPlace(in optests.Inputs, offset, i, size int) int {
	if in.Call.Args["preshuffle"] == true {
		return offset/16*16*size + i/16*256 + offset%16*16 + i%16
	}
	return offset*size + i
}

// randomBytes is a tensor of bytes. Floats of them are finite.
func randomBytes(shape ...int64) optests.TensorArg {
	return optests.TensorArg{DType: tensor.UInt8, Shape: shape, Fill: func(r *rand.Rand, values []float64) {
		if normals(elements(shape))(r, values); len(values) > 0 {
			for i := range values {
				values[i] = float64(r.IntN(126))
			}
		}
	}}
}

// putBytes writes the bytes of a number.
func putBytes(to []float64, dt tensor.DType, v float64) {
	x, err := tensor.FromFloat64s(dt, []float64{v}, 1)
	if err != nil {
		panic(err)
	}
	list, err := x.Bytes()
	if err != nil {
		panic(err)
	}
	for i, b := range list {
		to[i] = float64(b)
	}
}

// valuesOf returns the numbers whose bytes these are.
func valuesOf(dt tensor.DType, from []float64) []float64 {
	x, err := tensor.New(dt, int64(len(from))/int64(dt.Size()))
	if err != nil {
		panic(err)
	}
	list, err := x.Bytes()
	if err != nil {
		panic(err)
	}
	for i, v := range from {
		list[i] = byte(v)
	}
	values, err := x.Float64s()
	if err != nil {
		panic(err)
	}
	return values
}

// roundedTo rounds to an element type.
func roundedTo(dt tensor.DType, v float64) float64 {
	x, err := tensor.FromFloat64s(dt, []float64{v}, 1)
	if err != nil {
		panic(err)
	}
	values, err := x.Float64s()
	if err != nil {
		panic(err)
	}
	return values[0]
}

// indexerQueries declares the rotation and the write of queries and keys of an indexer. Scales of float32 keys are powers of 2: the
// bytes of other scales would show each rounding.
func indexerQueries(to targets.Target) optests.Operator {
	float8 := registry.Float8E4M3(to)
	op := optests.Operator{Name: "aiter_indexer_qk_rope_quant_and_cache", Reference: indexerQueryReference(float8)}
	op.Tolerance = func(name string, dt tensor.DType) optests.Tolerance {
		if name == "kv_cache" {
			return optests.Tolerance{Abs: 1}
		}
		return quantTolerance(name, dt)
	}
	for n, dt := range upstreamFloats() {
		of := func(dt tensor.DType, shape ...int64) optests.TensorArg {
			return optests.TensorArg{DType: dt, Shape: shape, Fill: normals(elements(shape))}
		}
		for i, c := range []struct {
			heads, tokens, more int64
			format              string
			tiles, adjacent     bool
		}{{1, 4, 4, "ue8m0", false, false}, {3, 16, 8, "ue8m0", true, true}, {2, 3, 12, "", false, true}, {2, 32, 4, "", true, false}} {
			if c.format == "" && dt == tensor.Float32 {
				continue
			}
			op.Cases = append(op.Cases, optests.Call{Seed: uint64(i + 4*n), Args: map[string]any{"q": of(dt, 4, c.heads, 128),
				"q_out": of(float8, 4, c.heads, 128), "weights": of(dt, 4, c.heads), "weights_out": of(tensor.Float32, 4, c.heads),
				"k": of(dt, 4, 128), "kv_cache": randomBytes(2, c.tokens, 128+c.more),
				"slot_mapping": numbers(tensor.Int64, float64(2*c.tokens-1), -1, 1), "norm_weight": of(tensor.Float32, 128),
				"norm_bias": of(tensor.Float32, 128), "positions": numbers(tensor.Int64, 4, 99, 0, 99), "cos_cache": of(dt, 5, 32),
				"sin_cache": of(dt, 5, 32), "epsilon": 1e-5, "quant_block_size": 128, "scale_fmt": c.format, "weights_scale": 0.3,
				"preshuffle": c.tiles, "is_neox": !c.adjacent}})
		}
	}
	return op
}

// rotatedRow rotates pairs of elements by the angle of a position.
func rotatedRow(in optests.Inputs, row []float64, token int) []float64 {
	half, out := int(in.Shape("cos_cache")[1]), slices.Clone(row)
	p := int(in.Values["positions"][token])
	for i := range half {
		a, b := 2*i, 2*i+1
		if in.Call.Args["is_neox"] == true {
			a, b = i, i+half
		}
		c, s := in.Values["cos_cache"][p*half+i], in.Values["sin_cache"][p*half+i]
		out[a], out[b] = row[a]*c-row[b]*s, row[b]*c+row[a]*s
	}
	return out
}

// indexerQueryReference rounds the keys after their LayerNorm and all rotated elements to the type of the inputs, as AIter does.
func indexerQueryReference(float8 tensor.DType) func(optests.Inputs) map[string][]float64 {
	const size = 128
	return func(in optests.Inputs) map[string][]float64 {
		want := map[string][]float64{}
		for _, name := range []string{"q_out", "weights_out", "kv_cache"} {
			want[name] = slices.Clone(in.Values[name])
		}
		dt, most := in.Call.Args["q"].(optests.TensorArg).DType, largest8Bit[float8]
		heads, s := int(in.Shape("q")[1]), in.Shape("kv_cache")
		quantized := func(row []float64, t int, least float64) ([]float64, float64) {
			scale := least
			row = slices.Concat(rotatedRow(in, row[:64], t), row[64:])
			for i := range row {
				row[i] = roundedTo(dt, row[i])
				scale = max(scale, math.Abs(row[i]))
			}
			if scale /= most; in.Call.Args["scale_fmt"] == "ue8m0" {
				scale = math.Exp2(math.Ceil(math.Log2(scale)))
			}
			for i := range row {
				row[i] = max(-most, min(row[i]/scale, most))
			}
			return row, scale
		}
		for t, slot := range in.Values["slot_mapping"] {
			if slot < 0 {
				continue
			}
			for h := range heads {
				row, scale := quantized(in.Values["q"][(t*heads+h)*size:][:size], t, 1e-10)
				copy(want["q_out"][(t*heads+h)*size:], row)
				want["weights_out"][t*heads+h] = in.Values["weights"][t*heads+h] * scale * in.Call.Args["weights_scale"].(float64)
			}
			k := slices.Clone(in.Values["k"][t*size:][:size])
			mean, variance := 0.0, 0.0
			for _, v := range k {
				mean += v / size
			}
			for _, v := range k {
				variance += (v - mean) * (v - mean) / size
			}
			for i, v := range k {
				v = (v - mean) / math.Sqrt(variance+in.Call.Args["epsilon"].(float64))
				k[i] = roundedTo(dt, v*in.Values["norm_weight"][i]+in.Values["norm_bias"][i])
			}
			row, scale := quantized(k, t, 1e-4)
			block, offset := want["kv_cache"][int(slot)/int(s[1])*int(s[1]*s[2]):], int(slot)%int(s[1])
			putBytes(block[int(s[1])*size+offset*4:], tensor.Float32, scale)
			for i, v := range row {
				putBytes(block[indexerPlace(in, offset, i, size):], float8, v)
			}
		}
		return want
	}
}

// gatheredKeys declares the copy of an indexer's keys. Numbers of tokens are below and above those at which AIter uses another kernel.
func gatheredKeys(to targets.Target) optests.Operator {
	op := optests.Operator{Name: "aiter_cp_gather_indexer_k_quant_cache", Reference: gathered}
	op.Tolerance = func(string, tensor.DType) optests.Tolerance { return optests.Tolerance{} }
	for i, c := range []struct {
		size, tokens, more int64
		ends               []float64
		float8, tiles      bool
	}{{128, 4, 4, []float64{0, 3, 3, 10}, false, false}, {256, 16, 8, []float64{0, 33, 40}, true, true},
		{128, 16, 4, []float64{0, 70}, true, false},
		{384, 32, 12, []float64{0, 1, 2, 3, 4, 5, 6, 7, 8, 130}, false, true}, {128, 64, 4, []float64{0, 200, 300}, false, false},
		{128, 64, 4, []float64{0, 520}, true, true}} {
		n, sequences, most := int64(c.ends[len(c.ends)-1]), int64(len(c.ends)-1), int64(0)
		for s := range sequences {
			most = max(most, (int64(c.ends[s+1]-c.ends[s])+c.tokens-1)/c.tokens)
		}
		table := optests.TensorArg{DType: tensor.Int32, Shape: []int64{sequences, most}, Fill: func(r *rand.Rand, values []float64) {
			normals(sequences*most)(r, values)
			for i := range values {
				values[i] = float64(r.IntN(3))
			}
		}}
		keys := optests.TensorArg{DType: tensor.UInt8, Shape: []int64{n, c.size}}
		scales := optests.TensorArg{DType: tensor.UInt8, Shape: []int64{n, c.size / 32}}
		if c.float8 {
			keys.DType = registry.Float8E4M3(to)
			scales.DType, scales.Shape = tensor.Float32, []int64{n, c.size / 128}
		}
		op.Cases = append(op.Cases, optests.Call{Seed: uint64(i), Args: map[string]any{"kv_cache": randomBytes(3, c.tokens, c.size+c.more),
			"dst_k": keys, "dst_scale": scales, "block_table": table, "cu_seq_lens": numbers(tensor.Int32, c.ends...), "preshuffle": c.tiles}})
	}
	return op
}

// gathered copies bytes, and reads them as the outputs' types.
func gathered(in optests.Inputs) map[string][]float64 {
	s, size := in.Shape("kv_cache"), int(in.Shape("dst_k")[1])
	tokens, blocks := int(s[1]), int(in.Shape("block_table")[1])
	var keys, scales []float64
	ends := in.Values["cu_seq_lens"]
	for i := range len(ends) - 1 {
		for t := range int(ends[i+1] - ends[i]) {
			block := in.Values["kv_cache"][int(in.Values["block_table"][i*blocks+t/tokens])*tokens*int(s[2]):]
			for e := range size {
				keys = append(keys, block[indexerPlace(in, t%tokens, e, size)])
			}
			scales = append(scales, block[tokens*size+t%tokens*size/32:][:size/32]...)
		}
	}
	of := func(name string) tensor.DType { return in.Call.Args[name].(optests.TensorArg).DType }
	return map[string][]float64{"dst_k": valuesOf(of("dst_k"), keys), "dst_scale": valuesOf(of("dst_scale"), scales)}
}
