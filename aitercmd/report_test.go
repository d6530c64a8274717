package aitercmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/toolchain"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/schema"
	"github.com/aiter-go/aiter/jit/target"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

func TestExitCode(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{errors.New("anything"), exitFailure},
		{usagef("wrong"), exitUsage},
		{&target.UnknownError{Name: "gfx1"}, exitUsage},
		{&registry.EnvironmentError{Name: "MAX_JOBS"}, exitUsage},
		{&opconfig.Error{File: "x.toml"}, exitConfig},
		{&toolchain.NotFoundError{Vendor: target.HIP}, exitToolchain},
		{&jit.CompileError{}, exitCompile},
		{&verifyError{"wrong"}, exitVerify},
		{&cache.UntrustedError{}, exitCache},
		{&noDeviceError{}, exitDevice},
		{&device.UnavailableError{}, exitDevice},
		{fmt.Errorf("wrapped: %w", &jit.CompileError{}), exitCompile},
		{errors.Join(errors.New("first"), &toolchain.NotFoundError{}), exitToolchain},
		{errors.Join(&toolchain.NotFoundError{}, &jit.CompileError{}), exitCompile},
	} {
		if got := exitCode(c.err); got != c.want {
			t.Errorf("exitCode(%T) = %d, want %d", c.err, got, c.want)
		}
	}
}

func TestWordsOfWaiting(t *testing.T) {
	holder := cache.Holder{PID: -1, Host: "there", What: "it", Since: time.Now()}
	unit := jit.Event{Step: jit.Waiting, Module: "module_a", Target: "cpu", Holder: holder, Source: "a.cpp", Values: "dtype=float16"}
	link := jit.Event{Step: jit.Waiting, Module: "module_a", Target: "cpu", Holder: holder, Part: "op dtype=float16"}
	for want, e := range map[string]jit.Event{"a.cpp for cpu, dtype float16": unit, "link of module_a (op, dtype float16) for cpu": link} {
		if got, full := eventLine(e, false), fmt.Sprintf("waiting for %s: %s", holder, want); got != full {
			t.Errorf("got %q, want %q", got, full)
		}
	}
}

// The names in the JSON are part of the interface.
func TestReportNames(t *testing.T) {
	build := buildReport{Modules: []moduleReport{newModuleReport(jit.Result{Units: []jit.UnitResult{{Source: "a", Status: jit.Hit}}})}}
	fwd, err := optests.Lookup("causal_conv1d_fwd")
	if err != nil {
		t.Fatal(err)
	}
	wantKeys(t, build, "modules", "output", "support")
	wantKeys(t, build.Modules[0], "module", "target", "part", "whole", "artifact", "digest", "seconds", "units", "error")
	wantKeys(t, build.Modules[0].Units[0], "source", "values", "status", "reason", "seconds")
	wantKeys(t, runReport{}, "op", "target", "ok", "outputs", "result", "median_us", "cold_seconds", "error")
	wantKeys(t, testReport{}, "op", "target", "device", "copy_gbps", "passed", "failed", "cases")
	wantKeys(t, newTestCase(fwd, optests.Config{}), "config", "dtype", "layout", "batch", "dim", "seqlen", "width", "silu", "bias",
		"status", "outputs", "performance", "error")
	wantKeys(t, timing{}, "mean_us", "min_us", "median_us", "p20_us", "p80_us", "gbps", "copy_fraction")
	wantKeys(t, outputReport{}, "name", "max_abs_err", "max_rel_err", "mismatches", "elements")
	wantKeys(t, outputReport{optests.Result{MaxAbsErr: math.Inf(1), MaxRelErr: math.NaN()}, true},
		"name", "max_abs_err", "max_rel_err", "mismatches", "elements", "beyond_ideal", "unwritten", "canary_broken")
}

func wantKeys(t *testing.T, v any, want ...string) {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Errorf("%T: %v", v, err)
		return
	}
	var got map[string]any
	if err := json.Unmarshal(data, &got); err != nil {
		t.Errorf("%T: %v", v, err)
		return
	}
	var keys []string
	for k := range got {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	slices.Sort(want)
	if !slices.Equal(keys, want) {
		t.Errorf("%T has the keys %v, want %v", v, keys, want)
	}
}

func TestMedian(t *testing.T) {
	if median(nil) != nil {
		t.Error("there is no median of nothing")
	}
	for _, c := range []struct {
		times []time.Duration
		want  float64
	}{{[]time.Duration{3000}, 3}, {[]time.Duration{9000, 1000, 2000}, 2}, {[]time.Duration{4000, 1000, 2000, 9000}, 3}} {
		if got := *median(c.times); got != c.want {
			t.Errorf("median(%v) = %v us, want %v", c.times, got, c.want)
		}
	}
}

