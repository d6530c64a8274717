package hostcall_test

import (
	"context"
	"testing"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/internal/hostcall"
	"github.com/aiter-go/aiter/tensor"
)

// Pieces are contiguous where that costs little. Rows of pinned memory are copied without packing. Short rows lead to larger pieces.
func TestSplits(t *testing.T) {
	for _, c := range []struct {
		name       string
		b, d, l    int64
		last       bool // channels are adjacent
		pinned     bool
		piece      int64
		pieces     int
		rows       int // copies of rows
		mostPinned int64
	}{
		{"channel-first, pinned", 4, 512, 256, false, true, 128 << 10, 16, 0, 0},
		{"channel-first", 4, 512, 256, false, false, 128 << 10, 16, 0, 1 << 30},
		{"channel-last, pinned: rows of 512 bytes", 4, 512, 256, true, true, 128 << 10, 16, 32, 0},
		{"one batch, pinned: 64 bytes become 256", 1, 512, 1024, true, true, 64 << 10, 8, 16, 0},
		{"channel-last: whole batches instead of rows", 16, 512, 256, true, false, 128 << 10, 16, 0, 1 << 30},
		{"one batch: rows are packed", 1, 512, 1024, true, false, 64 << 10, 8, 0, 1 << 30},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := openGPU(t, "fakecuda", device.PoolOptions{})
			activation := func() *tensor.Tensor {
				n := c.b * c.d * c.l * 4
				s, err := tensor.HostStorage(n)
				if c.pinned {
					s, err = g.drv.AllocHost(n)
				}
				must(t, err)
				strides := []int64{c.d * c.l, c.l, 1}
				if c.last {
					strides = []int64{c.d * c.l, 1, c.d}
				}
				x, err := tensor.View(s, tensor.Float32, []int64{c.b, c.d, c.l}, strides, 0)
				must(t, err)
				return x
			}
			pieces := 0
			call := hostcall.Call{
				Args: []hostcall.Argument{
					{Tensor: activation(), Written: true, Along: []int{0, 1}}, {Tensor: activation(), Read: true, Along: []int{0, 1}},
				},
				Units: []int64{c.b, c.d},
				Launch: func(_ context.Context, ts []*tensor.Tensor) error {
					pieces++
					if last := ts[0].Stride(1) == 1; last != c.last && ts[0].Dim(1) > 1 {
						t.Errorf("strides %v on the device", ts[0].Strides())
					}
					return nil
				},
			}
			must(t, hostcall.New(g.drv, g.pool, hostcall.Options{Piece: c.piece}).Run(t.Context(), call))
			if n := g.fake("fake_copies_of_rows"); pieces != c.pieces || n != c.rows {
				t.Errorf("%d pieces and %d copies of rows, want %d and %d", pieces, n, c.pieces, c.rows)
			}
			if most := g.pool.Stats().Pinned.Peak; most > c.mostPinned {
				t.Errorf("%d bytes of pinned memory for staging", most)
			}
		})
	}
}
