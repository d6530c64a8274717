//go:build linux

package optests_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/device"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// sorting is the sizes and options of a call that sorts tokens by their experts.
type sorting struct {
	tokens, experts, topk int64
	unit, policy          int
	local                 int64 // the tokens that count, 0 for all
	mask, ids, indices    bool  // with local_expert_mask, local_topk_ids, m_indices and reverse_sorted
	stray                 bool  // some numbers of experts are out of range
	buffer                tensor.DType
	width                 int64 // of moe_buf
}

// sortingModule declares AIter's sorting of tokens. Sizes are below, at and above those at which AIter uses another kernel: the tokens
// that the LDS has at once, 512 and 2048 tokens, 512 experts.
func sortingModule() upstreamModule {
	op := optests.Operator{Name: "aiter_moe_sorting_opus_fwd", Reference: sortedTokens}
	op.Tolerance = func(arg string, _ tensor.DType) optests.Tolerance {
		if arg == "workspace" { // AIter's own
			return optests.Tolerance{Abs: 255}
		}
		return optests.Tolerance{}
	}
	m := upstreamModule{name: "module_aiter_moe_sorting_opus", more: []string{"gfx90a"}, also: sortingWorkspaces}
	for _, s := range []sorting{
		{tokens: 3, experts: 8, topk: 2, unit: 4, local: 2, mask: true, ids: true, indices: true, buffer: tensor.Float32, width: 4},
		{tokens: 1, experts: 1, topk: 1, unit: 1, buffer: tensor.BFloat16, width: 8},
		{tokens: 9, experts: 33, topk: 3, unit: 32, indices: true, buffer: tensor.Float16, width: 24},
		{tokens: 17, experts: 70, topk: 8, unit: 16, mask: true, buffer: tensor.UInt8, width: 48},
		{tokens: 33, experts: 16, topk: 4, unit: 7, ids: true, buffer: tensor.Float32},
		{tokens: 24, experts: 255, topk: 5, unit: 4, buffer: tensor.Float32},
		{tokens: 40, experts: 255, topk: 2, unit: 4, policy: 1, indices: true, buffer: tensor.Float32, width: 4},
		{tokens: 41, experts: 255, topk: 2, unit: 2, policy: 1, mask: true, ids: true, local: 33, buffer: tensor.Float32, width: 4},
		{tokens: 9, experts: 818, topk: 2, unit: 2, policy: 1, ids: true, buffer: tensor.Float32},
		{tokens: 40, experts: 255, topk: 2, unit: 4, buffer: tensor.Float32, width: 4},
		{tokens: 3, experts: 512, topk: 2, unit: 2, mask: true, ids: true, buffer: tensor.BFloat16, width: 8},
		{tokens: 5, experts: 8, topk: 3, unit: 4, policy: 2, stray: true, ids: true, buffer: tensor.Float32, width: 4},
		{tokens: 300, experts: 6, topk: 2, unit: 32, policy: 2, local: 277, mask: true, stray: true, buffer: tensor.Float32, width: 4},
		{tokens: 512, experts: 5, topk: 2, unit: 16, policy: 2, mask: true, ids: true, buffer: tensor.Float32, width: 4},
		{tokens: 516, experts: 5, topk: 2, unit: 16, policy: 2, local: 514, mask: true, buffer: tensor.Float32},
		{tokens: 515, experts: 5, topk: 3, unit: 16, policy: 2, local: 511, stray: true, buffer: tensor.Float32},
		{tokens: 2048, experts: 4, topk: 2, unit: 64, policy: 2, mask: true, buffer: tensor.Float32},
		{tokens: 2052, experts: 4, topk: 2, unit: 64, policy: 2, local: 2049, ids: true, buffer: tensor.Float32},
		{tokens: 2049, experts: 4, topk: 3, unit: 64, policy: 2, mask: true, local: 2047, stray: true, buffer: tensor.Float32},
	} {
		op.Cases = append(op.Cases, s.call())
	}
	refuse := func(words string, s sorting, change func(args map[string]any)) {
		c := s.call()
		if c.Name = words; change != nil {
			change(c.Args)
		}
		m.refused = append(m.refused, upstreamRefusal{op, c, words})
	}
	refuse("num_experts': expected at most 818 for one kernel", sorting{tokens: 2, experts: 819, topk: 1, unit: 1, policy: 1}, nil)
	refuse("num_experts': expected at most 16371,", sorting{tokens: 2, experts: 16372, topk: 1, unit: 1, policy: 2}, nil)
	refuse("num_experts': expected at most 8185 with local_topk_ids",
		sorting{tokens: 2, experts: 8186, topk: 1, unit: 1, policy: 2, ids: true}, nil)
	refuse("topk_ids': expected at most 254 experts", sorting{tokens: 512, experts: 255, topk: 255, unit: 1, policy: 2}, nil)
	refuse("topk_ids': expected at most 255 experts", sorting{tokens: 2, experts: 256, topk: 256, unit: 1, policy: 2}, nil)
	refuse("topk_ids': expected 1 to 2 experts", sorting{tokens: 2, experts: 2, topk: 3, unit: 1}, nil)
	refuse("topk_ids': expected a multiple of 4 tokens", sorting{tokens: 514, experts: 2, topk: 2, unit: 1, policy: 2, local: 5}, nil)
	refuse("expected none where a workspace is needed", sorting{tokens: 2, experts: 2, topk: 2, unit: 1, policy: 2, indices: true}, nil)
	refuse("moe_buf': expected rows of a multiple of 16 bytes", sorting{tokens: 2, experts: 2, topk: 2, unit: 1, width: 3}, nil)
	small := sorting{tokens: 2, experts: 2, topk: 2, unit: 1, policy: 2, width: 4}
	refuse("workspace': expected 512 bytes, got none", small, func(args map[string]any) { delete(args, "workspace") })
	small.unit = 4
	shorter := func(names ...string) func(map[string]any) {
		return func(args map[string]any) {
			for _, name := range names {
				x := args[name].(optests.TensorArg)
				x.Shape = []int64{x.Shape[0] - 1}
				args[name] = x
			}
		}
	}
	refuse("sorted_token_ids': expected 10 elements or more", small, shorter("sorted_token_ids", "sorted_weights"))
	refuse("sorted_expert_ids': expected 3 elements or more", small, shorter("sorted_expert_ids"))
	refuse("workspace': expected 512 bytes or more", small, shorter("workspace"))
	m.ops = []optests.Operator{op}
	return m
}

