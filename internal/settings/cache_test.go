package settings_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/settings"
)

// Any user may create the temporary folder first. A folder that other users can write
// to is refused, even with trust in the requested cache.
func TestTemporaryCacheOfOthersIsRefused(t *testing.T) {
	const unwritable = "/sys/aiter" // no user can make folders there
	tmp := t.TempDir()
	taken := filepath.Join(tmp, fmt.Sprintf("aiter-jit-%d", os.Getuid()))
	if err := errors.Join(os.Mkdir(taken, 0o700), os.Chmod(taken, 0o777)); err != nil {
		t.Fatal(err)
	}
	opts := settings.CacheOptions{Dir: unwritable, Build: true, Trust: true, Getenv: env(map[string]string{"TMPDIR": tmp})}
	var untrusted *cache.UntrustedError
	if store, err := settings.OpenCache(opts); !errors.As(err, &untrusted) {
		t.Fatalf("got %v, %v, want a *cache.UntrustedError", store, err)
	}
	if err := os.Chmod(taken, 0o700); err != nil {
		t.Fatal(err)
	}
	store, err := settings.OpenCache(opts)
	if err != nil || store.Path() != taken {
		t.Errorf("of the user alone: %v, %v", store, err)
	}
}

// A folder that cannot be created is replaced by the temporary one; a file in the
// place of a named folder is an error.
func TestFoldersThatCannotBeMade(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	bare := map[string]string{"AITER_JIT_DIR": "", "XDG_CACHE_HOME": "", "HOME": ""}
	for name, set := range map[string]map[string]string{
		"home is a device":        {"HOME": "/dev/null"},
		"home is a file":          {"HOME": file},
		"home is relative":        {"HOME": "home"},
		"a parent is a file":      {"AITER_JIT_DIR": filepath.Join(file, "cache")},
		"a parent cannot be made": {"AITER_JIT_DIR": "/proc/none/cache"},
		"a name is too long":      {"XDG_CACHE_HOME": "/tmp/" + strings.Repeat("x", 300)},
	} {
		t.Run(name, func(t *testing.T) {
			vars := maps.Clone(bare)
			maps.Copy(vars, set)
			vars["TMPDIR"] = t.TempDir()
			store, err := settings.OpenCache(settings.CacheOptions{Build: true, Getenv: env(vars)})
			if err != nil || filepath.Dir(store.Path()) != vars["TMPDIR"] {
				t.Errorf("%v, %v", store, err)
			}
		})
	}
	if left, err := os.ReadDir("."); err != nil || len(left) != 0 {
		t.Errorf("made in the working directory: %v, %v", left, err)
	}
	vars := maps.Clone(bare)
	vars["AITER_JIT_DIR"], vars["TMPDIR"] = file, t.TempDir()
	var access *cache.AccessError
	if _, err := settings.OpenCache(settings.CacheOptions{Build: true, Getenv: env(vars)}); !errors.As(err, &access) {
		t.Errorf("the folder that was named is a file: %v", err)
	}
}

// env returns the environment with some variables replaced.
func env(pairs map[string]string) func(string) string {
	return func(name string) string {
		if v, ok := pairs[name]; ok {
			return v
		}
		return os.Getenv(name)
	}
}
