package optests_test

import (
	"math"
	"testing"

	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

func TestHostBytes(t *testing.T) {
	fwd, err := optests.Lookup("causal_conv1d_fwd")
	if err != nil {
		t.Fatal(err)
	}
	const n = 2 * 64 * 128 // elements of out and of x
	sized := optests.Case{Params: optests.Conv1d{Batch: 2, Dim: 64, Seqlen: 128, Width: 4}}
	small := int64(4096) // guard bytes and weights
	for _, tt := range []struct {
		name string
		c    optests.Case
		use  optests.Use
		want int64
	}{
		{"timing", sized, optests.ForTiming, 2 * 4 * n},
		{"call", sized, optests.ForCalls, 2*4*n + 8*n},
		{"comparison", sized, optests.ForComparison, 2*4*n + 2*8*n},
	} {
		got, err := fwd.HostBytes(tt.c, tt.use)
		if err != nil || got < tt.want || got > tt.want+2*small {
			t.Errorf("%s: %d bytes (%v), want %d and a little", tt.name, got, err, tt.want)
		}
	}
	half := sized
	half.DType = tensor.Float16
	if got, err := fwd.HostBytes(half, optests.ForTiming); err != nil || got < 2*2*n || got > 2*2*n+small {
		t.Errorf("float16: %d bytes (%v)", got, err)
	}
	none := optests.Case{Params: optests.Conv1d{Dim: 1 << 40, Seqlen: 1 << 40, Width: 4}} // no elements, but huge strides
	if got, err := fwd.HostBytes(none, optests.ForTiming); err != nil || got != math.MaxInt64 {
		t.Errorf("huge: %d bytes (%v)", got, err)
	}
}
