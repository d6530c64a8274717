package optests_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// TestTuned compares all combinations of the launch parameters that a call reads with the reference, for cases that reach all kernels with
// such parameters. It is small enough for an emulated device.
func TestTuned(t *testing.T) {
	testenv.SkipRace(t)
	if *hostFlag {
		t.Skip("the test sets launch parameters of calls with tensors on the device")
	}
	target := open(t)
	for _, op := range slices.Sorted(maps.Keys(tunedCases)) {
		t.Run(op, func(t *testing.T) { target.checkCandidates(t, op, tunedCases[op]) })
	}
}

var tunedCases = map[string][]optests.Case{
	"causal_conv1d_fwd": {
		tunedCase(tensor.BFloat16, optests.Conv1d{Batch: 2, Dim: 3, Seqlen: 70, Width: 4, SiLU: true}),
		tunedCase(tensor.BFloat16, optests.Conv1d{Batch: 2, Dim: 40, Seqlen: 21, Width: 3, Layout: optests.ChannelLast, WithSeqIdx: true}),
		// More than 8 taps.
		tunedCase(tensor.BFloat16, optests.Conv1d{Batch: 2, Dim: 1, Seqlen: 1048, Width: 11, SiLU: true}),
		tunedCase(tensor.BFloat16, optests.Conv1d{Batch: 2, Dim: 8, Seqlen: 40, Width: 11, Layout: optests.ChannelLast}),
	},
	"causal_conv1d_bwd": {
		tunedCase(tensor.BFloat16, optests.Conv1d{Batch: 2, Dim: 3, Seqlen: 520, Width: 4, SiLU: true}),
		tunedCase(tensor.BFloat16, optests.Conv1d{Batch: 3, Dim: 40, Seqlen: 21, Width: 4, Layout: optests.ChannelLast}),
		tunedCase(tensor.BFloat16, optests.Conv1d{Batch: 3, Dim: 41, Seqlen: 21, Width: 4, Layout: optests.ChannelLast}), // without clusters
		tunedCase(tensor.BFloat16, optests.Conv1d{Batch: 3, Dim: 2, Seqlen: 72, Width: 11, SiLU: true}),
		tunedCase(tensor.BFloat16, optests.Conv1d{Batch: 1, Dim: 1, Seqlen: 3072, Width: 11}),
	},
	"causal_conv1d_update": {
		// One token of few taps: aligned vectors of both kinds of states, others, and a circular state.
		tunedCase(tensor.BFloat16, optests.Conv1d{Batch: 3, Dim: 72, Seqlen: 1, Width: 4, SiLU: true, Layout: optests.ChannelLast}),
		tunedCase(tensor.BFloat16, optests.Conv1d{Batch: 3, Dim: 72, Seqlen: 1, Width: 2, State: optests.State{Indexed: true}}),
		tunedCase(tensor.BFloat16, optests.Conv1d{Batch: 2, Dim: 130, Seqlen: 1, Width: 3, WithFinal: true}),
		// Several tokens.
		tunedCase(tensor.BFloat16, optests.Conv1d{Batch: 2, Dim: 80, Seqlen: 3, Width: 3, Layout: optests.ChannelLast}),
		tunedCase(tensor.BFloat16, optests.Conv1d{Batch: 3, Dim: 270, Seqlen: 2, Width: 4, SiLU: true, State: optests.State{Indexed: true}}),
		// More taps: the values of a state are adjacent, or its channels.
		tunedCase(tensor.BFloat16, optests.Conv1d{Batch: 6, Dim: 24, Seqlen: 1, Width: 12, State: optests.State{Indexed: true}}),
		tunedCase(tensor.BFloat16, optests.Conv1d{Batch: 2, Dim: 24, Seqlen: 1, Width: 12, WithFinal: true}),
		tunedCase(tensor.BFloat16, optests.Conv1d{Batch: 2, Dim: 140, Seqlen: 2, Width: 19, Layout: optests.ChannelLast}),
	},
	"causal_conv1d_varlen_fwd": {
		tunedCase(tensor.BFloat16, optests.Conv1d{Batch: 3, Dim: 150, Seqlen: 11, Width: 4, SiLU: true, WithInitial: true}),
		tunedCase(tensor.BFloat16, optests.Conv1d{Batch: 3, Dim: 40, Seqlen: 25, Width: 3, Layout: optests.ChannelLast, WithFinal: true}),
		tunedCase(tensor.BFloat16, optests.Conv1d{Batch: 3, Dim: 2, Seqlen: 20, Width: 11, WithInitial: true}),
		tunedCase(tensor.BFloat16, optests.Conv1d{Batch: 3, Dim: 8, Seqlen: 20, Width: 11, Layout: optests.ChannelLast}),
	},
	"causal_conv1d_serve_fwd": {
		tunedCase(tensor.BFloat16, servedParams(3, 150, 11, 4, optests.ChannelFirst)),
		tunedCase(tensor.BFloat16, servedParams(3, 40, 25, 3, optests.ChannelLast)),
		tunedCase(tensor.BFloat16, servedParams(3, 2, 20, 11, optests.ChannelFirst)),
		tunedCase(tensor.BFloat16, servedParams(3, 8, 20, 11, optests.ChannelLast)),
	},
	"causal_conv1d_fwd_split_qkv": {
		tunedCase(tensor.BFloat16, servedParams(3, 150, 11, 4, optests.ChannelFirst)),
		tunedCase(tensor.BFloat16, servedParams(3, 48, 25, 3, optests.ChannelLast)),
		tunedCase(tensor.BFloat16, servedParams(3, 8, 20, 11, optests.ChannelFirst)),
		tunedCase(tensor.BFloat16, servedParams(3, 32, 20, 11, optests.ChannelLast)),
	},
	"causal_conv1d_serve_update":     servedUpdateCases,
	"causal_conv1d_update_split_qkv": servedUpdateCases,
	"rms_norm":                       {{DType: tensor.BFloat16, Params: optests.RMSNorm{Rows: 5, Dim: 272}}},
}

