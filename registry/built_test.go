//go:build linux

package registry_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/aiter-go/aiter/registry"
)

// builtDir is the folder of [built], "" before its first call.
var builtDir string

// built returns a folder with the cache in which a call of causal_conv1d_fwd from [quickTree] was built.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "aiter-built-")
	if err != nil {
		return "", err
	}
	builtDir = dir
	root := filepath.Join(dir, "tree")
	if err := writeQuickTree(root, "", ""); err != nil {
		return dir, err
	}
	r, err := registry.Open(context.Background(), registry.Options{CacheDir: filepath.Join(dir, "cache"), Root: root})
	if err != nil {
		return dir, err
	}
	op, err := r.Lookup("causal_conv1d_fwd")
	if err == nil {
		out, x, w := small()
		err = op.Call(context.Background(), out, x, w)
	}
	return dir, errors.Join(err, r.Close())
})

// builtCache returns a new cache that has all that a call of [small] with causal_conv1d_fwd from [quickTree] needs, for tests
// of later stages than compiles.
func builtCache(t *testing.T) string {
	t.Helper()
	dir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "cache")
	if err := errors.Join(os.CopyFS(to, os.DirFS(filepath.Join(dir, "cache"))), os.Chmod(to, 0o700)); err != nil {
		t.Fatal(err)
	}
	return to
}

// editedTree returns a [quickTree] in which one unit of causal_conv1d_fwd differs, so that with a [builtCache] a call compiles
// this unit and links.
func editedTree(t *testing.T) string {
	t.Helper()
	root := quickTree(t, "", "")
	f, err := os.OpenFile(filepath.Join(root, "csrc/kernels/causal_conv1d/cpu/long_row.cpp"), os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, err = f.WriteString("int edited = 1;\n")
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// removeBuilt removes the folder of [built] at the end of the tests.
func removeBuilt() {
	if builtDir != "" {
		_ = os.RemoveAll(builtDir)
	}
}
