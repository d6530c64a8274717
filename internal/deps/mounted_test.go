package deps_test

import (
	"testing"

	"github.com/aiter-go/aiter/internal/deps"
)

func TestFolders(t *testing.T) {
	apart := deps.Folders{Root: "/ops", Headers: "/cache/source", Name: "@aiter"}
	inside := deps.Folders{Root: "/checkout/examples/ops", Headers: "/checkout", Name: "@aiter"}
	around := deps.Folders{Root: "/ops", Headers: "/ops/third_party/aiter", Name: "@aiter"}
	alone := deps.Folders{Root: "/ops"}
	for _, c := range []struct {
		on         deps.Folders
		path, want string // of a file on disk, and in the tree
	}{
		{apart, "/ops/src/a.cpp", "src/a.cpp"},
		{apart, "src//a.cpp", "src/a.cpp"},
		{apart, "/cache/source/csrc/include/aiter/ffi.h", "@aiter/csrc/include/aiter/ffi.h"},
		{apart, "/usr/include/stdint.h", "/usr/include/stdint.h"},
		{inside, "/checkout/examples/ops/a.cpp", "a.cpp"},
		{inside, "/checkout/csrc/include/aiter/ffi.h", "@aiter/csrc/include/aiter/ffi.h"},
		{around, "/ops/a.cpp", "a.cpp"},
		{around, "/ops/third_party/aiter/csrc/x.h", "@aiter/csrc/x.h"},
		{alone, "/ops/@aiter/x.h", "@aiter/x.h"},
	} {
		got := c.on.InTree(c.path)
		if got != c.want {
			t.Errorf("%+v: %s is %s in the tree, want %s", c.on, c.path, got, c.want)
		}
		if c.path[0] == '/' && got[0] != '/' && c.on.Path(got) != c.path {
			t.Errorf("%+v: %s is on disk at %s, want %s", c.on, got, c.on.Path(got), c.path)
		}
	}
	if got := apart.Include("@aiter/csrc/include"); got != "/cache/source/csrc/include" {
		t.Errorf("the include folder of the headers is %s", got)
	}
	if got := apart.Include("include"); got != "include" {
		t.Errorf("an include folder of the tree is %s", got)
	}
}
