package aitercmd

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/shell"
	"github.com/aiter-go/aiter/internal/sys"
	"github.com/aiter-go/aiter/internal/toolchain"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/registry"
)

// report prints an error and its hints.
func (a *app) report(err error) {
	var use *usageError
	fmt.Fprintf(a.err, "%s: %s\n", a.program.Name, a.named(err.Error()))
	if as[*doctorError](err) {
		return // doctor has printed its hints
	}
	for _, h := range hints(err) {
		fmt.Fprintf(a.err, "hint: %s\n", a.named(h))
	}
	if errors.As(err, &use) {
		fmt.Fprintln(a.err, a.named("hint: aiterctl help shows the commands, aiterctl COMMAND --help their flags"))
	}
}

// hints returns the commands to type after an error.
func hints(err error) []string {
	var out []string
	for _, h := range []func(error) string{
		hintNames, hintTarget, hintToolchain, hintCompile, hintCache, hintConfig, hintLoad, hintProfiler, hintSet,
	} {
		if text := h(err); text != "" {
			out = append(out, text)
		}
	}
	return out
}

func hintNames(err error) string {
	var axis *opconfig.UnknownAxisError
	switch {
	case errors.As(err, &axis):
		return "aiterctl describe " + axis.Module
	case as[*opconfig.UnknownOpError](err):
		return "aiterctl list ops"
	case as[*opconfig.UnknownModuleError](err):
		return "aiterctl list modules"
	}
	return ""
}

func hintTarget(err error) string {
	var unknown *target.UnknownError
	switch {
	case errors.As(err, &unknown):
		return fmt.Sprintf("aiterctl list targets; to build for it anyway, quoted for the shell: --arch '%s!'", unknown.Name)
	case as[*target.SyntaxError](err):
		return "aiterctl list targets"
	}
	return ""
}

func hintToolchain(err error) string {
	if as[*toolchain.TemporaryFolderError](err) {
		return "name a writable folder: export TMPDIR=DIR; or use only prebuilt kernels: export AITER_NO_COMPILE=1"
	}
	var missing *toolchain.NotFoundError
	if !errors.As(err, &missing) {
		return ""
	}
	return installHint(missing.Vendor) + "; aiterctl doctor shows what is found"
}

// installHint describes how to install a compiler.
func installHint(v target.Vendor) string {
	switch v {
	case target.HIP:
		return "in a checkout of aiter, as root: make rocm (then export HIPCC=$PWD/.toolchain/bin/hipcc)"
	case target.CUDA:
		return "install the CUDA toolkit, or name its folder: export CUDA_HOME=/usr/local/cuda"
	}
	return "install a C++17 compiler (Debian and Ubuntu: apt-get install g++), or name one: export CXX=clang++"
}

func hintCompile(err error) string {
	var failed *jit.CompileError
	if !errors.As(err, &failed) {
		return ""
	}
	switch {
	case failed.Timeout > 0:
		return fmt.Sprintf("aiterctl build %s --arch '%s' --timeout 30m", failed.Module, failed.Target)
	case !failed.Remembered.IsZero():
		return fmt.Sprintf("aiterctl build %s --arch '%s' --force runs the compiler again", failed.Module, failed.Target)
	}
	return ""
}

func hintCache(err error) string {
	if as[*outputError](err) {
		return "" // the error contains the advice
	}
	var foreign *cache.UntrustedError
	if errors.As(err, &foreign) && foreign.ReadOnly {
		return "aiterctl list caches shows the caches in use"
	}
	if foreign != nil || as[*cache.AccessError](err) {
		return "give another folder with --cache-dir DIR or AITER_JIT_DIR"
	}
	return ""
}

func hintConfig(err error) string {
	var bad *opconfig.Error
	if errors.As(err, &bad) && bad.Line == 0 {
		return "--config names a file inside the source tree; --root DIR names the tree"
	}
	return ""
}

func hintLoad(err error) string {
	var load *registry.LoadError
	switch {
	case !errors.As(err, &load):
		return ""
	case mountedNoexec(load.Path) && sys.ReadOnly(load.Path):
		dir := load.Path
		for range 4 { // v2/artifact/ID/MODULE.so
			dir = filepath.Dir(dir)
		}
		return "the prebuilt cache is on a filesystem mounted noexec, from which no library can be loaded, such as the image volume of some " +
			"container runtimes; copy its artifacts: aiterctl cache import " + shell.Quote(dir)
	case mountedNoexec(load.Path):
		return "the kernel cache is on a filesystem mounted noexec, from which no library can be loaded; " +
			"give another folder with --cache-dir DIR or AITER_JIT_DIR"
	}
	return "aiterctl cache verify; aiterctl doctor"
}

// mountedNoexec reports whether the filesystem of path is mounted noexec.
func mountedNoexec(path string) bool {
	return sys.NoExec(path)
}
