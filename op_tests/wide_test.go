package optests_test

import (
	"fmt"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

// wideWidths are on both sides of a step of matrix cores, of a column and of a block of taps.
// The reference takes minutes for all of them under the race detector, which tests no kernel.
func wideWidths() []int64 {
	if testenv.Race {
		return []int64{9, 33, 129}
	}
	return []int64{9, 15, 16, 17, 31, 33, 64, 100, 128, 129, 257}
}

// wideCases are for one width: rows that are whole vectors and others, of less than an item, of one and of several, with
// each option.
func wideCases(width int64, types ...tensor.DType) []optests.Case {
	var cases []optests.Case
	add := func(n int, weight []tensor.DType, p optests.Conv1d) {
		for _, dtype := range types {
			p.Width = width
			c := optests.Case{DType: dtype, Seed: uint64(len(cases)), Params: p, Slice: n%5 == 4}
			if len(weight) > 0 {
				c.WeightDType = weight[0]
			}
			cases = append(cases, c)
		}
	}
	for n, seqlen := range []int64{1040, 1027, 96, 2056, 63} {
		add(n, nil, optests.Conv1d{Batch: 1 + int64(n%2), Dim: 2, Seqlen: seqlen, SiLU: n%2 == 0})
		add(n, []tensor.DType{tensor.Float32}, optests.Conv1d{Batch: 1, Dim: 1, Seqlen: seqlen, WithStates: n%2 == 0, SiLU: n%3 == 0})
		add(n, nil, optests.Conv1d{Batch: 1, Dim: 2, Seqlen: seqlen, WithSeqIdx: true, NoBias: true})
		add(n, nil, optests.Conv1d{Batch: 1, Dim: 8, Seqlen: min(seqlen, 1040), Layout: optests.ChannelLast, WithSeqIdx: n%2 == 0,
			WithStates: n == 3})
		add(n, nil, optests.Conv1d{Batch: 2, Dim: 9, Seqlen: min(seqlen, 96), Layout: optests.ChannelLast, Groups: 3})
	}
	return cases
}

// TestWide compares the operators with filters from 9 taps on with the reference.
func TestWide(t *testing.T) {
	target := open(t)
	for _, op := range optests.Conv1dOperators() {
		for _, width := range wideWidths() {
			t.Run(fmt.Sprintf("%s/width=%d", op, width), func(t *testing.T) {
				target.checkTolerance(t, op, wideCases(width, tensor.BFloat16, tensor.Float16, tensor.Float32))
			})
		}
	}
}

// TestWideSpecial is TestSpecialValues for filters from 9 taps on: products with the zeros around a filter exist on matrix
// cores, and an infinity or NaN among them must not reach an output.
func TestWideSpecial(t *testing.T) {
	target := open(t)
	for _, op := range optests.Conv1dOperators() {
		for _, width := range wideWidths() {
			t.Run(fmt.Sprintf("%s/width=%d", op, width), func(t *testing.T) {
				cases := wideCases(width, tensor.BFloat16, tensor.Float32)
				for i, c := range cases[:len(cases)/5*2] {
					for j, name := range specialInputs[op] {
						if (i+j)%3 == 0 {
							target.checkSpecial(t, op, c, name, i/3+j)
						}
					}
				}
			})
		}
	}
}
