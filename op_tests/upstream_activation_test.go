//go:build linux

package optests_test

import (
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/op_tests/aiterops"
	"github.com/aiter-go/aiter/tensor"
)

// activationModules declares AIter's elementwise operators, with and without a gate.
func activationModules() []upstreamModule {
	unary := upstreamModule{name: "module_aiter_unary", more: []string{"gfx90a", "gfx950", "gfx1100", "gfx1201"}}
	for _, name := range []string{"aiter_sigmoid", "aiter_tanh"} {
		op := aiterops.Operator(name)
		for n, dt := range upstreamFloats() {
			for _, shape := range [][]int64{{8, 16}, {2, 16, int64(8 * (n + 1))}} {
				op.Cases = append(op.Cases, optests.Call{Args: map[string]any{"out": optests.TensorArg{DType: dt, Shape: shape},
					"input": optests.TensorArg{DType: dt, Shape: shape}}})
			}
		}
		unary.ops = append(unary.ops, op)
	}
	activation := upstreamModule{name: "module_aiter_activation"}
	for _, name := range []string{"silu", "gelu", "swiglu"} {
		plain, bias := aiterops.Operator("aiter_"+name+"_and_mul"), aiterops.Operator("aiter_"+name+"_and_mul_bias")
		plain.Cases, bias.Cases = gatedCases(false), gatedCases(true)
		if name == "silu" {
			for _, dt := range upstreamFloats() {
				c := gatedCall(dt, dt, 2, 64)
				c.Args["limit"] = 0.75
				plain.Cases = append(plain.Cases, c)
			}
		}
		activation.ops = append(activation.ops, plain, bias)
	}
	fast, byTanh := aiterops.Operator("aiter_gelu_fast"), aiterops.Operator("aiter_gelu_tanh_and_mul")
	for _, dt := range upstreamFloats()[1:] {
		for _, n := range []int64{24, 2048} {
			x := optests.TensorArg{DType: dt, Shape: []int64{n}}
			fast.Cases = append(fast.Cases, optests.Call{Args: map[string]any{"out": x, "input": x}})
		}
	}
	byTanh.Cases = gatedCases(false)
	activation.ops = append(activation.ops, fast, byTanh)
	return []upstreamModule{unary, activation}
}

func upstreamFloats() []tensor.DType {
	return []tensor.DType{tensor.Float32, tensor.Float16, tensor.BFloat16}
}

func gatedCall(in, out tensor.DType, rows, d int64) optests.Call {
	return optests.Call{Args: map[string]any{"out": optests.TensorArg{DType: out, Shape: []int64{rows, d}},
		"input": optests.TensorArg{DType: in, Shape: []int64{rows, 2 * d}}}}
}

func gatedCases(bias bool) []optests.Call {
	var list []optests.Call
	for n, types := range [][2]tensor.DType{{tensor.Float32, tensor.Float32}, {tensor.Float16, tensor.Float16},
		{tensor.BFloat16, tensor.BFloat16}, {tensor.Float32, tensor.BFloat16}, {tensor.Float32, tensor.Float16}} {
		for _, d := range []int64{10, 64, 512} {
			c := gatedCall(types[0], types[1], 3, d)
			if bias {
				c.Args["expert_ids"] = optests.TensorArg{DType: []tensor.DType{tensor.Int32, tensor.Int64}[n%2], Shape: []int64{3},
					Fill: set64(1, -1, 0)}
				c.Args["bias"] = optests.TensorArg{DType: tensor.Float32, Shape: []int64{2, 2 * d}}
			}
			list = append(list, c)
		}
	}
	return list
}
