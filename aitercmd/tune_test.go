//go:build linux

package aitercmd

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/registry"
)

// tunableProgram is scaleProgram with a slow operator: without launch parameters each call waits for 400 us. The launch parameter wait
// changes that time, wrong makes the result wrong, and unread is not read. For a tensor with one column the operator reads no
// launch parameter.
func tunableProgram() Program {
	p := scaleProgram(1)
	source := strings.Replace(scaleSource, "#include <aiter/ffi.h>", "#include <aiter/ffi.h>\n#include <aiter/tuning.h>\n#include <time.h>", 1)
	source = strings.Replace(source, "  for (int64_t i = 0;", `
  if (x.size(1) > 1) {
    timespec from, now;
    clock_gettime(CLOCK_MONOTONIC, &from);
    const int64_t wait = aiter::tuned("wait", 400000);
    do clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - from.tv_sec) * 1000000000 + now.tv_nsec - from.tv_nsec < wait);
    by += double(aiter::tuned("wrong", 0));
  }
  for (int64_t i = 0;`, 1)
	p.Modules = []registry.Source{{Name: "scale", Files: fstest.MapFS{"scale.cpp": {Data: []byte(source)},
		"opt_compiler.toml": {Data: []byte(scaleConfig + `
tune.wait = { values = [200000, 800000], targets = ["cpu"], doc = "nanoseconds" }
tune.wrong = { values = [0, 1] }
tune.unread = { values = [5] }
`)}}}}
	return p
}

// tune finds the fastest candidate and keeps it. explain shows it, and calls and prebuilt caches use it. Wrong candidates are reported.
func TestTune(t *testing.T) {
	p, dir := tunableProgram(), t.TempDir()
	run := func(code int, line string, texts ...string) string {
		t.Helper()
		return wantCall(t, p, code, line+" --cache-dir "+filepath.Join(dir, "cache"), texts...)
	}
	run(0, "describe scale", "launch parameter wait    200000, 800000, on cpu: nanoseconds", "launch parameter unread  5")
	run(2, "tune --arch cpu --case 65", "no case has this text in its name")
	shapes := filepath.Join(dir, "shapes")
	if err := os.WriteFile(shapes, []byte("# two\ncolumns 1\ncolumns 64 # the last\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run(6, "tune --arch cpu --dry-run --shapes "+shapes, "columns 1 ", "it reads no launch parameter", "columns 64", "wait=200000 wrong=0",
		"wrong: columns 64 with wait=800000 wrong=1: out", "2 combinations of launch parameters gave wrong results",
		"warning: no case reads the launch parameter unread")
	if out := run(0, "explain module_scale --arch cpu"); strings.Contains(out, "launch parameters") {
		t.Errorf("a dry run kept\n%s", out)
	}
	var rep tuneReport
	if err := json.Unmarshal([]byte(run(6, "tune --arch cpu --json --shapes "+shapes)), &rep); err != nil || len(rep.Cases) != 2 {
		t.Fatalf("%v: %+v", err, rep)
	}
	one := rep.Cases[1]
	if one.Params["wait"] != 200000 || one.PlanUS < 400 || one.TunedUS < 200 || one.TunedUS > 0.8*one.PlanUS || one.Candidates != 4 ||
		len(one.Wrong) != 2 || one.Shapes != "out float32 (4, 33-64), x float32 (4, 33-64)" || !slices.Equal(rep.Unread, []string{"unread"}) {
		t.Errorf("%+v, unread %v", one, rep.Unread)
	}
	kept := []string{"launch parameters, used with AITER_TUNE=1", "scale: wait=200000 wrong=0", "out float32 (4, 33-64)"}
	run(0, "explain module_scale --arch cpu", kept...)

	set := filepath.Join(dir, "set")
	run(0, "build module_scale --arch cpu --output "+set)
	t.Setenv("AITER_NO_COMPILE", "1")
	prebuilt := " --arch cpu --cache-path " + set + " --cache-dir " + filepath.Join(dir, "other")
	wantCall(t, p, 0, "explain module_scale"+prebuilt, kept...)
	fastest := func() float64 {
		t.Helper()
		var rep testReport
		out := wantCall(t, p, 0, "test --case 64 --performance --json"+prebuilt)
		if err := json.Unmarshal([]byte(out), &rep); err != nil || len(rep.Cases) != 1 {
			t.Fatalf("%v\n%s", err, out)
		}
		return rep.Cases[0].Performance.Min
	}
	if plan := fastest(); plan < 400 {
		t.Errorf("off: %g us", plan)
	}
	t.Setenv("AITER_TUNE", "1")
	if tuned := fastest(); tuned < 200 || tuned >= 400 {
		t.Errorf("on: %g us", tuned)
	}
}

func TestParseShapes(t *testing.T) {
	op, err := optests.Lookup("causal_conv1d_fwd")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"batch=1,2 dim=8 seqlen=3 dtype=bfloat16": "1 8 3 4 bfloat16; 2 8 3 4 bfloat16",
		"\n# none\n dim=8 # eight\n\nuse-silu=true layout=channel_last dtype=float16,float32 batch=1 dim=1 seqlen=1\r\n": "2 8 128 4 float32; " +
			"1 1 1 4 float16; 1 1 1 4 float32",
		"":                 "has no cases",
		"# only\n":         "has no cases",
		"dim":              `f:1: "dim": expected name=value`,
		"dim=1\nbatches=2": `f:2: unknown size or option "batches"; did you mean batch?`,
		"dim=x":            "f:1: dim=x: ",
		"dim=":             "f:1: dim=: ",
		"dtype=int8":       "expected float32, float16, bfloat16",
		"layout=rows":      "layout",
		"use_silu=perhaps": "use_silu=perhaps",
		"dim=" + strings.Repeat("1,", 10_001) + "1": "more than 10000 cases",
	} {
		list, err := parseShapes("f", text, op)
		var words []string
		for _, c := range list {
			var values []string
			for _, name := range []string{"batch", "dim", "seqlen", "width"} {
				i := slices.IndexFunc(op.Params(), func(p optests.Param) bool { return p.Name == name })
				values = append(values, cellText(op.Params()[i].Value(c.Case)))
			}
			words = append(words, strings.Join(values, " ")+" "+c.Case.DType.String())
		}
		if got := strings.Join(words, "; "); err == nil && got != want || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %q, %v; want %q", text, got, err, want)
		}
	}
}

func FuzzParseShapes(f *testing.F) {
	op, err := optests.Lookup("causal_conv1d_fwd")
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range []string{"batch=1,2 dim=8", "dtype=float32 # c", "dim=9223372036854775808", "=", "layout=,", "use_silu=1\r\neps=1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		list, err := parseShapes("f", text, op)
		if (err == nil) != (len(list) > 0) || len(list) > maxShapes {
			t.Errorf("%d cases, %v", len(list), err)
		}
	})
}
