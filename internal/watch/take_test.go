package watch

import (
	"testing"

	"github.com/aiter-go/aiter/jit"
)

// What a build says while the files are looked at is not overwritten by the look.
func TestTakeAfterSet(t *testing.T) {
	w, r := New(Options{}), jit.Request{Module: "module_m"}
	for _, said := range []bool{false, true} {
		w.Set(r, jit.Inputs{Files: map[string]string{"/a": "1"}})
		looked := w.groups[r]
		if said {
			w.Set(r, jit.Inputs{Files: map[string]string{"/a": "2"}})
		}
		w.take(r, looked, contents{"/a": "3"})
		if got, want := w.groups[r].known["/a"], map[bool]string{false: "3", true: "2"}[said]; got != want {
			t.Errorf("a build said so meanwhile %v: known as %s, want %s", said, got, want)
		}
	}
}