// servedUpdateCases have filters of x's type and others, sequences of few tokens and of more, and channels that are not adjacent.
var servedUpdateCases = []optests.Case{
	tunedCase(tensor.BFloat16, servedParams(3, 160, 1, 2, optests.ChannelLast)),
	tunedCase(tensor.BFloat16, servedParams(3, 160, 2, 4, optests.ChannelLast)),
	tunedCase(tensor.BFloat16, servedParams(2, 160, 6, 4, optests.ChannelLast)),
	tunedCase(tensor.BFloat16, servedParams(2, 160, 3, 5, optests.ChannelLast)),
	tunedCase(tensor.BFloat16, servedParams(2, 280, 2, 4, optests.ChannelFirst)),
	tunedCase(tensor.BFloat16, servedParams(2, 80, 2, 11, optests.ChannelLast)),
}

// servedParams have states of the filter's length, for operators for serving.
func servedParams(batch, dim, seqlen, width int64, layout optests.Layout) optests.Conv1d {
	return optests.Conv1d{Batch: batch, Dim: dim, Seqlen: seqlen, Width: width, Layout: layout, SiLU: true,
		State: optests.State{Len: width - 1, Serve: optests.Serving{KeyDim: dim / 4 / 8 * 8}}}
}

// tunedCase is a case with an even seed: causal_conv1d_update has x as (batch, dim, seqlen).
func tunedCase(dt tensor.DType, p optests.Conv1d) optests.Case {
	return optests.Case{DType: dt, Seed: 2, Params: p}
}

// checkCandidates compares each case with the reference, for all combinations of the launch parameters that its call reads. It
// also checks that each launch parameter of the operator is read by some case.
func (g target) checkCandidates(t *testing.T, name string, cases []optests.Case) {
	dev, err := tensor.ParseDevice(*deviceFlag)
	if err != nil {
		t.Fatal(err)
	}
	op, err := g.reg.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	declared, err := op.LaunchParams(dev)
	if err != nil {
		t.Fatal(err)
	}
	if len(declared) == 0 {
		t.Skipf("no launch parameters on %s", dev)
	}
	read, calls := map[string]bool{}, 0
	for _, c := range cases {
		var names []string
		g.runner.Call = func(_ string, args []any) (err error) {
			names, err = op.ReadParams(t.Context(), args...)
			return err
		}
		g.checkCase(t, name, c, "with the first values")
		list := combinations(declared, names)
		for _, params := range list {
			with, err := op.WithParams(dev, params)
			if err != nil {
				t.Fatal(err)
			}
			g.runner.Call = func(_ string, args []any) error { return with.Call(t.Context(), args...) }
			g.checkCase(t, name, c, fmt.Sprint(params))
		}
		t.Logf("%s: %d combinations of %v", c, len(list), names)
		for _, param := range names {
			read[param] = true
		}
		calls += len(list)
	}
	for _, p := range declared {
		if !read[p.Name] {
			t.Errorf("no case reads the launch parameter %s", p.Name)
		}
	}
	if calls == 0 {
		t.Error("no combinations of launch parameters")
	}
}

func (g target) checkCase(t *testing.T, op string, c optests.Case, what string) {
	t.Helper()
	for result := range g.runner.RunCases(op, guarded(slices.Values([]optests.Case{c}))) {
		if !result.Ideal() {
			t.Errorf("%s: %s", what, result)
		}
	}
}

// combinations returns all combinations of the values of some of the parameters.
func combinations(declared []registry.LaunchParam, names []string) []map[string]int64 {
	list := []map[string]int64{{}}
	for _, p := range declared {
		if !slices.Contains(names, p.Name) {
			continue
		}
		var next []map[string]int64
		for _, params := range list {
			for _, v := range p.Values {
				with := maps.Clone(params)
				with[p.Name] = v
				next = append(next, with)
			}
		}
		list = next
	}
	return list
}
