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

// qkNorm is the sizes and options of a call that normalizes rows of q and k.
type qkNorm struct {
	rows, q, k, group      int64 // group 0: one scale for each row
	residual, plain, gemma bool  // with q_residual, with q_out_unquantized
	transposed, view       bool  // the strides of q_out_scale are column-major
	bare                   bool  // without quantization
}

// qkNormModule declares AIter's RMSNorm of q and k with quantization. Sizes have each of its kernels; AIter has another kernel for
// more than 1024 rows with k.
func qkNormModule(to targets.Target) upstreamModule {
	groups := optests.Operator{Name: "aiter_fused_qk_rmsnorm_group_quant", Tolerance: normQuantTolerance, Reference: qkNormed}
	rows := optests.Operator{Name: "aiter_fused_qk_rmsnorm_per_token_quant", Tolerance: normQuantTolerance, Reference: qkNormed}
	float8 := registry.Float8E4M3(to)
	for n, dt := range upstreamFloats()[1:] {
		for i, c := range []qkNorm{
			{rows: 3, q: 64, k: 32, group: 32, residual: true, plain: true}, {rows: 2, q: 128, group: 128, gemma: true},
			{rows: 3, q: 256, k: 512, group: 64, transposed: true}, {rows: 2, q: 1024, k: 64, group: 128, transposed: true, view: true},
			{rows: 2, q: 1536, k: 512, group: 128, residual: true}, {rows: 1, q: 4096, group: 32, plain: true, gemma: true},
			{rows: 1, q: 8192, k: 2048, group: 128, residual: true}, {rows: 3, q: 192, k: 1000, bare: true, plain: true, residual: true},
			{rows: 1026, q: 32, k: 40, group: 32, plain: true},
		} {
			if c.rows > 1024 && n > 0 {
				continue
			}
			call := c.call(dt, float8)
			call.Seed = uint64(i)
			groups.Cases = append(groups.Cases, call)
		}
		for i, c := range []qkNorm{
			{rows: 3, q: 40, k: 8, residual: true, plain: true}, {rows: 2, q: 512, gemma: true}, {rows: 2, q: 1000, k: 512},
			{rows: 2, q: 2048, k: 64, residual: true}, {rows: 1, q: 4096, plain: true, gemma: true}, {rows: 1, q: 6144, k: 1536},
			{rows: 1, q: 8192, residual: true}, {rows: 1, q: 8192}, {rows: 1, q: 6144, residual: true}, {rows: 1, q: 4096, residual: true},
			{rows: 2, q: 8192, residual: true, gemma: true}, {rows: 1, q: 8192, residual: true, plain: true}, {rows: 1, q: 2560, residual: true},
		} {
			call := c.call(dt, float8)
			call.Seed = uint64(i)
			rows.Cases = append(rows.Cases, call)
		}
	}
	m := upstreamModule{name: "module_aiter_fused_qk_rmsnorm_quant", ops: []optests.Operator{groups, rows}}
	refuse := func(op optests.Operator, words string, change map[string]any) {
		c := optests.Call{Name: words, Args: merged(op.Cases[0].Args, change)}
		m.refused = append(m.refused, upstreamRefusal{op, c, words})
	}
	refuse(groups, "group_size': expected 32, 64 or 128", map[string]any{"group_size": 0})
	refuse(groups, "q': expected rows of a multiple of 128 elements", map[string]any{"group_size": 128})
	refuse(groups, "q_out_scale': expected shape (3, 1)", map[string]any{"group_size": 64})
	refuse(groups, "q_epsilon': expected a number", map[string]any{"q_epsilon": nil})
	refuse(groups, "q_out_quantized' and 'q_out_scale': expected both or none", map[string]any{"q_out_scale": nil})
	refuse(groups, "q_out_unquantized': expected a tensor where q_out_scale is none",
		map[string]any{"q_out_scale": nil, "q_out_quantized": nil, "q_out_unquantized": nil})
	refuse(rows, "q_residual' and 'q_res_out': expected both or none", map[string]any{"q_residual": nil})
	refuse(rows, "k', 'k_weight' and 'k_out': expected all or none", map[string]any{"k_out": nil})
	return m
}

func (c qkNorm) call(dt, float8 tensor.DType) optests.Call {
	of := func(dt tensor.DType, shape ...int64) optests.TensorArg {
		return optests.TensorArg{DType: dt, Shape: shape}
	}
	args := map[string]any{"q": of(dt, c.rows, c.q), "q_weight": of(dt, c.q), "q_epsilon": 1e-5, "gemma_norm": c.gemma}
	if !c.bare {
		scale := of(tensor.Float32, c.rows, 1)
		if c.group > 0 {
			scale = of(tensor.Float32, c.rows, c.q/c.group)
		}
		if c.view {
			scale.Order = []int{0, 1}
		}
		args["q_out_quantized"], args["q_out_scale"] = of(float8, c.rows, c.q), scale
	}
	if c.group > 0 {
		args["group_size"], args["transpose_scale"] = int(c.group), c.transposed
	}
	if c.residual {
		args["q_residual"], args["q_res_out"] = of(dt, c.rows, c.q), of(dt, c.rows, c.q)
	}
	if c.plain {
		args["q_out_unquantized"] = of(dt, c.rows, c.q)
	}
	if c.k > 0 {
		args["k"], args["k_weight"], args["k_out"] = of(dt, c.rows, c.k), of(dt, c.k), of(dt, c.rows, c.k)
		args["k_epsilon"] = 0.25
	}
	return optests.Call{Args: args}
}

// qkNormed normalizes rows and divides groups by the largest element in units of the largest 8-bit float.
func qkNormed(in optests.Inputs) map[string][]float64 {
	gemma := 0.0
	if in.Call.Args["gemma_norm"] == true {
		gemma = 1
	}
	normalized := func(x, weight []float64, epsilon float64) []float64 {
		out := slices.Clone(x)
		for row := range slices.Chunk(out, len(weight)) {
			sum := epsilon
			for _, v := range row {
				sum += v * v / float64(len(row))
			}
			for i := range row {
				row[i] *= (weight[i] + gemma) / math.Sqrt(sum)
			}
		}
		return out
	}
	q := slices.Clone(in.Values["q"])
	for i, v := range in.Values["q_residual"] {
		q[i] += v
	}
	plain := normalized(q, in.Values["q_weight"], in.Call.Args["q_epsilon"].(float64))
	want := map[string][]float64{"q_res_out": q, "q_out_unquantized": plain}
	if k := in.Values["k"]; k != nil {
		want["k_out"] = normalized(k, in.Values["k_weight"], in.Call.Args["k_epsilon"].(float64))
	}
	out, ok := in.Call.Args["q_out_quantized"].(optests.TensorArg)
	if !ok {
		return want
	}
	most, rows, columns := largest8Bit[out.DType], int(out.Shape[0]), int(in.Shape("q_out_scale")[1])
	group := len(plain) / rows / columns
	values, scales := slices.Clone(plain), make([]float64, rows*columns)
	for i := range scales {
		part, scale := values[i*group:][:group], 1e-10/most
		for _, v := range part {
			scale = max(scale, math.Abs(v)/most)
		}
		for j := range part {
			part[j] = max(-most, min(part[j]/scale, most))
		}
		at := i
		if in.Call.Args["transpose_scale"] == true && in.Call.Args["q_out_scale"].(optests.TensorArg).Order == nil {
			at = i%columns*rows + i/columns
		}
		scales[at] = scale
	}
	want["q_out_quantized"], want["q_out_scale"] = values, scales
	return want
}
