//go:build linux

package jit_test

import (
	"context"
	"errors"
	"testing"
)

// A context that is over is the error of a build, also of one that the cache has.
func TestBuildWithContextThatIsOver(t *testing.T) {
	b := newFixture(t)
	m := b.manager()
	cause := errors.New("the request ended")
	over, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	for _, cached := range []bool{false, true} {
		results, err := m.Build(over, demo(t))
		if !errors.Is(err, cause) || !errors.Is(results[0].Err, cause) {
			t.Errorf("cached %t: Build returned %v, want the cause of the context's end", cached, err)
		}
		if n := b.compiles(); n != 0 {
			t.Errorf("cached %t: %d units were compiled", cached, n)
		}
		if _, err := m.Build(t.Context(), demo(t)); err != nil {
			t.Fatal(err)
		}
		b.compiles()
	}
}
