//go:build linux

package aitercmd

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/profile"
	"github.com/aiter-go/aiter/internal/term"
)

// profile measures a user's operator, with --host too. The page, the trace and the JSON show its kernel.
func TestProgramProfile(t *testing.T) {
	p, dir := scaleProgram(1), t.TempDir()
	page, line := filepath.Join(dir, "p.html"), filepath.Join(dir, "p.json")
	wantCall(t, p, 0, "profile --arch cpu --calls 3 --html "+page+" --trace "+line, "First call", "columns 1", "kernels", "gaps")
	for name, want := range map[string]string{page: "<h3>Timeline</h3>", line: `"name":"kernel scale"`} {
		if text, err := os.ReadFile(name); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %v, or %q is missing", name, err, want)
		}
	}
	out := wantCall(t, p, 0, "profile scale --arch cpu --calls 4 --host --case 64 --json")
	var s profile.Summary
	var raw struct{ Parts []map[string]any }
	if err := errors.Join(json.Unmarshal([]byte(out), &s), json.Unmarshal([]byte(out), &raw)); err != nil || len(s.Parts) != 2 {
		t.Fatalf("%v\n%s", err, out)
	}
	counts := map[profile.Group]int64{}
	for _, share := range s.Parts[1].Shares {
		counts[share.Group] += share.Count
	}
	// Each call allocates x and out, uploads x, downloads out, and frees both.
	if counts[profile.Kernels] != 4 || counts[profile.Copies] != 8 || counts[profile.Allocations] != 16 {
		t.Errorf("counts %v\n%s", counts, out)
	}
	for _, c := range []struct{ line, want string }{
		{"profile --calls 0 --arch cpu", "--calls 0: expected 1 or more"},
		{"profile --arch cpu --counters", "--counters: the profilers rocprofv3 and ncu are for GPUs"},
		{"profile --arch cpu --pmc a", "--pmc needs --counters"},
		{"profile --import a.csv --host", "--import contradicts --host"},
		{"profile --import " + page, "p.html:1: no known columns"},
	} {
		wantCall(t, p, 2, c.line, c.want)
	}
}

// Arguments after --import FILE are files to import too, because the shell expands patterns.
func TestProfileImport(t *testing.T) {
	dir := "../internal/profile/testdata/"
	wantCall(t, scaleProgram(1), 0, "profile --import "+dir+"hip_api_trace.csv "+dir+"memory_copy_trace.csv "+dir+"kernel_trace.csv",
		"Calls: 1.82 ms in all", "copies", "61%", "Copies dominate: 61%")
	wantCall(t, scaleProgram(1), 2, "profile --import "+dir+"ncu.csv --trace "+filepath.Join(t.TempDir(), "x"), "statistics and counters only")
}

// fakeTool writes a program that records its arguments in args and runs the shell commands.
func fakeTool(t *testing.T, name, commands string) (path, args string) {
	t.Helper()
	dir := t.TempDir()
	path, args = filepath.Join(dir, name), filepath.Join(dir, "args")
	text := "#!/bin/sh\nprintf '%s\\n' \"$@\" > " + args + "\n" + commands + "\n"
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path, args
}

// The profilers get their own arguments, then this program's command line with few calls. Their files are imported.
func TestProfilerArguments(t *testing.T) {
	fixtures, err := filepath.Abs("../internal/profile/testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		make        func(func(string) string) profiler
		name, write string
		want        []string
		counter     string
	}{
		{rocprofv3, "rocprofv3",
			`while [ "$1" != -d ]; do shift; done; mkdir -p "$2/host"; cp ` + fixtures + `/counter_collection.csv "$2/host/"`,
			[]string{"--pmc", "A", "B", "--output-format", "csv", "-o", "profile"}, "SQ_WAVES"},
		{ncu, "ncu", `while [ "$1" != --log-file ]; do shift; done; cp ` + fixtures + `/ncu.csv "$2"`,
			[]string{"--csv", "--page", "--metrics", "A,B"}, "Duration"},
	} {
		path, args := fakeTool(t, c.name, c.write)
		env := func(name string) string { return map[string]string{strings.ToUpper(c.name): path}[name] }
		p, err := c.make(env).find(env)
		if err != nil {
			t.Fatal(err)
		}
		a := profileApp(t, "profile", "scale", "--counters", "--html", "x.html", "--dtype=float16", "--pmc", "A,B", "--json")
		found, err := a.countersOf(t.Context(), p, &profileFlags{pmc: []string{"A", "B"}})
		if err != nil || !slices.ContainsFunc(found, func(k profile.Counter) bool { return k.Name == c.counter }) {
			t.Errorf("%s: counters %+v, %v", c.name, found, err)
		}
		text, err := os.ReadFile(args)
		if err != nil {
			t.Fatal(err)
		}
		words := strings.Fields(string(text))
		for _, w := range append(c.want, "scale", "--dtype=float16") {
			if !slices.Contains(words, w) {
				t.Errorf("%s: argument %s is missing in %v", c.name, w, words)
			}
		}
		if slices.Contains(words, "--counters") || slices.Contains(words, "x.html") || words[len(words)-2] != "2" {
			t.Errorf("%s: arguments %v", c.name, words)
		}
	}
}

// A profiler that is missing, fails or writes nothing is an error with exit code 4 and a hint.
func TestProfilerErrors(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	none := func(string) string { return "" }
	for _, p := range []profiler{rocprofv3(none), ncu(none)} {
		p.folders = []string{"/nowhere"}
		_, err := p.find(none)
		if err == nil || exitCode(err) != exitToolchain || !strings.Contains(hintProfiler(err), "export "+p.variable+"=") {
			t.Errorf("%s: %v, hint %q", p.name, err, hintProfiler(err))
		}
	}
	for commands, want := range map[string]string{
		"echo '==ERROR== ERR_NVGPUCTRPERM - no permission'; exit 1": "NVreg_RestrictProfilingToAdminUsers=0",
		"exit 3": "without --counters the times are measured by events",
		"exit 0": "without --counters the times are measured by events",
	} {
		p := ncu(none)
		p.path, _ = fakeTool(t, "ncu", commands)
		_, err := profileApp(t).countersOf(t.Context(), &p, &profileFlags{})
		if err == nil || exitCode(err) != exitToolchain || !strings.Contains(hintProfiler(err), want) {
			t.Errorf("%s: %v, hint %q", commands, err, hintProfiler(err))
		}
	}
}

// No option is given twice, because ncu refuses that.
func TestProfilerOptionsAreGivenOnce(t *testing.T) {
	p := ncu(func(string) string { return "" })
	for _, counters := range [][]string{nil, {"sm__warps_active.avg", "dram__bytes.sum"}} {
		args := p.command("/tmp", counters)
		if n := strings.Count(" "+strings.Join(args, " ")+" ", " --page "); n != 1 {
			t.Errorf("counters %v: --page is given %d times: %q", counters, n, args)
		}
	}
}

// profileApp returns a run of the program with arguments.
func profileApp(t *testing.T, args ...string) *app {
	t.Helper()
	messages, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = messages.Close() })
	return &app{args: args, err: term.New(messages, messages)}
}
