package jit

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/aiter-go/aiter/internal/cache"
)

// TestObjectCleanedWhileUsed removes an object between its lookup and the link. The link has to
// report a miss, so that the object is compiled again.
func TestObjectCleanedWhileUsed(t *testing.T) {
	store, err := cache.Open(t.TempDir(), cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	stage, err := store.NewStage()
	if err != nil {
		t.Fatal(err)
	}
	defer stage.Close()
	if err := os.WriteFile(stage.File("object"), []byte("object"), 0o600); err != nil {
		t.Fatal(err)
	}
	digest, err := store.AddBlob(stage.File("object"))
	if err != nil {
		t.Fatal(err)
	}
	p := &heldObjects{store: store}
	ref, to := cache.Ref{Unit: "unit", Object: digest}, filepath.Join(t.TempDir(), "unit0.o")
	if err := p.place(ref, to, linkOrCopy); err != nil {
		t.Fatal(err)
	}
	other := errors.New("disk full")
	if err := p.place(ref, to, func(string, string) error { return other }); err != other {
		t.Errorf("another failure: %v, want it unchanged", err)
	}
	err = p.place(ref, to+"2", func(from, to string) error {
		return errors.Join(os.Remove(from), linkOrCopy(from, to))
	})
	var miss *cache.MissError
	if !errors.As(err, &miss) || miss.Key != digest {
		t.Errorf("removed after the lookup: %v, want a *cache.MissError of %s", err, digest)
	}
	if err := p.place(ref, to, linkOrCopy); !errors.As(err, &miss) {
		t.Errorf("removed before the lookup: %v, want a *cache.MissError", err)
	}
}
