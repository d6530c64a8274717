//go:build linux

package optests_test

import (
	"math"
	"slices"

	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

// activationModules declares AIter's elementwise operators, with and without a gate.
func activationModules() []upstreamModule {
	unary := upstreamModule{name: "module_aiter_unary", more: []string{"gfx1100"}}
	for name, f := range map[string]func(float64) float64{"aiter_sigmoid": sigmoid, "aiter_tanh": math.Tanh} {
		op := optests.Operator{Name: name, Reference: each(f)}
		for n, dt := range upstreamFloats() {
			for _, shape := range [][]int64{{8, 16}, {2, 16, int64(8 * (n + 1))}} {
				op.Cases = append(op.Cases, optests.Call{Args: map[string]any{"out": optests.TensorArg{DType: dt, Shape: shape},
					"input": optests.TensorArg{DType: dt, Shape: shape}}})
			}
		}
		unary.ops = append(unary.ops, op)
	}
	activation := upstreamModule{name: "module_aiter_activation"}
	for name, f := range map[string]func(x, gate float64) float64{
		"silu": func(x, gate float64) float64 { return x * sigmoid(x) * gate },
		"gelu": func(x, gate float64) float64 { return gelu(x) * gate }, "swiglu": swiglu,
	} {
		plain := optests.Operator{Name: "aiter_" + name + "_and_mul", Reference: gated(f), Cases: gatedCases(false)}
		if name == "silu" {
			for _, dt := range upstreamFloats() {
				c := gatedCall(dt, dt, 2, 64)
				c.Args["limit"] = 0.75
				plain.Cases = append(plain.Cases, c)
			}
		}
		activation.ops = append(activation.ops, plain,
			optests.Operator{Name: "aiter_" + name + "_and_mul_bias", Reference: gated(f), Cases: gatedCases(true)})
	}
	fast := optests.Operator{Name: "aiter_gelu_fast", Reference: each(geluTanh)}
	for _, dt := range upstreamFloats()[1:] {
		for _, n := range []int64{24, 2048} {
			x := optests.TensorArg{DType: dt, Shape: []int64{n}}
			fast.Cases = append(fast.Cases, optests.Call{Args: map[string]any{"out": x, "input": x}})
		}
	}
	activation.ops = append(activation.ops, fast, optests.Operator{Name: "aiter_gelu_tanh_and_mul", Cases: gatedCases(false),
		Reference: gated(func(x, gate float64) float64 { return geluTanh(x) * gate })})
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

func each(f func(float64) float64) func(optests.Inputs) map[string][]float64 {
	return func(in optests.Inputs) map[string][]float64 {
		out := slices.Clone(in.Values["input"])
		for i := range out {
			out[i] = f(out[i])
		}
		return map[string][]float64{"out": out}
	}
}

// gated applies f to the halves of each row, after the addition of the bias of the row's expert. Rows of no expert are 0.
func gated(f func(x, gate float64) float64) func(optests.Inputs) map[string][]float64 {
	return func(in optests.Inputs) map[string][]float64 {
		d := int(in.Shape("out")[1])
		out := make([]float64, 0, d*int(in.Shape("out")[0]))
		limit, _ := in.Call.Args["limit"].(float64)
		for row := range int(in.Shape("out")[0]) {
			x := slices.Clone(in.Values["input"][row*2*d:][:2*d])
			expert := 0
			if ids := in.Values["expert_ids"]; ids != nil {
				expert = int(ids[row])
				for i := range x {
					if expert >= 0 {
						x[i] += in.Values["bias"][expert*2*d+i]
					}
				}
			}
			for i := range d {
				u, v := x[i], x[d+i]
				if limit > 0 {
					u, v = min(u, limit), max(-limit, min(v, limit))
				}
				if expert < 0 {
					out = append(out, 0)
				} else {
					out = append(out, f(u, v))
				}
			}
		}
		return map[string][]float64{"out": out}
	}
}

func swiglu(x, gate float64) float64 {
	x, gate = min(x, 7), max(-7, min(gate, 7))
	return x * sigmoid(1.702*x) * (gate + 1)
}

func gelu(v float64) float64 { return v / 2 * (1 + math.Erf(v/math.Sqrt2)) }

func geluTanh(v float64) float64 {
	return v / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v)))
}
