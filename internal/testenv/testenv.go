// Package testenv finds the tools that tests need, and has the set-up that several packages share.
package testenv

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Tool returns the path of a tool (hipcc, llvm-objdump, nvcc, python3, chromium). It looks at the
// variable of its name in capitals (AARCH64_LINUX_GNU_GXX), then in .toolchain/bin of the
// checkout, which `make rocm`, `make python` and `make cuda` fill, then, for a browser and for
// aarch64, in PATH. Without the tool the test is skipped; if AITER_REQUIRE_TOOLS, a list with
// commas, names the tool, the test fails.
func Tool(t testing.TB, name string) string {
	t.Helper()
	variable := strings.NewReplacer("-", "_", "+", "X").Replace(strings.ToUpper(name))
	if path := os.Getenv(variable); path != "" {
		return path
	}
	local := filepath.Join(Root(t), ".toolchain", "bin", name)
	if _, err := os.Stat(local); err == nil {
		return local
	}
	// Any version of these suffices. Another compiler or Python in PATH may lack what the tests need.
	anyWillDo := []string{"chromium", "aarch64-linux-gnu-g++", "qemu-aarch64"}
	if onPath, err := exec.LookPath(name); err == nil && slices.Contains(anyWillDo, name) {
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
