//go:build linux

package registry_test

import (
	"context"
	"errors"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// An operator is not ready if the support library cannot be built, and the error names
// that module.
func TestNotReadyWithoutTheSupportLibrary(t *testing.T) {
	c := newCheckout(t)
	c.Write("csrc/support/broken.cpp", "oops\n")
	r := open(t, registry.Options{Root: c.Root, CacheDir: t.TempDir()})
	if err := r.Warm(context.Background(), tensor.Host(), "version"); err == nil {
		t.Error("Warm built a broken library")
	}
	if r.Ready(tensor.Host(), "version") {
		t.Error("ready, but a call has to compile the support library")
	}
	_, err := callVersion(lookup(t, r, "version"))
	var build *registry.BuildError
	if !errors.As(err, &build) || build.Request.Module != "module_aiter_ffi" {
		t.Errorf("got %v, want a BuildError of the support library", err)
	}
}

// An operator is not ready if the support library was built and cannot be loaded.
func TestNotReadyWithoutTheLibrary(t *testing.T) {
	testenv.Long(t)
	c := &cleaner{dir: t.TempDir()}
	c.left.Store(1000)
	r := open(t, registry.Options{CacheDir: c.dir, Root: quickTree(t, "", ""), Observer: c})
	if err := r.Warm(context.Background(), tensor.Host(), "causal_conv1d_fwd"); err == nil {
		t.Error("Warm loaded a library that was removed")
	}
	if r.Ready(tensor.Host(), "causal_conv1d_fwd") {
		t.Error("ready, but a call has to link the module")
	}
	c.left.Store(0)
	if err := r.Warm(context.Background(), tensor.Host(), "causal_conv1d_fwd"); err != nil {
		t.Fatal(err)
	}
	if !r.Ready(tensor.Host(), "causal_conv1d_fwd") {
		t.Error("not ready after Warm")
	}
}
