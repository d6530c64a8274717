//go:build linux

package registry_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/tuning"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

const levelSource = `
#include <aiter/ffi.h>
#include <aiter/tuning.h>

// level writes the launch parameter "level", PLAN by default.
static aiter::Status level(aiter::TensorView out, aiter::TensorView, bool) {
  for (int64_t i = 0; i < out.size(0); i++) out.as<float>()[i] = aiter::tuned("level", PLAN);
  return {};
}

AITER_EXPORT(level, level, aiter::arg("out"), aiter::arg("x"), aiter::flag("fast", false))
`

// levelTree is a module whose operator writes its launch parameter, and does not read another one.
func levelTree(plan, values string) fstest.MapFS {
	return fstest.MapFS{
		"level.cpp": {Data: []byte(strings.ReplaceAll(levelSource, "PLAN", plan))},
		"opt_compiler.toml": {Data: []byte(`
[module.module_level]
targets = ["cpu"]
flags.common = ["-std=c++17", "-fvisibility=hidden"]
[[module.module_level.source]]
path = "level.cpp"
[[module.module_level.op]]
name = "level"
schema = "(Tensor(a!) out, Tensor x, bool fast=False) -> ()"
tune.level = { values = ` + values + ` }
tune.unread = { values = [1, 2], targets = ["cpu"] }
tune.other = { values = [1], targets = ["cuda"] }
`)},
	}
}

// levelOf returns the value that a call with n elements writes.
func levelOf(t *testing.T, op *registry.Op, n int64, fast ...any) float64 {
	t.Helper()
	x, out := must(tensor.New(tensor.Float32, n)), must(tensor.New(tensor.Float32, n))
	if err := op.Call(t.Context(), append([]any{out, x}, fast...)...); err != nil {
		t.Fatal(err)
	}
	values, err := out.Float64s()
	if err != nil {
		t.Fatal(err)
	}
	return values[0]
}

