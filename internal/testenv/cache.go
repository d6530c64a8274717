package testenv

import (
	"fmt"
	"os"
	"path/filepath"
)

// SharedCache returns the folder of a kernel cache that the tests of all packages share, in the
// user's cache folder. Tests whose subject is not a first build use it, so that one process compiles
// the kernels for all packages and for later runs. As with every cache, only a library that a new
// build would give is used from it. Without a home folder it is below [os.TempDir].
func SharedCache() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = filepath.Join(os.TempDir(), fmt.Sprintf("aiter-%d", os.Getuid()))
	}
	dir = filepath.Join(dir, "aiter", "test")
	return dir, os.MkdirAll(dir, 0o700)
}

// WithSharedCache runs tests with the shared cache in AITER_JIT_DIR, unless that is set, and returns
// the exit code for [os.Exit].
func WithSharedCache(run func() int) int {
	if os.Getenv("AITER_JIT_DIR") == "" {
		dir, err := SharedCache()
		if err == nil {
			err = os.Setenv("AITER_JIT_DIR", dir)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "make the cache that tests share:", err)
			return 1
		}
	}
	return run()
}
