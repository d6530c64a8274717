//go:build linux

package optests_test

import (
	"math"
	"math/rand/v2"

	targets "github.com/aiter-go/aiter/jit/target"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/op_tests/aiterops"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// quantModule declares AIter's quantization. The target has one of two 8-bit floats.
func quantModule(to targets.Target) upstreamModule {
	fixed, whole := aiterops.Operator("aiter_static_per_tensor_quant"), aiterops.Operator("aiter_dynamic_per_tensor_quant")
	rows := aiterops.Operator("aiter_dynamic_per_token_scaled_quant")
	for _, dt := range upstreamFloats()[1:] {
		for _, out := range []tensor.DType{registry.Float8E4M3(to), tensor.Int8} {
			for _, d := range []int64{48, 128, 512} {
				of := func(dt tensor.DType, shape ...int64) optests.TensorArg {
					return optests.TensorArg{DType: dt, Shape: shape}
				}
				args := func(scale string, t optests.TensorArg) map[string]any {
					return map[string]any{"out": of(out, 3, d), "input": of(dt, 3, d), scale: t}
				}
				given := of(tensor.Float32, 1)
				given.Fill = set64(0.05)
				fixed.Cases = append(fixed.Cases, optests.Call{Args: args("scale", given)})
				whole.Cases = append(whole.Cases, optests.Call{Args: args("scale", of(tensor.Float32, 1))})
				rows.Cases = append(rows.Cases, optests.Call{Args: args("scales", of(tensor.Float32, 3, 1))})
			}
		}
	}
	// Rows from num_rows * num_rows_factor on keep their values, and scale_ub changes nothing.
	for n, dt := range upstreamFloats()[1:] {
		kept := func(_ *rand.Rand, values []float64) {
			for i := range values {
				values[i] = float64(i % 3)
			}
		}
		rows.Cases = append(rows.Cases, optests.Call{Seed: uint64(n), Args: map[string]any{
			"out":    optests.TensorArg{DType: tensor.Int8, Shape: []int64{6, 48}, Fill: kept},
			"input":  optests.TensorArg{DType: dt, Shape: []int64{6, 48}},
			"scales": optests.TensorArg{DType: tensor.Float32, Shape: []int64{6, 1}, Fill: kept}, "scale_ub": numbers(tensor.Float32, 1.5),
			"num_rows": numbers(tensor.Int32, 2), "num_rows_factor": 2}})
	}
	m := upstreamModule{name: "module_aiter_quant", ops: []optests.Operator{fixed, whole, rows}}
	quantizedGroups(&m, to)
	return m
}

// quantizedGroups declares the quantization with a scale for each group of elements. Numbers of groups are below and above those of a
// block: 64, 32 and 16 for groups of 32, 64 and 128 elements.
func quantizedGroups(m *upstreamModule, to targets.Target) {
	op := optests.Operator{Name: "aiter_dynamic_per_group_scaled_quant", Reference: groupsQuantized}
	op.Tolerance = func(name string, dt tensor.DType) optests.Tolerance {
		switch {
		case dt == tensor.UInt8, dt == tensor.Float8E8M0FNU:
			return optests.Tolerance{}
		case dt == tensor.Int8:
			return optests.Tolerance{Abs: 1.001} // 126.999 is 126
		}
		return quantTolerance(name, dt)
	}
	float8 := registry.Float8E4M3(to)
	of := func(dt tensor.DType, shape ...int64) optests.TensorArg {
		return optests.TensorArg{DType: dt, Shape: shape}
	}
	for n, dt := range upstreamFloats()[1:] {
		for i, c := range []struct {
			rows, columns, group int64
			out, scale           tensor.DType
			shuffle              bool
			used                 float64 // num_rows, of rows / 3; 0: not given
		}{
			{3, 256, 128, float8, tensor.Float32, false, 0}, {5, 640, 128, tensor.Int8, tensor.Float32, true, 0},
			{9, 320, 32, float8, tensor.Float32, true, 2}, {6, 448, 64, float8, tensor.UInt8, false, 0},
			{7, 384, 128, float8, tensor.UInt8, true, 0}, {4, 96, 32, float8, tensor.UInt8, false, 0},
			{3, 2048, 64, tensor.Int8, tensor.Float32, false, 1},
		} {
			groups := c.columns / c.group
			args := map[string]any{"out": of(c.out, c.rows, c.columns), "input": of(dt, c.rows, c.columns), "scales": of(c.scale, c.rows, groups),
				"group_size": int(c.group), "shuffle_scale": c.shuffle}
			if c.shuffle {
				args["scales"] = of(c.scale, groups, c.rows)
			}
			if c.used > 0 { // the other rows keep their values
				out, scales := args["out"].(optests.TensorArg), args["scales"].(optests.TensorArg)
				whole := func(_ *rand.Rand, values []float64) {
					for i := range values {
						values[i] = float64(i % 3)
					}
				}
				out.Fill, scales.Fill = whole, whole
				args["out"], args["scales"] = out, scales
				args["num_rows"], args["num_rows_factor"] = numbers(tensor.Int32, c.used), int(c.rows/3)
			}
			op.Cases = append(op.Cases, optests.Call{Seed: uint64(i + 7*n), Args: args})
		}
	}
	m.ops = append(m.ops, op)
	refuse := func(words string, change map[string]any) {
		c := optests.Call{Name: words, Args: merged(op.Cases[0].Args, change)}
		m.refused = append(m.refused, upstreamRefusal{op, c, words})
	}
	refuse("group_size': expected 32, 64 or 128", map[string]any{"group_size": 256})
	refuse("scales': expected 12 elements", map[string]any{"group_size": 64})
	refuse("scales': expected float32, or bytes of powers of 2 for 8-bit floats",
		map[string]any{"out": of(tensor.Int8, 3, 256), "scales": of(tensor.UInt8, 3, 2)})
	refuse("shuffle_scale': expected false for bytes with groups of 32 elements",
		map[string]any{"group_size": 32, "shuffle_scale": true, "scales": of(tensor.UInt8, 8, 3)})
}

// groupsQuantized divides the elements of a group by the largest, in units of the largest value of the type. Scales of a byte are
// powers of 2.
func groupsQuantized(in optests.Inputs) map[string][]float64 {
	rows, columns, group := int(in.Shape("input")[0]), int(in.Shape("input")[1]), in.Call.Args["group_size"].(int)
	groups, used := columns/group, rows
	most := largest8Bit[in.Call.Args["out"].(optests.TensorArg).DType]
	out, scales := make([]float64, rows*columns), make([]float64, rows*groups)
	if n := in.Values["num_rows"]; n != nil {
		used = int(n[0]) * in.Call.Args["num_rows_factor"].(int)
		copy(out, in.Values["out"])
		copy(scales, in.Values["scales"])
	}
	for i := range used * groups {
		part, scale := in.Values["input"][i*group:][:group], 1e-10/most
		for _, v := range part {
			scale = max(scale, math.Abs(v)/most)
		}
		kept, at := scale, i
		if dt := in.Call.Args["scales"].(optests.TensorArg).DType; dt != tensor.Float32 {
			scale = math.Exp2(math.Ceil(math.Log2(scale)))
			if kept = scale; dt == tensor.UInt8 {
				kept = math.Log2(scale) + 127
			}
		}
		if in.Call.Args["shuffle_scale"] == true {
			at = i%groups*used + i/groups
		}
		scales[at] = kept
		for j, v := range part {
			out[i*group+j] = max(-most, min(v/scale, most))
		}
	}
	return map[string][]float64{"out": out, "scales": scales}
}

var quantTolerance = aiterops.QuantTolerance

var largest8Bit = map[tensor.DType]float64{tensor.Float8E4M3FNUZ: 240, tensor.Float8E4M3FN: 448, tensor.Int8: 127}
