package optests

import (
	"fmt"
	"testing"
)

// BenchmarkHarness measures the time that the suite itself takes, without a kernel, for each element of a case.
func BenchmarkHarness(b *testing.B) {
	for _, op := range Conv1dOperators() {
		for _, c := range []Case{
			{Params: Conv1d{Batch: 1, Dim: 256, Seqlen: 2048, Width: 4, SiLU: true}},
			{Slice: true, Params: Conv1d{Batch: 1, Dim: 256, Seqlen: 2048, Width: 4, SiLU: true, WithSeqIdx: true, Layout: ChannelLast}},
		} {
			b.Run(fmt.Sprintf("%s/%s", op, c), func(b *testing.B) {
				for b.Loop() {
					p, err := Generate(op, c)
					if err != nil {
						b.Fatal(err)
					}
					want, err := p.Reference()
					if err != nil {
						b.Fatal(err)
					}
					run := Runner{Call: func(_ string, args []any) error {
						return p.Tensor(p.Outputs[0].Name).SetFloat64s(want[p.Outputs[0].Name])
					}}
					if _, err := run.Run(p); err != nil {
						b.Fatal(err)
					}
				}
				elements := float64(conv(c).Batch * conv(c).Dim * conv(c).Seqlen)
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/elements, "ns/element")
			})
		}
	}
}
