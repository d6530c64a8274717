//go:build linux

package jit_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/filehash"
	"github.com/aiter-go/aiter/internal/toolchain"
	"github.com/aiter-go/aiter/jit/target"
)

// The first query of a GPU compiler takes a second, longer than the compile of a test's source. Tests query each
// compiler once for all caches. The tests of internal/toolchain query it without a memo.

// gpuTargets has the target for which each compiler is queried, by the variable that names the compiler.
var gpuTargets = map[string]string{"HIPCC": "gfx90a", "NVCC": "sm_80"}

// answers holds a function for each compiler that returns the remembered digests and answers, as the cache stores them.
var answers sync.Map

// identified gives a new cache the answers of the installed GPU compiler that the fixture uses.
func (b *fixture) identified(store *cache.Dir) error {
	for variable, name := range gpuTargets {
		compiler := b.extra[variable]
		if compiler == "" || b.queriesAnew {
			continue
		}
		if _, err := os.Stat(store.MemoPath()); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		ask, _ := answers.LoadOrStore(compiler, sync.OnceValues(func() ([]byte, error) { return answersOf(b.env, name) }))
		data, err := ask.(func() ([]byte, error))()
		if err != nil {
			return err
		}
		return os.WriteFile(store.MemoPath(), data, 0o600)
	}
	return nil
}

func answersOf(env func(string) string, name string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "answers")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	memo := filehash.Open(filepath.Join(dir, "filehash"))
	x, err := target.Parse(name)
	if err != nil {
		return nil, err
	}
	if _, err := (&toolchain.Finder{Env: env, Memo: memo}).Find(context.Background(), x); err != nil {
		return nil, err
	}
	if err := memo.Save(); err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(dir, "filehash"))
}
