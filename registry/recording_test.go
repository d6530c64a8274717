//go:build linux

package registry_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
	"github.com/aiter-go/aiter/trace"
)

// count returns the number of spans of a kind that belong to a call, 0 for any call.
func count(line *trace.Timeline, k trace.Kind, call uint64) int {
	n := 0
	for _, s := range line.Spans {
		if s.Kind == k && (call == 0 || s.Call == call) {
			n++
		}
	}
	return n
}

// The timeline of a first call has the build inside the call. That of a later call has only the launch and the kernel. Other
// observers and tracers receive the same as without a timeline.
func TestTrace(t *testing.T) {
	rec, f, n := trace.New(trace.Options{}), &follower{timed: true}, new(compiles)
	r := open(t, registry.Options{CacheDir: builtCache(t), Root: editedTree(t), Trace: rec, Observer: jit.Join(n, f)})
	op := lookup(t, r, "causal_conv1d_fwd")
	out, x, w := small()
	if err := op.Call(t.Context(), out, x, w); err != nil {
		t.Fatal(err)
	}
	line := rec.Timeline()
	for k, least := range map[trace.Kind]int{
		trace.Call: 1, trace.Build: 1, trace.Lookup: 2, trace.Compile: 1, trace.Link: 1, trace.Load: 1, trace.Launch: 1, trace.Kernel: 1,
	} {
		if got := count(line, k, 1); got < least {
			t.Errorf("the first call has %d spans of kind %s, want %d: %+v", got, k, least, line.Spans)
		}
	}
	if paths := f.take(); !slices.Contains(paths, "/call/build/compile") || n.n.Load() == 0 || f.calls[0].DeviceTime <= 0 {
		t.Errorf("the other observers saw %v, %d compiles, %+v", paths, n.n.Load(), f.calls)
	}
	rec.Reset()
	rec.Pause()
	if err := op.Call(t.Context(), out, x, w); err != nil || len(rec.Timeline().Spans) > 0 {
		t.Errorf("while the recorder is paused a call recorded %+v, %v", rec.Timeline().Spans, err)
	}
	rec.Resume()
	if err := op.Call(t.Context(), out, x); err == nil {
		t.Error("a call without the weight returned no error")
	}
	if err := op.Call(t.Context(), out, x, w); err != nil {
		t.Fatal(err)
	}
	var kinds []trace.Kind
	line = rec.Timeline()
	for _, s := range line.Spans {
		kinds = append(kinds, s.Kind)
	}
	if failed := line.Spans[0]; !failed.Failed || failed.Kind != trace.Call || failed.Name != "causal_conv1d_fwd" {
		t.Errorf("the refused call is %+v", failed)
	}
	if want := []trace.Kind{trace.Call, trace.Call, trace.Launch, trace.Kernel}; !slices.Equal(kinds, want) {
		t.Errorf("a call of loaded code has %v, want %v", kinds, want)
	}
}

// Concurrent calls have different lanes of the timeline, each with the launch of its call.
func TestTraceLanes(t *testing.T) {
	for _, verify := range []bool{false, true} {
		rec := trace.New(trace.Options{})
		r := open(t, registry.Options{Root: quickTree(t, "", ""), Trace: rec, Verify: verify})
		op := lookup(t, r, "causal_conv1d_fwd")
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 20 {
					out, x, w := small()
					if err := op.Call(t.Context(), out, x, w); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		line := rec.Timeline()
		lanes := map[uint64]uint64{} // of calls
		for _, s := range line.Spans {
			if s.Kind == trace.Call {
				lanes[s.Call] = s.Track.ID
			}
		}
		for _, s := range line.Spans {
			if lane, known := lanes[s.Call]; s.Kind == trace.Launch && (!known || lane != s.Track.ID) {
				t.Errorf("verify %t: a launch is on lane %d, its call %d on %d", verify, s.Track.ID, s.Call, lane)
			}
		}
		if len(lanes) != 80 || count(line, trace.Launch, 0) != 80 || count(line, trace.Kernel, 0) != 80 {
			t.Errorf("verify %t: %d calls, %d launches, %d kernels; want 80", verify, len(lanes), count(line, trace.Launch, 0),
				count(line, trace.Kernel, 0))
		}
	}
}

// BenchmarkCallTrace compares calls with and without a timeline.
func BenchmarkCallTrace(b *testing.B) {
	for name, rec := range map[string]*trace.Recorder{"off": nil, "on": trace.New(trace.Options{})} {
		b.Run(name, func(b *testing.B) {
			r := open(b, registry.Options{Trace: rec})
			op := lookup(b, r, "causal_conv1d_fwd")
			x, out := must(tensor.New(tensor.Float32, 0, 1, 4)), must(tensor.New(tensor.Float32, 0, 1, 4))
			w := must(tensor.New(tensor.Float32, 1, 3))
			if err := op.Call(b.Context(), out, x, w); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := op.Call(b.Context(), out, x, w, nil, false, nil, nil, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
