package watch

import (
	"testing"

	"github.com/aiter-go/aiter/jit"
)

// A check of the files does not overwrite inputs that a build sets meanwhile.
func TestAcceptAfterSet(t *testing.T) {
	w, r := New(Options{}), jit.Request{Module: "module_m"}
	for _, replaced := range []bool{false, true} {
		w.Set(r, jit.Inputs{Files: map[string]string{"/a": "1"}})
		before := w.groups[r]
		if replaced {
			w.Set(r, jit.Inputs{Files: map[string]string{"/a": "2"}})
		}
		w.accept(r, before, contents{"/a": "3"})
		if got, want := w.groups[r].known["/a"], map[bool]string{false: "3", true: "2"}[replaced]; got != want {
			t.Errorf("a build has set the inputs meanwhile: %v; known content %s, want %s", replaced, got, want)
		}
	}
}
