package watch

import (
	"testing"

	"github.com/aiter-go/aiter/jit"
)

// A check of the files does not overwrite inputs that a build sets meanwhile.
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
			t.Errorf("a build has set the inputs meanwhile: %v; known content %s, want %s", said, got, want)
		}
	}
}
