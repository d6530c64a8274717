// Package testenv gives tests their environment: tools, mounted filesystems, a filter of system
// calls, and set-up that several packages share.
package testenv

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Tool returns the path of a tool (hipcc, llvm-objdump, nvcc, python3, chromium, registry): the value of the variable with
// its name in capitals (AARCH64_LINUX_GNU_GXX), else the tool in .toolchain of the checkout, else, for a browser and the
// tools for aarch64, that in PATH. The targets rocm, python, cuda, registry and executor of the Makefile fill .toolchain.
// Without the tool the test is skipped; it fails if AITER_REQUIRE_TOOLS, a list with commas, contains the tool.
func Tool(t testing.TB, name string) string {
	t.Helper()
	variable := strings.NewReplacer("-", "_", "+", "X").Replace(strings.ToUpper(name))
	if path := os.Getenv(variable); path != "" {
		return path
	}
	local := filepath.Join(Root(t), ".toolchain", "bin", name)
	installed := []string{local, filepath.Join(Root(t), ".toolchain", "fleet", "bin", name), // see `make registry`
		filepath.Join(Root(t), ".toolchain", "buildbox", "run-on-host", name)} // see `make executor`
	for _, path := range installed {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	// Each version of these is suitable. Another compiler or Python in PATH may lack features that the tests need.
	anyVersion := []string{"chromium", "aarch64-linux-gnu-g++", "qemu-aarch64"}
	if onPath, err := exec.LookPath(name); err == nil && slices.Contains(anyVersion, name) {
		return onPath
	}
	if slices.Contains(strings.Split(os.Getenv("AITER_REQUIRE_TOOLS"), ","), name) {
		t.Fatalf("AITER_REQUIRE_TOOLS requires %s: set %s, or install %s; `make help` lists the targets that do", name, variable, local)
	}
	t.Skipf("no %s: set %s, or install it; `make help` lists the targets that do", name, variable)
	return ""
}

// Root returns the folder of the checkout, also for tests of the modules in it.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "config", "opt_compiler.toml")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("no folder above the test has config/opt_compiler.toml")
		}
		dir = up
	}
}
