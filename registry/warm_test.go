//go:build linux

package registry_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/toolchain"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

const partsConfig = `
[module.module_parts]
defaults = false
include = ["csrc/include"]
flags.common = ["-O0", "-std=c++17"]
[module.module_parts.axis.dtype]
argument = "x"
define = "PARTS_DTYPE"
values = ["float32", "float16", "bfloat16"]
[[module.module_parts.source]]
path = "csrc/one.cpp"
ops = ["one"]
[[module.module_parts.source]]
path = "csrc/two.cpp"
ops = ["two"]
[[module.module_parts.op]]
name = "one"
schema = "(Tensor(a!) x) -> ()"
[[module.module_parts.op]]
name = "two"
schema = "(Tensor(a!) x) -> ()"
`

const partsSource = `
#include <aiter/ffi.h>
namespace aiter { static Status NAME(TensorView) { return Status(); } }
AITER_EXPORT(NAME, NAME, arg("x"))
`

// Warm builds the parts that a name selects, and the whole module for the name of an operator alone.
func TestWarmParts(t *testing.T) {
	root := sourceTree(t, partsConfig, map[string]string{
		"csrc/one.cpp": strings.ReplaceAll(partsSource, "NAME", "one"), "csrc/two.cpp": strings.ReplaceAll(partsSource, "NAME", "two"),
	})
	seen := new(units)
	r := open(t, registry.Options{CacheDir: t.TempDir(), Root: root, Observer: seen})
	ready := func(when string, want map[string]bool) {
		t.Helper()
		for name, is := range want {
			if got := r.Ready(tensor.Host(), name); got != is {
				t.Errorf("%s: %s: ready %v, want %v", when, name, got, is)
			}
		}
	}
	warm := func(names ...string) {
		t.Helper()
		if err := r.Warm(t.Context(), tensor.Host(), names...); err != nil {
			t.Errorf("%v: %v", names, err)
		}
	}
	warm("one dtype=bf16")
	seen.expect(t, "one type", "one.cpp dtype=bfloat16", "aiter_ffi.cpp")
	ready("one type", map[string]bool{"one dtype=bfloat16": true, "one dtype=float32": false, "one": false, "two": false, "one dtype": false,
		"one size=1": false, "three dtype=float32": false})
	one := lookup(t, r, "one")
	if err := one.Call(t.Context(), must(tensor.New(tensor.BFloat16, 4))); err != nil {
		t.Error(err)
	}
	seen.expect(t, "a call of it")

	warm("one dtype=float32,dtype=bfloat16", "one dtype=float32")
	seen.expect(t, "two types", "one.cpp dtype=float32")
	ready("two types", map[string]bool{"one dtype=bfloat16,dtype=float32": true, "one": false})
	warm("one dtype=float16")
	ready("all types", map[string]bool{"one": true, "two": false})
	seen.expect(t, "all types", "one.cpp dtype=float16")

	warm("one dtype=float32", "two")
	seen.expect(t, "the whole module, with one unit for all types", "one.cpp", "two.cpp")
	ready("the whole module", map[string]bool{"one": true, "two": true, "two dtype=float16": true})
}

// Warm returns the error type of a call for a module that cannot be built.
func TestWarmBuildError(t *testing.T) {
	r := open(t, registry.Options{CacheDir: t.TempDir(), Getenv: env(map[string]string{"CXX": "/nonexistent/c++"})})
	for _, name := range []string{"causal_conv1d_fwd", "causal_conv1d_fwd dtype=float16,width=4"} {
		err := r.Warm(t.Context(), tensor.Host(), name)
		var build *registry.BuildError
		if !errors.As(err, &build) || build.Request.Module != "module_causal_conv1d" || !errors.As(build, new(*toolchain.NotFoundError)) {
			t.Errorf("%s: got %T %v, want a BuildError of module_causal_conv1d", name, err, err)
		}
	}
}

func TestWarmNames(t *testing.T) {
	r := open(t, registry.Options{})
	var op *registry.UnknownOpError
	var axis *registry.UnknownAxisError
	for name, as := range map[string]any{
		"causal_conv1d_fwt dtype=float16": &op, "causal_conv1d_fwd dtipe=float16": &axis, "causal_conv1d_fwd dtype=float61": &axis,
		"causal_conv1d_fwd width=0": &axis,
	} {
		if err := r.Warm(t.Context(), tensor.Host(), name); !errors.As(err, as) {
			t.Errorf("%s: %v, want %T", name, err, as)
		}
	}
	for _, values := range []string{"", "dtype", "=float16", "dtype=,width=4"} {
		name := "causal_conv1d_fwd " + values
		if err := r.Warm(t.Context(), tensor.Host(), name); err == nil || !strings.Contains(err.Error(), "expected AXIS=VALUE") {
			t.Errorf("%q: %v", name, err)
		}
	}
	if !errors.As(error(&opconfig.UnknownAxisError{}), &axis) {
		t.Error("registry.UnknownAxisError is another type")
	}
}
