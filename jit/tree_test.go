//go:build linux

package jit_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/deps"
	"github.com/aiter-go/aiter/jit"
)

// testTree returns testFiles as files that are embedded in a program.
func testTree() fstest.MapFS {
	files := fstest.MapFS{}
	for name, text := range testFiles {
		files[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	}
	return files
}

// collect runs the garbage collector, which closes unreferenced files.
func collect() {
	for range 3 {
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
	}
}

func TestEmbeddedTreeIsKeptWhileInUse(t *testing.T) {
	store, err := cache.Open(t.TempDir(), cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tree := deps.NewEmbeddedTree(testTree(), store)
	dir, err := tree.Dir(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, again := range []bool{false, true} {
		collect()
		if _, err := store.Clean(cache.CleanRequest{}); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(dir); err != nil {
			t.Fatalf("extracted again %v: clean removed a tree that is in use: %v", again, err)
		}
		if again {
			break
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if _, err := tree.Dir(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	runtime.KeepAlive(tree)
}

// TestEmbeddedTreeIsPrivate checks that a tree that other users can change is extracted again, even
// if its content is right.
func TestEmbeddedTreeIsPrivate(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("giving files away needs root")
	}
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	path := t.TempDir()
	if err := os.Chmod(path, 0o700); err != nil {
		t.Fatal(err)
	}
	lay := func() string {
		store, err := cache.Open(path, cache.Options{}) // as another process
		if err != nil {
			t.Fatal(err)
		}
		dir, err := deps.NewEmbeddedTree(testTree(), store).Dir(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	dir := lay()
	spoil := []func(string) error{
		func(path string) error { return nil },
		func(path string) error { return os.Chmod(path, 0o777) },
		func(path string) error { return os.Chown(path, 12345, 12345) },
	}
	for _, at := range []string{".", "src", "src/a.cpp"} {
		for i, f := range spoil {
			if err := f(filepath.Join(dir, at)); err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(filepath.Join(lay(), at))
			if err != nil || info.Mode().Perm()&0o022 != 0 || info.Sys().(*syscall.Stat_t).Uid != 0 {
				t.Errorf("%s, change %d: %v, %v", at, i, info.Mode(), err)
			}
		}
	}
}

// TestCleanDuringBuildOfEmbeddedTree cleans everything while each compiler is
// about to read its source.
func TestCleanDuringBuildOfEmbeddedTree(t *testing.T) {
	b := newFixture(t)
	started, cleaned := filepath.Join(t.TempDir(), "started"), filepath.Join(t.TempDir(), "cleaned")
	b.hook("> " + started + "; while ! test -e " + cleaned + "; do sleep 0.01; done")
	m := b.manager(func(o *jit.Options) { o.Tree = deps.NewEmbeddedTree(testTree(), o.Cache) })
	done := make(chan error, 1)
	go func() {
		_, err := m.Build(context.Background(), demo(t))
		done <- err
	}()
	waitFor(t, "the compiler", exists(started))
	collect()
	store, err := cache.Open(b.cacheDir, cache.Options{})
	if err == nil {
		_, err = store.Clean(cache.CleanRequest{})
	}
	if err = errors.Join(err, os.WriteFile(cleaned, nil, 0o600)); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Errorf("the concurrent clean: %v", err)
	}
	b.noStaging()
}

func TestExportToAFullDisk(t *testing.T) {
	from, full := newFixture(t), newFixture(t)
	full.mounted("mode=0700,size=40k")
	m := from.manager()
	results, err := m.Build(context.Background(), demo(t))
	if err != nil {
		t.Fatal(err)
	}
	to, err := cache.Open(full.cacheDir, cache.Options{})
	if err == nil {
		err = os.WriteFile(filepath.Join(full.cacheDir, "ballast"), make([]byte, 28<<10), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	var access *cache.AccessError
	if err := m.Export(to, results); !errors.As(err, &access) || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v, want an AccessError that names the full disk", err)
	}
	full.noStaging()
}

func TestEmbeddedTreeOnAFullDisk(t *testing.T) {
	b := newFixture(t)
	b.mounted("mode=0700,size=64k")
	files := testTree()
	files["include/large.h"] = &fstest.MapFile{Data: make([]byte, 100<<10), Mode: 0o644}
	err := b.buildErr(func(o *jit.Options) { o.Tree = deps.NewEmbeddedTree(files, o.Cache) })
	var access *cache.AccessError
	if !errors.As(err, &access) || !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "free some space") {
		t.Errorf("got %v, want an AccessError that names the full disk", err)
	}
	if left, _ := filepath.Glob(filepath.Join(b.cacheDir, "v2", "source", "*")); len(left) != 0 {
		t.Errorf("temporary folders remain: %v", left)
	}
}

// TestEmbeddedTreeOfManyCallers checks that callers that share a check get a tree whose files are intact: an edit that is
// older than the call of Dir is undone.
func TestEmbeddedTreeOfManyCallers(t *testing.T) {
	store, err := cache.Open(t.TempDir(), cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tree := deps.NewEmbeddedTree(testTree(), store)
	dir, err := tree.Dir(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "src/a.cpp")
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var others sync.WaitGroup
	defer others.Wait()
	defer close(stop)
	for range 4 {
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_, _ = tree.Dir(t.Context()) // its check may read the file before an edit
				}
			}
		})
	}
	for range 200 {
		if err := os.WriteFile(file, []byte("edited"), 0o644); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if _, err := tree.Dir(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("after the edit the file is %q, %v", got, err)
		}
	}
}
