package hostcall_test

import (
	"context"
	"errors"
	"testing"
	"testing/fstest"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/internal/hostcall"
	"github.com/aiter-go/aiter/tensor"
	"github.com/aiter-go/aiter/trace"
)

// traced returns an engine on a fake device with a recorder. It splits problems of 12 rows into pieces of two rows.
func traced(t *testing.T) (*gpu, *hostcall.Engine, *trace.Recorder) {
	t.Helper()
	g := buildGPU(t, "fakehip")
	rec := trace.New(trace.Options{})
	devs, err := device.Open(device.Options{Trace: rec, KFD: fstest.MapFS{}, HIPLibraries: []string{g.file}, CUDALibraries: []string{"none"}})
	must(t, err)
	t.Cleanup(func() { must(t, devs.Close()) })
	g.drv, err = devs.Driver(tensor.ROCM)
	must(t, err)
	g.pool, err = g.drv.NewPool(0, device.PoolOptions{})
	must(t, err)
	plain := g.launch
	g.kernel = func(ctx context.Context, ts []*tensor.Tensor) error {
		s, _ := device.StreamFrom(ctx)
		return devs.Launch(s, trace.Span{Kind: trace.Kernel, Name: "op"}, func() error { return plain(ctx, ts) })
	}
	return g, hostcall.New(g.drv, g.pool, hostcall.Options{Piece: 2408, Buffers: 2, Calls: 1, Trace: rec}), rec
}

// spansByTrack returns the spans of the device by the names of their tracks, and the failed ones of the host.
func spansByTrack(rec *trace.Recorder) (byTrack map[string][]trace.Span, failed []trace.Span) {
	byTrack = map[string][]trace.Span{}
	for _, s := range rec.Timeline().Spans {
		switch {
		case s.Track.Device != "":
			byTrack[s.Track.Name()] = append(byTrack[s.Track.Name()], s)
		case s.Failed:
			failed = append(failed, s)
		}
	}
	return byTrack, failed
}

// checkSpans verifies the spans of a call of which some pieces were uploaded, and some also computed and downloaded. Each piece has
// two tensors in each direction: a large one and its states. Both are one copy, from the first to the end of the last one, unless they
// are pinned.
func checkSpans(t *testing.T, rec *trace.Recorder, pinned bool, uploaded, computed int) {
	t.Helper()
	upBytes, downBytes := []int64{256 + 2400}, []int64{2560 + 8} // the second one begins at a multiple of 256
	if pinned {
		upBytes, downBytes = []int64{2400, 8}, []int64{2400, 8}
	}
	n := len(upBytes)
	byTrack, _ := spansByTrack(rec)
	ups, kernels, downs := byTrack["uploads"], byTrack["kernels"], byTrack["downloads"]
	if len(byTrack) > 3 || len(ups) != 1+n*uploaded || len(kernels) != computed || len(downs) != n*computed { // 1: the weights
		t.Fatalf("%d uploads, %d kernels, %d downloads on %d tracks; want %d, %d, %d on 3", len(ups), len(kernels), len(downs), len(byTrack),
			1+n*uploaded, computed, n*computed)
	}
	for i, k := range kernels {
		up, down := ups[1+n*i:1+n*(i+1)], downs[n*i:n*(i+1)]
		if k.Kind != trace.Kernel || up[n-1].End() > k.Start || k.End() > down[0].Start {
			t.Errorf("piece %d: upload %+v, kernel %+v, download %+v", i, up, k, down)
		}
		for c := range n {
			if up[c].Kind != trace.Upload || down[c].Kind != trace.Download || up[c].Bytes != upBytes[c] || down[c].Bytes != downBytes[c] {
				t.Errorf("piece %d, copy %d: upload %+v, download %+v; want %d and %d bytes", i, c, up[c], down[c], upBytes[c], downBytes[c])
			}
		}
	}
	queued := map[uint64]int{}
	for _, s := range rec.Timeline().Spans {
		if s.Flow != 0 {
			queued[s.Flow]++
		}
	}
	for flow, n := range queued {
		if n != 2 && (n != 1 || uploaded == computed) { // a failed launch has no work
			t.Errorf("flow %d has %d spans", flow, n)
		}
	}
}

// A call with a recorder has a span for the upload, the kernel and the download of each piece, on three tracks with names, and spans
// of the host for the copies to and from pinned memory.
func TestTrace(t *testing.T) {
	g, e, rec := traced(t)
	for seed := range uintptr(4) {
		g.fake("fake_shuffle", seed)
		for _, pinned := range []bool{false, true} {
			p := g.problem(shape{rows: 12, cols: 300, pinned: pinned})
			rec.Reset()
			must(t, e.Run(t.Context(), p.call))
			checkSpans(t, rec, pinned, 6, 6)
			if at := p.wrong(t); at >= 0 {
				t.Errorf("element %d is wrong", at)
			}
			packs := map[string]int{}
			for _, s := range rec.Timeline().Spans {
				if s.Kind == trace.Copy {
					packs[s.Name]++
				}
			}
			to, from := 13, 12 // the weights are never pinned
			if pinned {
				to, from = 1, 0
			}
			if packs["to pinned memory"] != to || packs["from pinned memory"] != from {
				t.Errorf("copies of the host: %v, want %d and %d", packs, to, from)
			}
		}
	}
	must(t, e.Close())
	s, err := g.drv.NewStream(0)
	must(t, err)
	must(t, s.Close())
}

// Calls that fail or are cancelled midway have the spans of what was queued, all of them complete.
func TestTraceOfEndedCalls(t *testing.T) {
	g, e, rec := traced(t)
	for after := range 5 {
		reason := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		p, n := g.problem(shape{rows: 12, cols: 300}), 0
		p.call.Launch = func(ctx context.Context, ts []*tensor.Tensor) error {
			if n++; n > after {
				cancel(reason)
			}
			return g.kernel(ctx, ts)
		}
		rec.Reset()
		if err := e.Run(ctx, p.call); !errors.Is(err, reason) {
			t.Errorf("cancelled after %d pieces: %v", after, err)
		}
		checkSpans(t, rec, false, after+1, after+1)

		n = 0
		p = g.problem(shape{rows: 12, cols: 300})
		p.call.Launch = func(ctx context.Context, ts []*tensor.Tensor) error {
			if n++; n > after {
				return reason
			}
			return g.kernel(ctx, ts)
		}
		rec.Reset()
		if err := e.Run(t.Context(), p.call); !errors.Is(err, reason) {
			t.Errorf("failed after %d pieces: %v", after, err)
		}
		checkSpans(t, rec, false, after+1, after)
		cancel(nil)
	}
}

// A device that is lost midway leaves a timeline that can be read, in which the call that failed is marked.
func TestTraceOfLostDevice(t *testing.T) {
	for _, at := range []uintptr{50, 70, 90} {
		g, e, rec := traced(t)
		p := g.problem(shape{rows: 12, cols: 300})
		must(t, e.Run(t.Context(), p.call))
		rec.Reset()
		g.fake("fake_fail_at", at, 1)
		var lost *device.Error
		if err := e.Run(t.Context(), p.call); !errors.As(err, &lost) {
			t.Errorf("lost at call %d: %v", at, err)
		}
		if _, failed := spansByTrack(rec); len(failed) == 0 {
			t.Errorf("lost at call %d: no span of the host has an error", at)
		}
		g.fake("fake_fail_at", 0, 0)
		must(t, e.Close())
	}
}