func TestProgressLine(t *testing.T) {
	now := time.Unix(1000, 0)
	a := &app{json: true}
	p := a.newProgress()
	p.now = func() time.Time { return now }
	see := func(step jit.Step, source string, units int) {
		p.Observe(jit.Event{Step: step, Module: "module_x", Target: "gfx942", Source: source, Units: units})
	}
	check := func(want string) {
		t.Helper()
		if got := p.line(); got != want {
			t.Errorf("line = %q, want %q", got, want)
		}
	}
	check("")
	see(jit.ModuleStarted, "", 3)
	see(jit.UnitStarted, "csrc/a.hip", 0)
	now = now.Add(2 * time.Second)
	see(jit.UnitStarted, "csrc/b.hip", 0)
	check("[0/3] a.hip for gfx942 2s, b.hip for gfx942 0s")
	see(jit.UnitFinished, "csrc/a.hip", 0)
	check("[1/3] b.hip for gfx942 0s")
	see(jit.UnitFinished, "csrc/b.hip", 0)
	see(jit.LinkStarted, "", 0)
	check("[2/3] link module_x for gfx942 0s")
	see(jit.LinkFinished, "", 0)
	see(jit.ModuleFinished, "", 0)
	check("")
	if p.finished != 3 {
		t.Errorf("finished %d", p.finished)
	}
}

func TestTargets(t *testing.T) {
	a := &app{getenv: func(string) string { return "" }}
	got, err := a.targets(context.Background(), " gfx942 ;cpu,,gfx90a:xnack-,gfx942")
	if want := "gfx942, cpu, gfx90a:xnack-"; err != nil || join(got) != want {
		t.Errorf("targets = %s, %v, want %s", join(got), err, want)
	}
	if !matchesTarget(got, "gfx942:xnack-") || matchesTarget(got, "gfx90a") || matchesTarget(got, "gfx950") {
		t.Error("gfx942 selects its targets with features too, gfx90a:xnack- only itself")
	}
}

func TestNamedOperator(t *testing.T) {
	for line, want := range map[string]string{
		"test causal_conv1d_fwd --dim 3":                          "causal_conv1d_fwd",
		"--json bench --dim 3 causal_conv1d_bwd":                  "causal_conv1d_bwd",
		"run --json causal_conv1d_fwd":                            "causal_conv1d_fwd",
		"bench --html causal_conv1d_fwd causal_conv1d_bwd":        "causal_conv1d_bwd",
		"bench --html causal_conv1d_fwd --warm causal_conv1d_bwd": "causal_conv1d_fwd", // a guess: --warm has no value
		"__complete test causal_conv1d_update --c":                "causal_conv1d_update",
		"build causal_conv1d_fwd":                                 "",
		"test nothing":                                            "",
		"":                                                        "",
	} {
		if got := namedOperator(strings.Fields(line), optests.Operators()); got != want {
			t.Errorf("%q names %q, want %q", line, got, want)
		}
	}
}

// The table of bench --host shows the sizes of every operator, a user's and aiter's.
func TestCaseWords(t *testing.T) {
	s, err := schema.Parse("(Tensor(a!) out, Tensor x) -> ()")
	if err != nil {
		t.Fatal(err)
	}
	shape, err := schema.ParseShape("(samples, bins)")
	if err != nil {
		t.Fatal(err)
	}
	op := optests.Operator{Name: "histogram", Reference: func(optests.Inputs) map[string][]float64 { return nil }}
	for _, bins := range []int64{16, 32} {
		x := optests.TensorArg{DType: tensor.Float16, Shape: []int64{bins * 3, bins}}
		op.Cases = append(op.Cases, optests.Call{Args: map[string]any{"out": x, "x": x}})
	}
	d, err := op.Declare(s, map[string]schema.Shape{"out": shape, "x": shape})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(caseWords(d, d.Sweep()[0]), " "), "float16 48 16"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	fwd, err := optests.Lookup("causal_conv1d_fwd")
	if err != nil {
		t.Fatal(err)
	}
	c := optests.Case{DType: tensor.BFloat16, Params: optests.Conv1d{Batch: 2, Dim: 64, Seqlen: 128, Width: 4, SiLU: true}}
	if got, want := strings.Join(caseWords(fwd, c), " "), "bfloat16 channel_first 2 64 128"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
