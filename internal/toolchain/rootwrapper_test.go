//go:build linux

package toolchain

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aiter-go/aiter/internal/filehash"
	"github.com/aiter-go/aiter/internal/testenv"
)

// rootWrapped is a way in which a compiler in its own root folder, or its host compiler, uses a file outside of the root.
type rootWrapped struct {
	name, target, file string
	before, after      string
	env                func(t *testing.T, dir string) []string
}

// outer returns a wrapper around the tests' wrapper of a compiler, which names the same root.
func outer(t *testing.T, tool, root, body string) string {
	t.Helper()
	inner := testenv.Tool(t, tool)
	return "#!/bin/sh\n# aiter-root: " + filepath.Join(filepath.Dir(inner), "..", root) + "\n" + here +
		strings.ReplaceAll(body, "INNER", inner) + "\n"
}

func rootWrappers() []rootWrapped {
	hipcc := func(body string) func(t *testing.T, dir string) []string {
		return func(t *testing.T, dir string) []string {
			write(t, filepath.Join(dir, "hipcc"), outer(t, "hipcc", "rocm", body), 0o755)
			return []string{"HIPCC", filepath.Join(dir, "hipcc")}
		}
	}
	nvcc := func(t *testing.T, dir string) []string {
		write(t, filepath.Join(dir, "g++"), "#!/bin/sh\n"+here+". \"$here/flags.sh\"; exec $(ls /usr/bin/g++* | head -n 1) $FLAGS \"$@\"\n",
			0o755)
		write(t, filepath.Join(dir, "nvcc"), outer(t, "nvcc", "cuda", `exec INNER -ccbin "$here/g++" "$@"`), 0o755)
		return []string{"NVCC", filepath.Join(dir, "nvcc")}
	}
	return []rootWrapped{
		{"hipcc, sourced script", "gfx90a", "flags.sh", "FLAGS=-DX=1\n", "FLAGS=-DX=2\n", hipcc(`. "$here/flags.sh"; exec INNER $FLAGS "$@"`)},
		{"hipcc, configuration file of Clang", "gfx90a", "clang.cfg", "-DX=1\n", "-DX=2\n", hipcc(`exec INNER --config "$here/clang.cfg" "$@"`)},
		{"hipcc, response file", "gfx90a", "options", "-DX=1\n", "-DX=2\n", hipcc(`exec INNER @"$here/options" "$@"`)},
		{"nvcc, host compiler that sources a script", "sm_90", "flags.sh", "FLAGS=-DX=1\n", "FLAGS=-DX=2\n", nvcc},
	}
}

// TestRootWrapperInputs changes files outside of a root that the compiler in the root, or its wrapper, reads.
func TestRootWrapperInputs(t *testing.T) {
	t.Parallel()
	all := rootWrappers()
	finders := make([]*Finder, len(all))
	dirs := make([]string, len(all))
	for i, w := range all {
		dirs[i] = t.TempDir()
		write(t, filepath.Join(dirs[i], w.file), w.before, 0o644)
		finders[i] = &Finder{Env: environment(w.env(t, dirs[i])...), Memo: filehash.Open("")}
	}
	time.Sleep(settled + 100*time.Millisecond)
	for i, w := range all {
		t.Run(w.name, func(t *testing.T) {
			find := func() *Toolchain {
				tc, err := finders[i].Find(t.Context(), parse(t, w.target))
				if err != nil {
					t.Fatal(err)
				}
				return tc
			}
			before := find()
			if before.Root == "" || before.Unknown != "" {
				t.Errorf("root %q, unknown: %q", before.Root, before.Unknown)
			}
			write(t, filepath.Join(dirs[i], w.file), w.after, 0o644)
			if after := find(); after.Digest == before.Digest {
				finders[i].Memo = nil
				t.Errorf("the digest is the same after the change; it is the same without remembered answers: %t", find().Digest == before.Digest)
			}
		})
	}
}
