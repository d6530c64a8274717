package optests

import (
	"testing"

	"github.com/aiter-go/aiter/tensor"
)

// TestNoGuard checks that storages of cases without guard bytes end with the last block of their tensor, so that a memory checker
// finds each access beyond that block.
func TestNoGuard(t *testing.T) {
	for _, dt := range DTypes() {
		for _, slice := range []bool{false, true} {
			c := Case{DType: dt, NoGuard: true, Slice: slice, Params: Conv1d{Batch: 1, Dim: 3, Seqlen: 7, Width: 4}}
			p, err := Generate("causal_conv1d_fwd", c)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"x", "weight", "out"} {
				x := p.Tensor(name)
				end := x.Offset()
				for i, stride := range x.Strides() {
					end += (x.Dim(i) - 1) * stride
				}
				end = (end + 1) * x.DType().Size()
				if spare := x.Storage().Size() - end; spare < 0 || spare >= tensor.BlockBytes || x.Storage().Size()%tensor.BlockBytes != 0 {
					t.Errorf("%s: %s ends at byte %d of %d", p, name, end, x.Storage().Size())
				}
			}
		}
	}
}
