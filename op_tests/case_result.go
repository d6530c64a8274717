package optests

import (
	"fmt"
	"github.com/aiter-go/aiter/tensor"
	"iter"
	"strings"
)

// CaseResult is one case of an operator, tried.
type CaseResult struct {
	Op      string
	Case    Case
	Results []Result
	Err     error // what kept the operator from being called or its outputs from being read
}

// OK reports whether the case ran and every output is right.
func (t CaseResult) OK() bool { return t.Err == nil && Passed(t.Results) }

// Ideal reports whether no output is worse than float32 sums rounded once.
func (t CaseResult) Ideal() bool {
	for _, r := range t.Results {
		if r.BeyondIdeal > 0 {
			return false
		}
	}
	return t.OK()
}

// String is the case and how it went, a line for each output.
func (t CaseResult) String() string {
	if t.Err != nil {
		return fmt.Sprintf("%s %s: %v", t.Op, t.Case, t.Err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", t.Op, t.Case)
	for _, r := range t.Results {
		fmt.Fprintf(&b, "\n\t%s", r)
	}
	return b.String()
}

// RunCases runs the cases one after another and yields how each went.
func (r Runner) RunCases(op string, cases iter.Seq[Case]) iter.Seq[CaseResult] {
	return func(yield func(CaseResult) bool) {
		for c := range cases {
			results, err := r.RunCase(op, c)
			if !yield(CaseResult{Op: op, Case: c, Results: results, Err: err}) {
				return
			}
		}
	}
}

// EdgeCases are the sizes at which kernels break: nothing at all, fewer
// positions than the filter has, one more than a block, a launch grid or a tile
// holds.
func EdgeCases() []Case {
	sizes := []Case{
		{Batch: 0, Dim: 3, Seqlen: 5, Width: 4}, {Batch: 2, Dim: 0, Seqlen: 5, Width: 4}, {Batch: 2, Dim: 3, Seqlen: 0, Width: 4},
		{Batch: 2, Dim: 3, Seqlen: 0, Width: 1}, {Batch: 1, Dim: 1, Seqlen: 1, Width: 1}, {Batch: 2, Dim: 5, Seqlen: 2, Width: 4},
		{Batch: 2, Dim: 5, Seqlen: 3, Width: 9}, {Batch: 2, Dim: 7, Seqlen: 70, Width: 33}, {Batch: 1, Dim: 2, Seqlen: 300, Width: 257},
		{Batch: 1, Dim: 65536 + 3, Seqlen: 5, Width: 3}, {Batch: 65536 + 3, Dim: 1, Seqlen: 5, Width: 2},
		{Batch: 1, Dim: 1, Seqlen: 65536 + 5, Width: 4}, {Batch: 3, Dim: 33, Seqlen: 1025, Width: 4}, {Batch: 2, Dim: 3, Seqlen: 784, Width: 1},
	}
	var cases []Case
	for _, c := range sizes {
		for _, layout := range []Layout{ChannelFirst, ChannelLast} {
			for _, flags := range edgeFlags() {
				flags.Batch, flags.Dim, flags.Seqlen, flags.Width = c.Batch, c.Dim, c.Seqlen, c.Width
				flags.Layout, flags.Seed = layout, uint64(len(cases))
				cases = append(cases, flags)
			}
		}
	}
	return cases
}

// edgeFlags are a few combinations of options that each size is tried with.
func edgeFlags() []Case {
	return []Case{
		{},
		{SiLU: true, WithStates: true, Slice: true, DType: tensor.Float16, WeightDType: tensor.Float32},
		{SiLU: true, NoBias: true, WithSeqIdx: true, DType: tensor.BFloat16},
		{EmptyBias: true, WithSeqIdx: true, WithStates: true, Slice: true},
		{WithInitial: true, DType: tensor.BFloat16, WeightDType: tensor.Float16, GradDType: tensor.Float32},
		{WithFinal: true, NoBias: true, DType: tensor.Float16, Mixed: true},
	}
}
