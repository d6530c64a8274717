package testenv

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// supportConfig declares the support library, with flags with which it compiles fast.
const supportConfig = `
[module.module_aiter_ffi]
include = ["csrc/include"]
targets = ["cpu"]
flags.common = ["-O1", "-std=c++17", "-fvisibility=hidden"]
[[module.module_aiter_ffi.source]]
path = "csrc/support/*.cpp"
`

// Tree is a complete source tree: the support library, the headers of aiter, and the modules of a test.
type Tree struct {
	Root string
	t    testing.TB
}

// NewTree makes a tree in a new folder. config declares the modules of the test.
func NewTree(t testing.TB, config string) *Tree {
	t.Helper()
	x := &Tree{Root: t.TempDir(), t: t}
	for _, dir := range []string{"csrc/support", "csrc/include"} {
		if err := os.CopyFS(filepath.Join(x.Root, dir), os.DirFS(filepath.Join(Root(t), dir))); err != nil {
			t.Fatal(err)
		}
	}
	x.Config(config)
	return x
}

// Config replaces the declaration of the modules of the test.
func (x *Tree) Config(config string) {
	x.t.Helper()
	x.Write("config/opt_compiler.toml", supportConfig+config)
}

// Write replaces a file by rename, as editors do.
func (x *Tree) Write(name, text string) {
	x.t.Helper()
	path := filepath.Join(x.Root, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path+"~", []byte(text), 0o644),
		os.Rename(path+"~", path)); err != nil {
		x.t.Fatal(err)
	}
}
