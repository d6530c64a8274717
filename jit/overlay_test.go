//go:build linux

package jit_test

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/internal/toolchain"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
)

// The tests change the installed files of a toolchain, each in its own process with a private
// mount namespace. The changes are in an overlay that ends with the process.

var everyPart = flag.Bool("every-part", false, "change each file of a toolchain, not a sample")

// inOverlay runs the calling test again in a process with a private mount namespace. It reports
// whether this process is that one.
func inOverlay(t *testing.T) bool {
	t.Helper()
	if os.Getenv("AITER_TEST_OVERLAY") != "" {
		return true
	}
	b := &fixture{t: t}
	if os.Geteuid() != 0 {
		b.cannotMount("mounting a filesystem needs root")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v",
		"-every-part="+map[bool]string{true: "true", false: "false"}[*everyPart])
	cmd.Env = append(os.Environ(), "AITER_TEST_OVERLAY=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	switch {
	case errors.Is(err, syscall.EPERM):
		b.cannotMount("a mount namespace is forbidden here")
	case err != nil:
		t.Errorf("in a mount namespace: %v\n%s", err, out)
	case strings.Contains(string(out), "--- SKIP: "+t.Name()+" "):
		t.Skipf("%s", out)
	default:
		t.Logf("%s", out)
	}
	return false
}

// overlay makes a folder writable without writing to it.
func overlay(t *testing.T, dir string) {
	t.Helper()
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	above := t.TempDir()
	if err := syscall.Mount("tmpfs", above, "tmpfs", 0, "size=2g"); err != nil {
		t.Fatal(err)
	}
	upper, work := filepath.Join(above, "upper"), filepath.Join(above, "work")
	if err := errors.Join(os.Mkdir(upper, 0o755), os.Mkdir(work, 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("overlay", dir, "overlay", 0, "lowerdir="+dir+",upperdir="+upper+",workdir="+work); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Unmount(dir, syscall.MNT_DETACH)
		_ = syscall.Unmount(above, syscall.MNT_DETACH)
	})
}

// unitStatus returns the status and the miss that a build would have for the units.
func (b *fixture) unitStatus(x target.Target) (jit.Status, string) {
	b.t.Helper()
	r := demo(b.t)
	r.Target = x
	e, err := b.manager().Explain(context.Background(), r)
	if err != nil {
		return jit.Compiled, err.Error() // a toolchain that fails is no hit
	}
	for _, u := range e.Units {
		if u.Status == jit.Compiled {
			return u.Status, u.Reason
		}
	}
	return jit.Hit, "unchanged"
}

// changeAndBack appends a byte to a file, which changes neither programs nor headers, checks that
// the build would miss, and restores the file.
func (b *fixture) changeAndBack(x target.Target, file string) {
	b.t.Helper()
	old, err := os.ReadFile(file)
	if err != nil {
		b.t.Fatal(err)
	}
	// A running program cannot be written to: it is renamed and replaced.
	mode := must(os.Stat(file)).Mode()
	put := func(data []byte) {
		if err := errors.Join(os.WriteFile(file+".new", data, 0o600), os.Chmod(file+".new", mode), os.Rename(file+".new", file)); err != nil {
			b.t.Fatal(err)
		}
	}
	put(append(slices.Clone(old), '\n'))
	if status, reason := b.unitStatus(x); status != jit.Compiled {
		b.t.Errorf("%s changed: %s (%s), want a miss", file, status, reason)
	}
	put(old)
}

func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}

// some returns the parts whose names start with one of the names, or all parts.
func some(parts []toolchain.File, names ...string) []toolchain.File {
	if *everyPart {
		return parts
	}
	var out []toolchain.File
	for _, name := range names {
		i := slices.IndexFunc(parts, func(p toolchain.File) bool { return strings.HasPrefix(p.Name, name) })
		if i >= 0 {
			out = append(out, parts[i])
		}
	}
	return out
}

// TestToolchainMutations changes programs, libraries and headers of the C++ compiler.
func TestToolchainMutations(t *testing.T) {
	if !inOverlay(t) {
		return
	}
	overlay(t, "/usr")
	cpu := demo(t).Target
	b := mutationFixture(t)
	first := b.build()
	tc, err := (&toolchain.Finder{Env: b.env}).Find(context.Background(), cpu)
	if err != nil {
		t.Fatal(err)
	}
	parts := some(tc.Files, "g++", "cc1plus", "as", "ld", "collect2", "libbfd", "crti.o", "libstdc++.so")
	if len(parts) < 6 {
		t.Fatalf("the toolchain lists only %v", tc.Files)
	}
	changed := 0
	for _, p := range parts {
		if path := must(filepath.EvalSymlinks(p.Path)); strings.HasPrefix(path, "/usr/") {
			b.changeAndBack(cpu, path)
			changed++
		}
	}
	t.Logf("%d of %d files of the toolchain changed", changed, len(tc.Files))
	for _, dir := range tc.IncludeDirs {
		for _, name := range []string{"stdint.h", "stddef.h"} {
			if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
				b.changeAndBack(cpu, filepath.Join(dir, name))
			}
		}
	}
	// A header that would be found before the system's.
	local := filepath.Join("/usr/local/include", "stdint.h")
	if !slices.Contains(tc.IncludeDirs, "/usr/local/include") {
		t.Fatalf("/usr/local/include is not among %v", tc.IncludeDirs)
	}
	for _, name := range []string{local, "/usr/local/include/angled.h", "/usr/local/include/bits/types.h"} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, nil, 0o644)); err != nil {
			t.Fatal(err)
		}
		if status, reason := b.unitStatus(cpu); status != jit.Compiled || !strings.Contains(reason, "shadows") {
			t.Errorf("%s is new: %s (%s), want a miss", name, status, reason)
		}
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	_ = os.Remove("/usr/local/include/bits")
	if res := b.build(); res.Status != jit.Hit || res.Artifact.Digest != first.Artifact.Digest {
		t.Errorf("all files restored: %s", res.Status)
	}
}

// TestDeviceLibraryMutations changes programs and libraries that produce device code.
func TestDeviceLibraryMutations(t *testing.T) {
	testenv.Long(t)
	if !inOverlay(t) {
		return
	}
	tests := []struct {
		tool, variable, target string
		parts                  []string
	}{
		{"hipcc", "HIPCC", "gfx90a", []string{"ocml.bc"}},
		{"nvcc", "NVCC", "sm_80", []string{"libdevice"}},
	}
	for _, tt := range tests {
		t.Run(tt.tool, func(t *testing.T) {
			compiler := testenv.Tool(t, tt.tool)
			b := gpuFixture(t)
			b.queriesAnew = true // in the overlay no answer is remembered
			x := parse(t, tt.target)
			b.extra = map[string]string{tt.variable: compiler}
			b.write("src/k.hip", "__attribute__((device)) int d;\n"+demoOp)
			tc, err := (&toolchain.Finder{Env: b.env}).Find(context.Background(), x)
			if err != nil {
				t.Fatal(err)
			}
			base := "/usr"
			if tc.Root != "" {
				base = tc.Root
			}
			overlay(t, base)
			b.buildFor(tt.variable, compiler, tt.target)
			if status, reason := b.unitStatus(x); status != jit.Hit {
				t.Fatalf("after a build: %s (%s), want a hit", status, reason)
			}
			for _, p := range some(tc.Files, tt.parts...) {
				b.changeAndBack(x, must(filepath.EvalSymlinks(tc.Resolve(p.Path))))
			}
			if status, reason := b.unitStatus(x); status != jit.Hit {
				t.Errorf("all files restored: %s (%s)", status, reason)
			}
		})
	}
}
