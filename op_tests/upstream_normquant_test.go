//go:build linux

package optests_test

import (
	"math/rand/v2"

	targets "github.com/aiter-go/aiter/jit/target"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/op_tests/aiterops"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// normQuantModule declares AIter's RMSNorm with 8-bit results. There is one size for each number of elements that a thread may have.
func normQuantModule(to targets.Target) upstreamModule {
	plain, add := aiterops.Operator("aiter_rmsnorm"), aiterops.Operator("aiter_add_rmsnorm")
	quant, addQuant := aiterops.Operator("aiter_rmsnorm_quant"), aiterops.Operator("aiter_add_rmsnorm_quant")
	float8 := registry.Float8E4M3(to)
	for n, dt := range upstreamFloats()[1:] {
		of := func(dt tensor.DType, shape ...int64) optests.TensorArg {
			return optests.TensorArg{DType: dt, Shape: shape}
		}
		args := func(out tensor.DType, rows, d int64, more map[string]any) map[string]any {
			list := map[string]any{"out": of(out, rows, d), "input": of(dt, rows, d), "weight": of(dt, d), "epsilon": 1e-5}
			for name, v := range more {
				list[name] = v
			}
			return list
		}
		residuals := func(rows, d int64) map[string]any {
			return map[string]any{"residual_in": of(dt, rows, d), "residual_out": of(dt, rows, d)}
		}
		for i, d := range []int64{[]int64{8, 136}[n], 512, 1000, 1536, 3072, 5120, 8192} {
			rows, gemma := int64(1+i%3), (i+n)%2 == 0
			a := args(dt, rows, d, map[string]any{"gemma_norm": gemma})
			plain.Cases = append(plain.Cases, optests.Call{Seed: uint64(i), Args: a})
			b := args(dt, rows, d, residuals(rows, d))
			add.Cases = append(add.Cases, optests.Call{Seed: uint64(i), Args: b})
		}
		for i, c := range []struct {
			d, group int64
			out      tensor.DType
			scale    tensor.DType
			shuffle  bool
		}{
			{128, 0, float8, tensor.Float32, false}, {1000, 0, tensor.Int8, tensor.Float32, false}, {5120, 0, float8, tensor.Float32, false},
			{8192, 0, tensor.Int8, tensor.Float32, false}, {512, 128, float8, tensor.Float32, false}, {1536, 64, tensor.Int8, tensor.Float32, true},
			{2048, 512, float8, tensor.Float32, false}, {3072, 128, float8, tensor.Float32, true}, {8192, 128, float8, tensor.Float32, false},
			{256, 32, float8, tensor.UInt8, false}, {512, 64, float8, tensor.UInt8, true}, {256, 32, float8, tensor.UInt8, true},
		} {
			if n == 1 && i%3 == 2 && i < 9 { // one type of input is enough for the slow ones
				continue
			}
			rows, groups := int64(1+i%3), int64(1)
			if c.group > 0 {
				groups = c.d / c.group
			}
			scale := of(c.scale, rows, groups)
			switch {
			case c.shuffle && c.group == 32:
				rows = 32 // whole tiles
				scale = of(c.scale, rows, groups)
			case c.shuffle:
				scale = of(c.scale, groups, rows)
			}
			more := map[string]any{"scale": scale, "group_size": int(c.group), "shuffle_scale": c.shuffle, "gemma_norm": i%2 == 1}
			quant.Cases = append(quant.Cases, optests.Call{Seed: uint64(i), Args: args(c.out, rows, c.d, more)})
			if i%2 == n {
				for name, v := range residuals(rows, c.d) {
					more[name] = v
				}
				addQuant.Cases = append(addQuant.Cases, optests.Call{Seed: uint64(i), Args: args(c.out, rows, c.d, more)})
			}
		}
	}
	for _, op := range []*optests.Operator{&plain, &add, &quant, &addQuant} {
		c, zeros := op.Cases[0], map[string]any{}
		for _, name := range []string{"input", "residual_in"} {
			if t, ok := c.Args[name].(optests.TensorArg); ok {
				t.Fill = func(_ *rand.Rand, values []float64) { clear(values) }
				zeros[name] = t
			}
		}
		c.Name, c.Args = "zeros", merged(c.Args, zeros)
		op.Cases = append(op.Cases, c)
	}
	return upstreamModule{name: "module_aiter_rmsnorm_quant", ops: []optests.Operator{plain, add, quant, addQuant}}
}

// normQuantTolerance is the tolerance of aiter_rmsnorm_quant, also for the names of arguments of aiter_fused_qk_rmsnorm_*.
func normQuantTolerance(name string, dt tensor.DType) optests.Tolerance {
	switch name {
	case "q_out_scale":
		name = "scale"
	case "q_res_out", "q_out_unquantized", "k_out":
		name = "residual_out"
	}
	return aiterops.Operator("aiter_rmsnorm_quant").Tolerance(name, dt)
}
