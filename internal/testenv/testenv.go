// Package testenv finds the real tools that tests run.
package testenv

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Tool returns the path of a tool (hipcc, llvm-objdump, nvcc, python3, chromium): the variable
// of its name in capitals, else .toolchain/bin of the checkout, which `make rocm`,
// `make python` and `make cuda` fill, else for a browser the PATH. Without it the
// test is skipped, unless AITER_REQUIRE_TOOLS, a list with commas, names the tool:
// then it fails.
func Tool(t testing.TB, name string) string {
	t.Helper()
	variable := strings.ReplaceAll(strings.ToUpper(name), "-", "_")
	if path := os.Getenv(variable); path != "" {
		return path
	}
	local := filepath.Join(Root(t), ".toolchain", "bin", name)
	if _, err := os.Stat(local); err == nil {
		return local
	}
	// Any chromium will do, while a compiler or Python on the PATH may lack what
	// the tests need.
	if onPath, err := exec.LookPath(name); err == nil && name == "chromium" {
		return onPath
	}
	if slices.Contains(strings.Split(os.Getenv("AITER_REQUIRE_TOOLS"), ","), name) {
		t.Fatalf("AITER_REQUIRE_TOOLS asks for %s, but neither %s nor %s names it", name, variable, local)
	}
	t.Skipf("no %s: set %s, or see `make help` for how to get one", name, variable)
	return ""
}

// Root returns the folder of the checkout, the one with go.mod.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("no go.mod above the test")
		}
		dir = up
	}
}
