//go:build linux

package jit_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/filehash"
	"github.com/aiter-go/aiter/internal/toolchain"
	"github.com/aiter-go/aiter/jit/target"
)

// The queries of a compiler take longer than the compile of a test's source: those of a GPU compiler a second. Tests query
// each compiler once for all caches. The tests of internal/toolchain query it without a memo.

// answers holds a function for each list of compilers that returns the remembered digests and answers, as the cache stores
// them.
var answers sync.Map

// compilers returns the installed compilers that the fixture uses, and the targets for which they are queried.
func (b *fixture) compilers() (paths, targets []string) {
	if b.cxx == sharedCompiler() {
		paths, targets = append(paths, b.cxx), append(targets, "cpu")
	}
	for _, gpu := range []struct{ variable, target string }{{"HIPCC", "gfx90a"}, {"NVCC", "sm_80"}} {
		if compiler := b.extra[gpu.variable]; compiler != "" {
			paths, targets = append(paths, compiler), append(targets, gpu.target)
		}
	}
	return paths, targets
}

// identified gives a new cache the answers of the compilers that the fixture uses.
func (b *fixture) identified(store *cache.Dir) error {
	paths, targets := b.compilers()
	if len(paths) == 0 || b.queriesAnew {
		return nil
	}
	if _, err := os.Stat(store.MemoPath()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	ask, _ := answers.LoadOrStore(strings.Join(paths, "\n"), sync.OnceValues(func() ([]byte, error) { return answersOf(b.env, targets) }))
	data, err := ask.(func() ([]byte, error))()
	if err != nil {
		return err
	}
	return os.WriteFile(store.MemoPath(), data, 0o600)
}

func answersOf(env func(string) string, targets []string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "answers")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	memo := filehash.Open(filepath.Join(dir, "filehash"))
	for _, name := range targets {
		x, err := target.Parse(name)
		if err != nil {
			return nil, err
		}
		if _, err := (&toolchain.Finder{Env: env, Memo: memo}).Find(context.Background(), x); err != nil {
			return nil, err
		}
	}
	if err := memo.Save(); err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(dir, "filehash"))
}
