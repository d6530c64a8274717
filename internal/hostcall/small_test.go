package hostcall_test

import (
	"context"
	"slices"
	"testing"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/internal/hostcall"
	"github.com/aiter-go/aiter/tensor"
)

// A call in one piece has one upload and one download for all of its arguments, and one block of memory on the device, also if they are
// pinned, have gaps, or cannot be split along an axis.
func TestOneCopyForSmallArguments(t *testing.T) {
	g, _, rec := traced(t)
	e := hostcall.New(g.drv, g.pool, hostcall.Options{Trace: rec})
	for title, sh := range map[string]shape{
		"pageable": {rows: 4, cols: 64}, "pinned": {rows: 4, cols: 64, pinned: true}, "in place": {rows: 4, cols: 64, inPlace: true},
		"gaps": {rows: 4, cols: 61, gap: 3}, "pinned gaps": {rows: 4, cols: 61, gap: 3, pinned: true}, "odd": {rows: 3, cols: 7},
		"stateless": {rows: 4, cols: 64, stateless: true},
	} {
		for seed := range uintptr(4) {
			g.fake("fake_shuffle", seed)
			p := g.problem(sh)
			rec.Reset()
			must(t, e.Run(t.Context(), p.call))
			byTrack, _ := spansByTrack(rec)
			if up, down := len(byTrack["uploads"]), len(byTrack["downloads"]); up != 1 || down != 1 {
				t.Errorf("%s: %d uploads and %d downloads, want 1 and 1", title, up, down)
			}
			if at := p.wrong(t); at >= 0 {
				t.Errorf("%s: element %d is wrong", title, at)
			}
		}
	}
	if now := g.pool.Stats(); now.Device.InUse != 0 || now.Pinned.InUse != 0 {
		t.Errorf("in use after the calls: %+v", now)
	}
	must(t, e.Close())
}

// A later call in one piece makes few calls of the runtime: two copies, five for the order of the streams, an allocation and its
// release, what the pool holds then, and the wait for the results.
func TestCallsOfTheRuntime(t *testing.T) {
	g := openGPU(t, "fakehip", device.PoolOptions{})
	e := hostcall.New(g.drv, g.pool, hostcall.Options{})
	for i := range 3 {
		p := g.problem(shape{rows: 4, cols: 64})
		g.fake("fake_fail_at", 0, 0)
		must(t, e.Run(t.Context(), p.call))
		if n := g.fake("fake_calls"); i > 0 && n != 11 {
			t.Errorf("call %d: %d calls of the runtime, want 11", i, n)
		}
	}
	must(t, e.Close())
}

// Seven arguments of several sizes, types and directions do not overlap on the device, and begin at multiples of 256 bytes.
func TestOffsetsOfSmallArguments(t *testing.T) {
	g, _, rec := traced(t)
	e := hostcall.New(g.drv, g.pool, hostcall.Options{Trace: rec})
	type argument struct {
		dt            tensor.DType
		n             int64
		read, written bool
	}
	list := []argument{
		{tensor.Float32, 70, false, true}, {tensor.BFloat16, 33, true, false}, {tensor.Int64, 1, true, true}, {tensor.UInt8, 300, true, false},
		{tensor.Float32, 0, true, false}, {tensor.UInt8, 1, false, true}, {tensor.Float64, 5, true, false},
	}
	var call hostcall.Call
	for i, a := range list {
		x, err := tensor.New(a.dt, a.n)
		must(t, err)
		must(t, x.SetFloat64s(slices.Repeat([]float64{float64(i + 1)}, int(a.n))))
		call.Args = append(call.Args, hostcall.Argument{Tensor: x, Read: a.read, Written: a.written})
	}
	call.Launch = func(ctx context.Context, ts []*tensor.Tensor) error {
		s, _ := device.StreamFrom(ctx)
		must(t, g.drv.Synchronize(s)) // the uploads are done, and the "device" is memory of this process
		end := uintptr(0)
		for _, i := range []int{0, 5, 2, 1, 3, 4, 6} { // in the order of their offsets
			x := ts[i]
			if (x.Ptr()-ts[0].Ptr())%256 != 0 || x.Numel() > 0 && x.Ptr() < end {
				t.Errorf("argument %d is at %#x, behind %#x", i, x.Ptr(), end)
			}
			end = x.Ptr() + uintptr(x.Numel()*x.DType().Size())
		}
		return nil
	}
	must(t, e.Run(t.Context(), call))
	byTrack, _ := spansByTrack(rec)
	ups, downs := byTrack["uploads"], byTrack["downloads"]
	if len(ups) != 1 || ups[0].Bytes != 256+256+512+40 || len(downs) != 1 || downs[0].Bytes != 512+256+8 {
		t.Errorf("uploads %+v, downloads %+v", ups, downs)
	}
	for _, i := range []int{1, 3, 6, 2} { // what is read is unchanged, also if nothing has written it on the device
		for _, v := range values(t, call.Args[i].Tensor) {
			if v != float64(i+1) {
				t.Errorf("argument %d is %v, want %d", i, v, i+1)
			}
		}
	}
	if n := g.pool.Stats().Device.Allocations; n != 1 {
		t.Errorf("%d allocations on the device, want 1", n)
	}
	must(t, e.Close())
}

// Large pinned arguments of a call in one piece are copied without staging. A piece that is shorter than its buffer copies only its
// own bytes.
func TestLargeArguments(t *testing.T) {
	g, _, rec := traced(t)
	e := hostcall.New(g.drv, g.pool, hostcall.Options{Trace: rec, Piece: 400 << 10})
	p := g.problem(shape{rows: 4, cols: 20_000, pinned: true, stateless: true})
	p.call.Units = nil
	for i := range p.call.Args {
		p.call.Args[i].Along = nil
	}
	must(t, e.Run(t.Context(), p.call))
	if peak := g.pool.Stats().Pinned.Peak; peak > 90_000 { // the weights
		t.Errorf("%d bytes of pinned memory", peak)
	}
	if at := p.wrong(t); at >= 0 {
		t.Errorf("element %d is wrong", at)
	}
	rec.Reset()
	p = g.problem(shape{rows: 7, cols: 60_000}) // in pieces of 3 and 4 rows, or of 1 and 2
	must(t, e.Run(t.Context(), p.call))
	if at := p.wrong(t); at >= 0 {
		t.Errorf("pieces of two sizes: element %d is wrong", at)
	}
	byTrack, _ := spansByTrack(rec)
	for track, rows := range map[string]int64{"uploads": 8, "downloads": 7} { // x and the weights, out
		bytes := int64(0)
		for _, c := range byTrack[track] {
			bytes += c.Bytes
		}
		if want := rows * 60_000 * 4; bytes < want || bytes > want+4096 {
			t.Errorf("%s: %d bytes, want %d and states", track, bytes, want)
		}
	}
	must(t, e.Close())
}
