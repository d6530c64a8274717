package registry_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/aiter-go/aiter/jit/cache"
	"github.com/aiter-go/aiter/registry"
)

// Where the cache cannot be written, the folder in its place has a name that
// anybody may take first. One that others can write to is refused even by who
// trusts the cache that was asked for.
func TestTemporaryCacheOfOthersIsRefused(t *testing.T) {
	const unwritable = "/sys/aiter" // nobody makes folders there
	tmp := t.TempDir()
	taken := filepath.Join(tmp, fmt.Sprintf("aiter-jit-%d", os.Getuid()))
	if err := errors.Join(os.Mkdir(taken, 0o700), os.Chmod(taken, 0o777)); err != nil {
		t.Fatal(err)
	}
	opts := registry.CacheOptions{Dir: unwritable, Build: true, Trust: true, Getenv: env(map[string]string{"TMPDIR": tmp})}
	var untrusted *cache.UntrustedError
	if store, err := registry.OpenCache(context.Background(), opts); !errors.As(err, &untrusted) {
		t.Fatalf("got %v, %v, want a *cache.UntrustedError", store, err)
	}
	if err := os.Chmod(taken, 0o700); err != nil {
		t.Fatal(err)
	}
	store, err := registry.OpenCache(context.Background(), opts)
	if err != nil || store.Path() != taken {
		t.Errorf("of the user alone: %v, %v", store, err)
	}
}
