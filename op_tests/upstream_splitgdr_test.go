//go:build linux

package optests_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

// splitGDRCase is a call of AIter's steps of the gated delta rule.
type splitGDRCase struct {
	size, heads, keyHeads, steps int64
	slots                        []float64 // of the sequences
	adjacent, norm, state        bool      // adjacent channels
	beta, threshold, scale       float64
}

// splitGDRModule declares AIter's steps of the gated delta rule with a state of float32.
func splitGDRModule() upstreamModule {
	op := optests.Operator{Name: "aiter_fused_split_gdr_update", Reference: splitGDR}
	op.Tolerance = func(_ string, dt tensor.DType) optests.Tolerance {
		if dt == tensor.BFloat16 {
			return optests.Tolerance{Rel: 5e-3, Abs: 1e-4}
		}
		return optests.Tolerance{Rel: 1e-4, Abs: 1e-5}
	}
	for i, c := range []splitGDRCase{
		{32, 2, 1, 1, []float64{0, -1}, false, true, true, 1, 20, -1},
		{64, 4, 2, 3, []float64{1, 0, 3}, false, false, true, 1, 20, -1},
		{128, 1, 1, 2, []float64{1}, true, true, true, 1, 20, 0.3},
		{128, 3, 1, 2, []float64{0}, false, true, false, 1, 20, -1},
		{32, 2, 2, 3, []float64{0, 0}, true, false, false, 2, 0.5, 0.5},
		{64, 2, 1, 4, []float64{2, -1, 0}, true, true, true, 0.5, 20, -1},
		{32, 3, 3, 3, []float64{2, 1}, false, false, true, 1, 20, 1},
		{128, 2, 1, 1, []float64{1, 0}, false, false, true, 1, -1, -1},
	} {
		op.Cases = append(op.Cases, c.call(uint64(i)))
	}
	m := upstreamModule{name: "module_aiter_fused_split_gdr_update", ops: []optests.Operator{op}}
	for _, size := range []int64{16, 96, 256} {
		c := splitGDRCase{size, 1, 1, 1, []float64{0}, false, true, true, 1, 20, -1}
		words := fmt.Sprintf("argument 'head_dim': expected 32, 64 or 128, got %d", size)
		m.refused = append(m.refused, upstreamRefusal{op, c.call(0), words})
	}
	half := splitGDRCase{32, 3, 2, 1, []float64{0}, false, true, true, 1, 20, -1}
	m.refused = append(m.refused, upstreamRefusal{op, half.call(0), "argument 'num_heads_v': expected a multiple of 2, got 3"})
	return m
}

func (c splitGDRCase) call(seed uint64) optests.Call {
	batch, keys, values := int64(len(c.slots)), c.keyHeads*c.size, c.heads*c.size
	of := func(dt tensor.DType, shape ...int64) optests.TensorArg {
		return optests.TensorArg{DType: dt, Shape: shape}
	}
	small := func(r *rand.Rand, v []float64) { // without norms, states of large keys grow
		for i := range v {
			v[i] = 0.25 * r.NormFloat64()
		}
	}
	qkv := of(tensor.BFloat16, batch, 2*keys+values, c.steps)
	if qkv.Fill = small; c.adjacent {
		qkv.Order = []int{1, 2, 0}
	}
	args := map[string]any{"mixed_qkv": qkv, "A_log": of(tensor.Float32, c.heads), "a": of(tensor.BFloat16, batch*c.steps, c.heads),
		"dt_bias": of(tensor.BFloat16, c.heads), "b_gate": of(tensor.BFloat16, batch*c.steps, c.heads),
		"initial_state_source": nil, "initial_state_indices": nil, "key_dim": int(keys), "value_dim": int(values),
		"num_heads_qk": int(c.keyHeads), "num_heads_v": int(c.heads), "head_dim": int(c.size), "softplus_beta": c.beta,
		"softplus_threshold": c.threshold, "scale": c.scale, "use_qk_l2norm_in_kernel": c.norm,
		"output": of(tensor.BFloat16, batch, c.steps, c.heads, c.size)}
	if c.state {
		state := of(tensor.Float32, int64(slices.Max(c.slots))+1, c.heads, c.size/4, c.size, 4)
		state.Fill = small
		args["initial_state_source"], args["initial_state_indices"] = state, numbers(tensor.Int32, c.slots...)
	}
	return optests.Call{Name: fmt.Sprintf("%+v", c), Seed: seed, Args: args}
}

// splitGDR computes the steps of each sequence in order. The state is (slot, head, key element / 4, value element, 4).
func splitGDR(in optests.Inputs) map[string][]float64 {
	args, shape := in.Call.Args, in.Shape("mixed_qkv")
	batch, channels, steps := int(shape[0]), int(shape[1]), int(shape[2])
	heads, size := args["num_heads_v"].(int), args["head_dim"].(int)
	keys, group := args["key_dim"].(int), heads/args["num_heads_qk"].(int)
	scale := args["scale"].(float64)
	if scale <= 0 {
		scale = 1 / math.Sqrt(float64(size))
	}
	states := slices.Clone(in.Values["initial_state_source"])
	out := make([]float64, batch*steps*heads*size)
	for n := range batch {
		for h := range heads {
			state := make([]float64, size*size)
			if states != nil && in.Values["initial_state_indices"][n] >= 0 {
				state = states[(int(in.Values["initial_state_indices"][n])*heads+h)*size*size:][:size*size]
			}
			for t := range steps {
				part := func(first int, norm bool) []float64 {
					v, sum := make([]float64, size), 1e-6
					for i := range v {
						v[i] = in.Values["mixed_qkv"][(n*channels+first+i)*steps+t]
						sum += v[i] * v[i]
					}
					for i := range v {
						if norm {
							v[i] /= math.Sqrt(sum)
						}
					}
					return v
				}
				norm := args["use_qk_l2norm_in_kernel"].(bool)
				q, k, v := part(h/group*size, norm), part(keys+h/group*size, norm), part(2*keys+h*size, false)
				x := in.Values["a"][(n*steps+t)*heads+h] + in.Values["dt_bias"][h]
				if beta := args["softplus_beta"].(float64); beta*x <= args["softplus_threshold"].(float64) {
					x = math.Log1p(math.Exp(beta*x)) / beta
				}
				decay, gate := math.Exp(-math.Exp(in.Values["A_log"][h])*x), sigmoid(in.Values["b_gate"][(n*steps+t)*heads+h])
				for j := range size {
					known, sum := 0.0, 0.0
					for i := range size {
						known += state[(i/4*size+j)*4+i%4] * decay * k[i]
					}
					for i := range size {
						at := (i/4*size+j)*4 + i%4
						state[at] = state[at]*decay + k[i]*(v[j]-known)*gate
						sum += state[at] * q[i]
					}
					out[((n*steps+t)*heads+h)*size+j] = sum * scale
				}
			}
		}
	}
	return map[string][]float64{"output": out, "initial_state_source": states}
}
