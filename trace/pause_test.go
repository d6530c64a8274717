package trace_test

import (
	"testing"

	"github.com/aiter-go/aiter/trace"
)

// A paused recorder keeps its spans, ends those that have begun, and begins none.
func TestPause(t *testing.T) {
	var none *trace.Recorder
	none.Pause()
	none.Resume()
	r := trace.New(trace.Options{})
	first := r.Begin(trace.Host, "first")
	r.Pause()
	first.End(nil)
	second := r.Begin(trace.Host, "second")
	second.End(nil)
	if none.Recording() || r.Recording() || second.Recorded() {
		t.Errorf("recording: nil %v, paused %v, its span %v", none.Recording(), r.Recording(), second.Recorded())
	}
	r.Resume()
	third := r.Begin(trace.Host, "third")
	third.End(nil)
	var names string
	for _, s := range r.Timeline().Spans {
		names += s.Name + " "
	}
	if names != "first third " || !r.Recording() {
		t.Errorf("spans %q, recording %v", names, r.Recording())
	}
}