// workspace returns the bytes that a call needs.
func (s sorting) workspace() int64 {
	rows := max(0, (8192/(s.experts+1)-2)/8*8) // half of 64 KiB of LDS has as many tokens, besides two rows of sums
	if s.policy == 1 || s.policy == 0 && s.tokens <= rows && s.experts < 512 {
		return 0
	}
	bytes, whole := int64(4), func(n int64) int64 { return (n + 31) / 32 * 32 }
	if s.tokens >= 512 {
		bytes = 1
	}
	return s.experts*whole(s.tokens)*bytes + 4*whole(s.experts+1) + 128
}

// call makes the arguments. Outputs keep their values where nothing is written.
func (s sorting) call() optests.Call {
	of := func(dt tensor.DType, shape ...int64) optests.TensorArg {
		return optests.TensorArg{DType: dt, Shape: shape, Fill: func(_ *rand.Rand, values []float64) {
			for i := range values {
				values[i] = float64(i%100 + 3)
			}
		}}
	}
	most := s.tokens*s.topk + s.experts*int64(s.unit-1)
	ids, weights := of(tensor.Int32, s.tokens, s.topk), of(tensor.Float32, s.tokens, s.topk)
	ids.Fill = func(r *rand.Rand, values []float64) {
		if int64(len(values)) != s.tokens*s.topk {
			panic("another number of tokens or of their experts")
		}
		for row := range slices.Chunk(values, int(s.topk)) {
			for i, e := range r.Perm(int(s.experts))[:min(s.topk, s.experts)] {
				row[i] = float64(e)
			}
		}
		if s.stray {
			values[1], values[len(values)-1] = -1, float64(s.experts)
			if s.tokens >= 2048 { // negative numbers are undefined
				values[1] = float64(s.experts + 5)
			}
		}
	}
	weights.Fill = normal
	if s.buffer == 0 {
		s.buffer = tensor.Float32
	}
	args := map[string]any{"topk_ids": ids, "topk_weights": weights, "sorted_token_ids": of(tensor.Int32, most),
		"sorted_weights": of(tensor.Float32, most), "sorted_expert_ids": of(tensor.Int32, (most+int64(s.unit)-1)/int64(s.unit)),
		"num_valid_ids": of(tensor.Int32, 2), "moe_buf": of(s.buffer, s.tokens, s.width), "num_experts": int(s.experts), "unit_size": s.unit,
		"dispatch_policy": s.policy}
	if s.mask {
		mask := of(tensor.Int32, s.experts)
		mask.Fill = func(_ *rand.Rand, values []float64) {
			for i := range values {
				values[i] = float64((i + 2) % 3 % 2) // 0, 0, 1 and so on
			}
		}
		args["local_expert_mask"] = mask
	}
	if s.local > 0 {
		args["num_local_tokens"] = numbers(tensor.Int32, float64(s.local))
	}
	if s.ids {
		args["local_topk_ids"] = of(tensor.Int32, s.tokens, s.topk)
	}
	if s.indices {
		args["m_indices"], args["reverse_sorted"] = of(tensor.Int32, most), of(tensor.Int32, s.tokens*s.topk)
	}
	if n := s.workspace(); n > 0 {
		args["workspace"] = of(tensor.UInt8, n)
	}
	return optests.Call{Name: fmt.Sprintf("tokens=%d,experts=%d,topk=%d,unit=%d,policy=%d", s.tokens, s.experts, s.topk, s.unit, s.policy),
		Args: args}
}

