//go:build linux

package optests_test

import (
	"math"
	"slices"

	targets "github.com/aiter-go/aiter/jit/target"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// gatedNormModule declares AIter's RMSNorm of heads with a gate. Numbers of heads are below and above those of a block, 32, and of a
// wave, 8.
func gatedNormModule(to targets.Target) upstreamModule {
	groups := optests.Operator{Name: "aiter_gated_rmsnorm_fp8_group_quant", Tolerance: gatedNormTolerance, Reference: gatedNormed}
	rows := optests.Operator{Name: "aiter_gated_rmsnorm_fp8_per_token_quant", Tolerance: gatedNormTolerance, Reference: gatedNormed}
	float8 := registry.Float8E4M3(to)
	for n, dt := range upstreamFloats()[1:] {
		of := func(dt tensor.DType, shape ...int64) optests.TensorArg {
			return optests.TensorArg{DType: dt, Shape: shape}
		}
		for i, s := range []struct{ tokens, heads int64 }{{3, 2}, {2, 9}, {1, 33}, {5, 1}} {
			x := of(dt, s.tokens, s.heads, 128)
			args := map[string]any{"out": of(float8, s.tokens, s.heads*128), "x": x, "z": x, "weight": of(dt, 128), "epsilon": 1e-5}
			apart := x
			apart.Order = []int{2, 0, 1} // heads are farther apart than tokens
			for j, transposed := range []bool{false, true} {
				scale := of(tensor.Float32, s.tokens, s.heads)
				if transposed {
					scale = of(tensor.Float32, s.heads, s.tokens)
				}
				more := map[string]any{"scale": scale, "group_size": 128, "transpose_scale": transposed}
				if transposed {
					more["x"] = apart
				}
				groups.Cases = append(groups.Cases, optests.Call{Seed: uint64(j + 2*i + 8*n), Args: merged(args, more)})
			}
			rows.Cases = append(rows.Cases, optests.Call{Seed: uint64(i + 4*n),
				Args: merged(args, map[string]any{"scale": of(tensor.Float32, s.tokens), "z": apart})})
		}
	}
	m := upstreamModule{name: "module_aiter_gated_rmsnorm_quant", ops: []optests.Operator{groups, rows}}
	refuse := func(op optests.Operator, words string, change map[string]any) {
		c := optests.Call{Name: words, Args: merged(op.Cases[0].Args, change)}
		m.refused = append(m.refused, upstreamRefusal{op, c, words})
	}
	of := func(dt tensor.DType, shape ...int64) optests.TensorArg {
		return optests.TensorArg{DType: dt, Shape: shape}
	}
	refuse(groups, "group_size': expected 128", map[string]any{"group_size": 64})
	refuse(groups, "scale': expected shape (2, 3)", map[string]any{"transpose_scale": true})
	refuse(groups, "out': expected shape (3, 256)", map[string]any{"out": of(float8, 3, 128)})
	many := of(tensor.Float16, 1, 129, 128)
	refuse(rows, "x': expected 128 heads at most",
		map[string]any{"x": many, "z": many, "out": of(float8, 1, 129*128), "scale": of(tensor.Float32, 1)})
	return m
}

// gatedNormTolerance allows the errors of -ffast-math.
func gatedNormTolerance(name string, dt tensor.DType) optests.Tolerance {
	if dt == tensor.Float32 {
		return optests.Tolerance{Rel: 1e-4}
	}
	return quantTolerance(name, dt)
}

// gatedNormed normalizes heads and divides those of a token, or each, by the largest element in units of the largest 8-bit float.
func gatedNormed(in optests.Inputs) map[string][]float64 {
	const size = 128
	tokens, heads := int(in.Shape("x")[0]), int(in.Shape("x")[1])
	out := slices.Clone(in.Values["x"])
	for head := range slices.Chunk(out, size) {
		sum := in.Call.Args["epsilon"].(float64)
		for _, v := range head {
			sum += v * v / size
		}
		for i := range head {
			head[i] *= in.Values["weight"][i] / math.Sqrt(sum)
		}
	}
	for i, v := range in.Values["z"] {
		out[i] *= v * sigmoid(v)
	}
	group, most := size, largest8Bit[in.Call.Args["out"].(optests.TensorArg).DType]
	if len(in.Shape("scale")) == 1 {
		group *= heads
	}
	scales := make([]float64, len(out)/group)
	for i := range scales {
		part := out[i*group:][:group]
		scale := 0.0
		for _, v := range part {
			scale = max(scale, math.Abs(v)/most)
		}
		if scale*most <= 1e-10 {
			scale = 1e-10
		}
		for j := range part {
			part[j] = max(-most, min(part[j]/scale, most))
		}
		at := i
		if in.Call.Args["transpose_scale"] == true {
			at = i%heads*tokens + i/heads
		}
		scales[at] = scale
	}
	return map[string][]float64{"out": out, "scale": scales}
}
