// Package aiterops has float64 references of operators that are built from the sources of AMD's AIter. They hold for all calls of an
// operator:
//
//	registry.Open(ctx, registry.Options{AIter: "/src/aiter", Verify: true, References: aiterops.References()})
package aiterops

import (
	"maps"
	"slices"

	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/registry"
)

// Operators returns the declarations of the operators, without cases, in the order of their names.
func Operators() []optests.Operator {
	list := declared()
	var ops []optests.Operator
	for _, name := range slices.Sorted(maps.Keys(list)) {
		ops = append(ops, list[name])
	}
	return ops
}

// Operator returns the declaration of an operator, without cases. It panics if there is none with this name.
func Operator(name string) optests.Operator {
	op, ok := declared()[name]
	if !ok {
		panic("aiterops: no reference of " + name)
	}
	return op
}

// References returns the references of all operators, for [registry.Options.References].
func References() map[string]registry.Reference {
	list := map[string]registry.Reference{}
	for name, op := range declared() {
		list[name] = op.Verification()
	}
	return list
}

func declared() map[string]optests.Operator {
	list := map[string]optests.Operator{}
	add := func(name string, o optests.Operator) {
		o.Name = "aiter_" + name
		list[o.Name] = o
	}
	for _, name := range []string{"rms_norm", "fused_add_rms_norm", "add_rms_norm", "rmsnorm", "add_rmsnorm"} {
		add(name, optests.Operator{Reference: normalized})
	}
	for _, name := range []string{"rmsnorm_quant", "add_rmsnorm_quant"} {
		add(name, optests.Operator{Reference: normalizedAndQuantized, Tolerance: normTolerance})
	}
	for _, name := range []string{"rotary_embedding_fwd", "batched_rotary_embedding"} {
		add(name, optests.Operator{Reference: rotated})
	}
	for name, f := range map[string]func(float64) float64{"sigmoid": sigmoid, "tanh": tanh, "gelu_fast": geluTanh} {
		add(name, optests.Operator{Reference: each(f)})
	}
	for name, f := range map[string]func(x, gate float64) float64{"silu": siluAndMul, "gelu": geluAndMul, "swiglu": swigluAndMul} {
		add(name+"_and_mul", optests.Operator{Reference: gated(f)})
		add(name+"_and_mul_bias", optests.Operator{Reference: gated(f)})
	}
	add("gelu_tanh_and_mul", optests.Operator{Reference: gated(geluTanhAndMul)})
	add("static_per_tensor_quant", optests.Operator{Reference: quantized("scale", false), Tolerance: QuantTolerance})
	add("dynamic_per_tensor_quant", optests.Operator{Reference: quantized("scale", true), Tolerance: QuantTolerance})
	add("dynamic_per_token_scaled_quant", optests.Operator{Reference: quantized("scales", true), Tolerance: QuantTolerance})
	return list
}