// sortedTokens puts the tokens of one expert after those of another, in whole units.
func sortedTokens(in optests.Inputs) map[string][]float64 {
	want := map[string][]float64{}
	for _, name := range []string{"sorted_token_ids", "sorted_weights", "sorted_expert_ids", "moe_buf", "workspace", "local_topk_ids",
		"m_indices", "reverse_sorted"} {
		want[name] = slices.Clone(in.Values[name])
	}
	ids, topk := in.Values["topk_ids"], int(in.Shape("topk_ids")[1])
	tokens, unit, experts := int(in.Shape("topk_ids")[0]), in.Call.Args["unit_size"].(int), in.Call.Args["num_experts"].(int)
	if n := in.Values["num_local_tokens"]; n != nil {
		tokens = int(n[0])
	}
	put := func(name string, at int, v float64) {
		if want[name] != nil {
			want[name][at] = v
		}
	}
	at, number := 0, make([]float64, experts)
	local := 0.0
	for e := range experts {
		if number[e] = local; in.Values["local_expert_mask"] != nil && in.Values["local_expert_mask"][e] == 0 {
			number[e] = -1
			continue
		}
		local++
		count := 0
		sorted := func(token, column int, weight float64) {
			put("sorted_token_ids", at, float64(int32(uint32(token)|uint32(column)<<24)))
			put("sorted_weights", at, weight)
			put("m_indices", at, float64(token))
			at, count = at+1, count+1
		}
		for i, id := range ids[:tokens*topk] {
			if int(id) == e {
				put("reverse_sorted", i, float64(at))
				sorted(i/topk, i%topk, in.Values["topk_weights"][i])
			}
		}
		for count%unit != 0 {
			sorted(tokens, topk, 0)
		}
		for i := at - count; i < at; i += unit {
			put("sorted_expert_ids", i/unit, number[e])
		}
	}
	for i, id := range ids[:tokens*topk] {
		if id >= 0 && int(id) < experts {
			put("local_topk_ids", i, number[int(id)])
		} else {
			put("local_topk_ids", i, -1)
		}
	}
	want["num_valid_ids"] = []float64{float64(at), float64(tokens)}
	clear(want["moe_buf"][:tokens*int(in.Shape("moe_buf")[1])])
	return want
}

// sortingWorkspaces calls an operator without tensors, which returns a number.
func sortingWorkspaces(t *testing.T, reg *registry.Registry, dev tensor.Device) {
	op, err := reg.Lookup("aiter_moe_sorting_opus_get_workspace_size")
	if err != nil {
		t.Fatal(err)
	}
	ctx, needed := device.WithStream(t.Context(), device.Stream{Device: dev}), 0
	for _, tokens := range []int64{0, 1, 24, 25, 40, 511, 512, 2048, 65536} {
		for _, experts := range []int64{1, 8, 255, 256, 511, 512, 818} {
			for policy := range 3 {
				s := sorting{tokens: tokens, experts: experts, topk: 1, policy: policy}
				got, err := op.CallReturning(ctx, tokens, experts, 1, policy)
				if want := s.workspace(); err != nil || got != want {
					t.Errorf("%d tokens, %d experts, policy %d: %v bytes, %v, want %d", tokens, experts, policy, got, err, want)
				} else if want > 0 {
					needed++
				}
			}
		}
	}
	if needed == 0 {
		t.Error("no call needs a workspace")
	}
	for words, args := range map[string][]any{
		"argument 'tokens': expected less than 2^24 tokens, got -1":                               {-1, 8, 2},
		"argument 'tokens': expected less than 2^24 tokens, got 16777216":                         {1 << 24, 8, 2},
		"argument 'tokens': expected an integer of 4 bytes, got 4294967296":                       {1 << 32, 8, 2},
		"argument 'num_experts': expected 1 to 65536, got 0":                                      {8, 0, 2},
		"argument 'topk': expected 1 to 8 experts for each token, got 9":                          {8, 8, 9},
		"argument 'topk': expected at most 254 experts for each token, got 255":                   {512, 512, 255},
		"argument 'dispatch_policy': expected 0, 1 or 2, got 3":                                   {8, 8, 2, 3},
		"arguments 'tokens' and 'num_experts': expected a workspace of less than 2^31 bytes, got": {1<<24 - 1, 256, 2},
	} {
		checkError(t, words, func() error { _, err := op.CallReturning(ctx, args...); return err })
	}
	checkError(t, "name a device that the module supports with device.WithStream", func() error {
		_, err := op.CallReturning(t.Context(), 1, 1, 1)
		return err
	})
}

// checkError makes a call that must fail with the words.
func checkError(t *testing.T, words string, call func() error) {
	t.Helper()
	if err := call(); err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("the error lacks %q: %v", words, err)
	}
}