// Stored launch parameters apply to one shape class and one library, and only if the configuration declares the values. Only
// registries with Tune use them.
func TestTune(t *testing.T) {
	dir, host := t.TempDir(), tensor.Host()
	openLevel := func(files fstest.MapFS, opts registry.Options) *registry.Op {
		opts.Modules, opts.NoBuiltin = []registry.Source{{Files: files}}, true
		if opts.CacheDir == "" {
			opts.CacheDir = dir
		}
		return lookup(t, open(t, opts), "level")
	}
	files := levelTree("7", "[1, 2, 3]")
	r := open(t, registry.Options{Modules: []registry.Source{{Files: files}}, NoBuiltin: true, CacheDir: dir, Tune: true})
	op := lookup(t, r, "level")
	x, out := must(tensor.New(tensor.Float32, 100)), must(tensor.New(tensor.Float32, 100))
	if read, err := op.ReadParams(t.Context(), out, x); err != nil || !slices.Equal(read, []string{"level"}) {
		t.Errorf("read parameters %v, %v", read, err)
	}
	if got := levelOf(t, op, 100); got != 7 {
		t.Errorf("before: %g", got)
	}
	kept, err := op.KeepTuning(t.Context(), registry.TunedParams{Params: map[string]int64{"level": 3}, PlanUS: 2, TunedUS: 1}, out, x)
	if err != nil || kept.Shapes != "out float32 (65-128), x float32 (65-128)" || kept.Op != "level" || kept.Device == "" ||
		kept.Driver == "" {
		t.Errorf("kept %+v, %v", kept, err)
	}

	tuned := openLevel(files, registry.Options{Tune: true})
	for _, c := range []struct {
		what string
		op   *registry.Op
		n    int64
		fast []any
		want float64
	}{
		{"the same sizes", tuned, 100, nil, 3},
		{"the same class, a default given", tuned, 128, []any{false}, 3},
		{"larger sizes", tuned, 129, nil, 7},
		{"another option", tuned, 100, []any{true}, 7},
		{"off", openLevel(files, registry.Options{}), 100, nil, 7},
		{"on by the environment", openLevel(files, registry.Options{Getenv: func(name string) string {
			return map[string]string{"AITER_TUNE": "1"}[name]
		}}), 100, nil, 3},
		{"verified", openLevel(files, registry.Options{Tune: true, Verify: true}), 100, nil, 3},
		{"the value is not declared", openLevel(levelTree("7", "[1, 2]"), registry.Options{Tune: true}), 100, nil, 7},
		{"other code", openLevel(levelTree("8", "[1, 2, 3]"), registry.Options{Tune: true}), 100, nil, 8},
	} {
		if got := levelOf(t, c.op, c.n, c.fast...); got != c.want {
			t.Errorf("%s: %g, want %g", c.what, got, c.want)
		}
	}
	given, err := tuned.WithParams(host, map[string]int64{"level": 2})
	if err != nil || levelOf(t, given, 100) != 2 || levelOf(t, tuned, 100) != 3 {
		t.Errorf("given parameters: %v", err)
	}
	var unknown *registry.UnknownParamError
	for _, params := range []map[string]int64{{"level": 9}, {"other": 1}} {
		if _, err := tuned.WithParams(host, params); !errors.As(err, &unknown) {
			t.Errorf("%v: %v", params, err)
		}
	}
	if _, err := tuned.KeepTuning(t.Context(), registry.TunedParams{Params: map[string]int64{"level": 9}}, out, x); !errors.As(err, &unknown) {
		t.Errorf("kept: %v", err)
	}

	// A prebuilt cache has the choice, and cleaning removes it with the library.
	prebuilt, err := cache.Open(t.TempDir(), cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m := r.Manager()
	results, err := m.Build(t.Context(), jit.Request{Module: "module_level", Target: target.Host()}, jit.Request{Module: "module_aiter_ffi",
		Target: target.Host()})
	if err := errors.Join(err, m.Export(prebuilt, results)); err != nil {
		t.Fatal(err)
	}
	if _, err := prebuilt.Clean(cache.CleanRequest{OlderThan: 1 << 40}); err != nil {
		t.Fatal(err)
	}
	shipped := openLevel(files, registry.Options{Tune: true, NoCompile: true, CacheDir: t.TempDir(), Path: []string{prebuilt.Path()}})
	if got := levelOf(t, shipped, 100); got != 3 {
		t.Errorf("prebuilt: %g", got)
	}
	unused, err := cache.Open(t.TempDir(), cache.Options{})
	if err := errors.Join(err, m.Export(unused, results)); err != nil {
		t.Fatal(err)
	}
	digest := results[0].Artifact.Digest
	if len(tuning.Load(unused, digest)) != 1 {
		t.Error("the export has no choice")
	}
	if _, err := unused.Clean(cache.CleanRequest{Match: func(a cache.Artifact) bool { return a.Digest == digest }}); err != nil {
		t.Fatal(err)
	}
	if left := tuning.Load(unused, digest); len(left) > 0 {
		t.Errorf("cleaning leaves %v", left)
	}

	// Kernels may have another plan for another number of threads, so such a process does not use the choice.
	t.Setenv("AITER_NUM_THREADS", "3")
	if got := levelOf(t, openLevel(files, registry.Options{Tune: true}), 100); got != 7 {
		t.Errorf("another number of threads: %g", got)
	}
}

// A shape class depends on the element type, the layout and the rounded sizes of each tensor, and on the options.
func TestShapeClass(t *testing.T) {
	op := lookup(t, open(t, registry.Options{}), "causal_conv1d_fwd")
	call := func(dt tensor.DType, dim, length int64, more ...any) []any {
		return append([]any{must(tensor.New(dt, 2, dim, length)), must(tensor.New(dt, 2, dim, length)), must(tensor.New(dt, dim, 4))}, more...)
	}
	swapped := call(tensor.Float32, 100, 300)
	swapped[1] = must(must(tensor.New(tensor.Float32, 2, 300, 100)).Transpose(1, 2))
	unaligned := call(tensor.Float32, 100, 300)
	unaligned[1] = must(must(tensor.New(tensor.Float32, 2, 100, 301)).Slice(2, 1, 301))
	first := call(tensor.Float32, 100, 300)
	words := "out float32 (2, 65-128, 257-512), x float32 (2, 65-128, 257-512), weight float32 (65-128, 4)"
	if got := registry.ClassWords(op, first...); got != words {
		t.Errorf("got  %s\nwant %s", got, words)
	}
	for what, c := range map[string]struct {
		args []any
		same bool
	}{
		"other sizes":    {call(tensor.Float32, 128, 257), true},
		"defaults given": {call(tensor.Float32, 65, 512, nil, false, nil, nil, nil), true},
		"larger":         {call(tensor.Float32, 129, 300), false},
		"a type":         {call(tensor.Float16, 100, 300), false},
		"a bias":         {call(tensor.Float32, 100, 300, must(tensor.New(tensor.Float32, 100))), false},
		"an option":      {call(tensor.Float32, 100, 300, nil, true), false},
		"another layout": {swapped, false},
		"unaligned":      {unaligned, false},
	} {
		if same := registry.ClassOf(op, c.args...) == registry.ClassOf(op, first...); same != c.same {
			t.Errorf("%s: %v, want %v", what, same, c.same)
		}
		if same := registry.ClassWords(op, c.args...) == words; same != c.same {
			t.Errorf("%s: %s", what, registry.ClassWords(op, c.args...))
		}
	}
}
