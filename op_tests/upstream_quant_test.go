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

// quantModule declares AIter's quantization. The target has one of two 8-bit floats.
func quantModule(to targets.Target) upstreamModule {
	fixed := optests.Operator{Name: "aiter_static_per_tensor_quant", Tolerance: quantTolerance, Reference: quantized("scale", false)}
	whole := optests.Operator{Name: "aiter_dynamic_per_tensor_quant", Tolerance: quantTolerance, Reference: quantized("scale", true)}
	rows := optests.Operator{Name: "aiter_dynamic_per_token_scaled_quant", Tolerance: quantTolerance, Reference: quantized("scales", true)}
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
	return upstreamModule{name: "module_aiter_quant", ops: []optests.Operator{fixed, whole, rows}}
}

// quantTolerance allows the rounding to 8 bits, of a quotient that is off in its last bit.
func quantTolerance(_ string, dt tensor.DType) optests.Tolerance {
	switch dt {
	case tensor.Float8E4M3FN, tensor.Float8E4M3FNUZ:
		return optests.Tolerance{Rel: 1.001 / (1 << 4), Abs: 1.0 / (1 << 10)}
	case tensor.Int8:
		return optests.Tolerance{Abs: 1}
	}
	return optests.Tolerance{Rel: 1e-5}
}

var largest8Bit = map[tensor.DType]float64{tensor.Float8E4M3FNUZ: 240, tensor.Float8E4M3FN: 448, tensor.Int8: 127}

// quantized divides by a scale: the given one, or that of the largest element of the tensor or of a row.
func quantized(name string, dynamic bool) func(optests.Inputs) map[string][]float64 {
	return func(in optests.Inputs) map[string][]float64 {
		most := largest8Bit[in.Call.Args["out"].(optests.TensorArg).DType]
		x, group := in.Values["input"], len(in.Values["input"])
		if name == "scales" {
			group = int(in.Shape("input")[1])
		}
		var out, scales []float64
		for part := range slices.Chunk(x, group) {
			scale := 0.0
			if dynamic {
				for _, v := range part {
					scale = max(scale, math.Abs(v)/most)
				}
				scales = append(scales, scale)
			} else {
				scale = in.Values[name][0]
			}
			for _, v := range part {
				out = append(out, max(-most, min(v/scale, most)))
			}
		}
		return map[string][]float64{"out": out, name: scales}
	}
}
