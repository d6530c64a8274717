//go:build linux

package optests_test

import (
	"math"
	"math/rand/v2"
	"slices"

	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

// moeModules declares AIter's operators that choose experts.
func moeModules() []upstreamModule {
	softmax := optests.Operator{Name: "aiter_topk_softmax", Reference: func(in optests.Inputs) map[string][]float64 {
		want := chosen(in, softmaxOf, 1, 1, false)
		t, k := int(in.Shape("topk_indices")[0]), int(in.Shape("topk_indices")[1])
		for token := range t {
			for i := range k {
				want["token_expert_indices"] = append(want["token_expert_indices"], float64(i*t+token))
			}
		}
		// Only some numbers of experts use the workspace.
		want["softmax_workspace"] = in.Values["softmax_workspace"]
		if experts := int(in.Shape("gating_output")[1]); experts&(experts-1) != 0 {
			want["softmax_workspace"] = scoresOf(in.Values["gating_output"], experts, softmaxOf)
		}
		return want
	}}
	grouped := optests.Operator{Name: "aiter_grouped_topk", Reference: func(in optests.Inputs) map[string][]float64 {
		score := sigmoids
		if in.Call.Args["is_softmax"].(bool) {
			score = softmaxOf
		}
		return chosen(in, score, in.Call.Args["num_expert_group"].(int), in.Call.Args["topk_grp"].(int), false)
	}}
	biased := optests.Operator{Name: "aiter_biased_grouped_topk", Reference: func(in optests.Inputs) map[string][]float64 {
		return chosen(in, sigmoids, in.Call.Args["num_expert_group"].(int), in.Call.Args["topk_grp"].(int), true)
	}}
	gating := optests.Operator{Name: "aiter_topk_gating", Reference: func(in optests.Inputs) map[string][]float64 {
		score := map[any]func([]float64) []float64{"softmax": softmaxOf, "sigmoid": sigmoids, "sqrtsoftplus": sqrtSoftplus}
		return chosen(in, score[in.Call.Args["score_func"]], 1, 1, false)
	}}
	sum := optests.Operator{Name: "aiter_moe_sum", Reference: func(in optests.Inputs) map[string][]float64 {
		k, d := int(in.Shape("input")[1]), int(in.Shape("input")[2])
		out := make([]float64, len(in.Values["input"])/k)
		for i, v := range in.Values["input"] {
			out[i/(k*d)*d+i%d] += v
		}
		return map[string][]float64{"output": out}
	}}
	align := optests.Operator{Name: "aiter_moe_align_block_size", Reference: aligned}
	for n, dt := range upstreamFloats() {
		of := func(dt tensor.DType, shape ...int64) optests.TensorArg {
			return optests.TensorArg{DType: dt, Shape: shape}
		}
		for _, experts := range []int64{8, 64, 24} {
			k := int64(2 + n)
			workspace := optests.TensorArg{DType: tensor.Float32, Shape: []int64{1}, Fill: set64(0)}
			if experts == 24 {
				workspace = of(tensor.Float32, 3*experts)
			}
			scores := optests.TensorArg{DType: dt, Shape: []int64{3, experts}, Fill: spread}
			softmax.Cases = append(softmax.Cases, optests.Call{Seed: uint64(n), Args: map[string]any{"gating_output": scores,
				"topk_weights": of(tensor.Float32, 3, k), "topk_indices": of(tensor.Int32, 3, k), "token_expert_indices": of(tensor.Int32, 3, k),
				"softmax_workspace": workspace, "need_renorm": n != 1}})
			groups := map[string]any{"gating_output": scores, "topk_weights": of(tensor.Float32, 3, k), "topk_ids": of(tensor.Int32, 3, k),
				"num_expert_group": 1 << n, "topk_grp": max(1, n), "need_renorm": n != 2, "routed_scaling_factor": 2.5}
			withBias := map[string]any{"correction_bias": optests.TensorArg{DType: dt, Shape: []int64{experts}, Fill: spread}}
			for name, v := range groups {
				withBias[name] = v
			}
			groups["is_softmax"] = experts != 64
			if experts/(1<<n)%4 == 0 {
				grouped.Cases = append(grouped.Cases, optests.Call{Seed: uint64(n), Args: groups})
			}
			if withBias["num_expert_group"], withBias["topk_grp"] = 1, 1; experts == 64 && n > 0 {
				withBias["num_expert_group"], withBias["topk_grp"] = 8, 2*n
			}
			biased.Cases = append(biased.Cases, optests.Call{Seed: uint64(n), Args: withBias})
			for i, name := range []string{"sqrtsoftplus", "sigmoid", "softmax"} {
				args := map[string]any{"gating_output": scores, "topk_weights": of(tensor.Float32, 3, k), "topk_indices": of(tensor.Int32, 3, k),
					"correction_bias": nil, "need_renorm": i != n, "routed_scaling_factor": 1.5, "score_func": name}
				if (i+n)%2 == 0 {
					args["correction_bias"] = optests.TensorArg{DType: tensor.Float32, Shape: []int64{experts}, Fill: spread}
				}
				gating.Cases = append(gating.Cases, optests.Call{Seed: uint64(i), Args: args})
			}
		}
		k := []int64{2, 4, 5}[n]
		sum.Cases = append(sum.Cases, optests.Call{Args: map[string]any{"input": of(dt, 3, k, 40), "output": of(dt, 3, 40)}})
	}
	for _, dt := range []tensor.DType{tensor.Int32, tensor.Int64} {
		filled := func(n int64) optests.TensorArg {
			return optests.TensorArg{DType: tensor.Int32, Shape: []int64{n}, Fill: func(_ *rand.Rand, values []float64) {
				for i := range values {
					values[i] = 99
				}
			}}
		}
		// A thread has the two tokens of an expert, so that their order is certain.
		align.Cases = append(align.Cases, optests.Call{Args: map[string]any{"num_experts": 4, "block_size": 3,
			"topk_ids":         optests.TensorArg{DType: dt, Shape: []int64{4, 2}, Fill: set64(2, 2, 0, 0, 3, 3, 1, 1)},
			"sorted_token_ids": filled(16), "experts_ids": filled(6), "token_nums": filled(6),
			"num_tokens_post_pad": optests.TensorArg{DType: tensor.Int32, Shape: []int64{1}}}})
	}
	return []upstreamModule{{name: "module_aiter_moe_asm", ops: []optests.Operator{softmax, sum, grouped, biased, align}},
		{name: "module_aiter_moe_topk", ops: []optests.Operator{gating}}}
}

// spread makes values whose order no rounding changes.
func spread(r *rand.Rand, values []float64) {
	for i, at := range r.Perm(len(values)) {
		values[i] = float64(at)/16 - float64(len(values))/64
	}
}

func softmaxOf(x []float64) []float64 {
	out, sum := make([]float64, len(x)), 0.0
	for i, v := range x {
		out[i] = math.Exp(v - slices.Max(x))
		sum += out[i]
	}
	for i := range out {
		out[i] /= sum
	}
	return out
}

func sigmoids(x []float64) []float64 { return mapped(x, sigmoid) }

func sqrtSoftplus(x []float64) []float64 {
	return mapped(x, func(v float64) float64 { return math.Sqrt(math.Log1p(math.Exp(v))) })
}

func mapped(x []float64, f func(float64) float64) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = f(v)
	}
	return out
}

