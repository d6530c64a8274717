//go:build linux

package jit_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
)

// TestInputs checks the names and digests of a build's inputs: sources, headers of the tree and of
// the system, absent names and the configuration.
func TestInputs(t *testing.T) {
	b := newFixture(t)
	m := b.manager()
	cpu, err := target.Parse("cpu")
	if err != nil {
		t.Fatal(err)
	}
	results, err := m.Build(context.Background(), jit.Request{Module: "module_demo", Target: cpu})
	if err != nil {
		t.Fatal(err)
	}
	in, err := m.Inputs(context.Background(), results[0])
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.EvalSymlinks(b.root)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"src/a.cpp", "src/b.cpp", "include/both.h", "include/only_a.h"} {
		if got, want := in.Files[filepath.Join(root, name)], cache.SHA256([]byte(testFiles[name])); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	if sum, listed := in.Files[filepath.Join(root, "src/both.h")]; !listed || sum != jit.Absent {
		t.Errorf("absent name that would shadow a header: %q, %v", sum, listed)
	}
	if _, listed := in.Files[filepath.Join(root, "include/unused.h")]; listed {
		t.Error("an unread header is listed")
	}
	system := 0
	for path := range in.Files {
		if rel, err := filepath.Rel(root, path); err != nil || !filepath.IsLocal(rel) {
			system++
		}
	}
	if system == 0 {
		t.Error("no header of the system is listed")
	}
	if got := m.ConfigInputs().Files[filepath.Join(root, "config.toml")]; got != cache.SHA256([]byte(testConfig)) {
		t.Errorf("digest of the configuration: %q", got)
	}
	around := m.FailureInputs(context.Background(), jit.Request{Module: "module_demo", Target: cpu})
	if _, listed := around.Files[filepath.Join(root, "include/both.h")]; !listed || len(around.Folders) != 2 {
		t.Errorf("listed %v in the folders %v", listed, around.Folders)
	}
}
