//go:build linux

package jit_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/deps"
	"github.com/aiter-go/aiter/jit"
)

// TestDependencyReportThatIsNoFile checks that a build fails at once if a compiler wrapper replaces
// the dependency report by something other than a regular file.
func TestDependencyReportThatIsNoFile(t *testing.T) {
	for name, tt := range map[string]struct{ command, want string }{
		"a pipe":      {`rm "$f"; mkfifo "$f"`, "expected a regular file"},
		"a huge file": {`truncate -s 1T "$f"`, "expected at most 67108864 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newFixture(t)
			b.cxx = filepath.Join(t.TempDir(), "cxx")
			script := "#!/bin/sh\ng++ \"$@\" || exit\nfor f; do case $f in */unit.d) " + tt.command + ";; esac; done\n"
			if err := os.WriteFile(b.cxx, []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
			within(t, name, func() (any, error) {
				_, err := b.manager().Build(context.Background(), demo(t))
				if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "unit.d") {
					return nil, errors.Join(errors.New("expected an error with "+tt.want+", got"), err)
				}
				return nil, nil
			})
		})
	}
}

// TestVerifyFindsSourcesInAFolderWithBrackets checks that the cache folder's name is not used as a pattern.
func TestVerifyFindsSourcesInAFolderWithBrackets(t *testing.T) {
	b := newFixture(t)
	store := openStore(t, filepath.Join(t.TempDir(), "a[b]*"))
	dir, err := deps.NewEmbeddedTree(os.DirFS(b.root), store).Dir(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "src/a.cpp"), []byte("changed"), 0o600); err != nil {
		t.Fatal(err)
	}
	if rep, err := jit.Verify(store); err != nil || len(rep.Faults) != 1 || rep.Faults[0].Path != dir {
		t.Errorf("%+v, %v, want a fault of %s", rep.Faults, err, dir)
	}
}