func scoresOf(x []float64, experts int, score func([]float64) []float64) (all []float64) {
	for row := range slices.Chunk(x, experts) {
		all = append(all, score(row)...)
	}
	return all
}

// chosen returns the best experts of each token: those of the best groups, where a group has the score of its best expert or,
// with pairs, of its two best. The bias decides, the weights are without it.
func chosen(in optests.Inputs, score func([]float64) []float64, groups, best int, pairs bool) map[string][]float64 {
	ids := "topk_ids"
	if in.Shape(ids) == nil {
		ids = "topk_indices"
	}
	experts, k := int(in.Shape("gating_output")[1]), int(in.Shape(ids)[1])
	scale, ok := in.Call.Args["routed_scaling_factor"].(float64)
	if !ok {
		scale = 1
	}
	want := map[string][]float64{}
	for row := range slices.Chunk(in.Values["gating_output"], experts) {
		scores := score(row)
		ranks := slices.Clone(scores)
		for i, b := range in.Values["correction_bias"] {
			ranks[i] += b
		}
		byRank := func(a, b int) int { return int(math.Copysign(1, ranks[b]-ranks[a])) }
		var order []int
		type group struct {
			score   float64
			experts []int
		}
		var all []group
		for g := range groups {
			var members []int
			for i := range experts / groups {
				members = append(members, g*experts/groups+i)
			}
			slices.SortFunc(members, byRank)
			s := ranks[members[0]]
			if pairs {
				s += ranks[members[1]]
			}
			all = append(all, group{s, members})
		}
		slices.SortFunc(all, func(a, b group) int { return int(math.Copysign(1, b.score-a.score)) })
		for _, g := range all[:best] {
			order = append(order, g.experts...)
		}
		slices.SortFunc(order, byRank)
		sum := 1.0
		if in.Call.Args["need_renorm"].(bool) {
			sum = 0
			for _, e := range order[:k] {
				sum += scores[e]
			}
		}
		for _, e := range order[:k] {
			want[ids] = append(want[ids], float64(e))
			want["topk_weights"] = append(want["topk_weights"], scores[e]/sum*scale)
		}
	}
	return want
}

// aligned sorts tokens by their experts, in whole blocks.
func aligned(in optests.Inputs) map[string][]float64 {
	experts, block := in.Call.Args["num_experts"].(int), in.Call.Args["block_size"].(int)
	sorted, ids := slices.Clone(in.Values["sorted_token_ids"]), slices.Clone(in.Values["experts_ids"])
	nums := slices.Clone(in.Values["token_nums"])
	at := 0
	for e := range experts {
		var tokens []float64
		for i, id := range in.Values["topk_ids"] {
			if int(id) == e {
				tokens = append(tokens, float64(i))
			}
		}
		for i := 0; i < len(tokens); i += block {
			copy(sorted[at*block:], tokens[i:min(i+block, len(tokens))])
			ids[at], nums[at] = float64(e), float64(len(tokens)-i)
			at++
		}
	}
	return map[string][]float64{"sorted_token_ids": sorted, "experts_ids": ids, "token_nums": nums,
		"num_tokens_post_pad": {float64(at * block)}}
}
