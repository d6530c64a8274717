//go:build linux

package jit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/jit"
)

func (b *fixture) explain() *jit.Explanation {
	b.t.Helper()
	x, err := b.manager().Explain(context.Background(), demo(b.t))
	if err != nil {
		b.t.Fatal(err)
	}
	return x
}

func labels(list []jit.Change) string {
	var words []string
	for _, c := range list {
		words = append(words, c.Label)
	}
	return strings.Join(words, ", ")
}

func TestExplainLink(t *testing.T) {
	b := newFixture(t)
	if x := b.explain().Link; x.Status != jit.Compiled || x.Key != "" || x.Reason != "an object is to be compiled" {
		t.Errorf("before the first build: %+v", x)
	}
	b.build()
	first := b.explain().Link
	if first.Status != jit.Hit || first.Key == "" || len(first.Changes) != 0 {
		t.Errorf("after the first build: %+v", first)
	}
	if got, ok := first.Lines.Get("object src/a.cpp"); !ok || len(got) != 64 {
		t.Errorf("lines %v", first.Lines)
	}

	b.write("config.toml", strings.Replace(testConfig, "include = ", "link_flags = { common = [\"-Wl,-z,now\"] }\ninclude = ", 1))
	x := b.explain()
	if x.Link.Status != jit.Compiled || x.Link.Reason != "flags changed" || labels(x.Link.Changes) != "argv" ||
		!strings.Contains(x.Link.Changes[0].After, "-Wl,-z,now") {
		t.Errorf("a link flag changed: %+v", x.Link)
	}
	if x.Units[0].Status != jit.Hit {
		t.Errorf("the unit after a change of a link flag: %+v", x.Units[0])
	}
	b.write("config.toml", testConfig)
	b.write("src/a.cpp", strings.Replace(testFiles["src/a.cpp"], "ONLY_A;", "ONLY_A + 1;", 1))
	x = b.explain()
	if x.Link.Reason != "an object is to be compiled" || x.Units[0].Changes[0].Label != "source src/a.cpp" {
		t.Errorf("a source changed: %+v", x)
	}
	if c := x.Units[0].Changes[0]; len(c.Before) != 64 || len(c.After) != 64 || c.Before == c.After {
		t.Errorf("old and new digest of the source: %+v", c)
	}
}

func TestExplainNamesReplacedCompilerFile(t *testing.T) {
	b := newFixture(t)
	b.build()
	if x := b.explain(); len(x.Replaced) != 0 {
		t.Errorf("no file was replaced, got %+v", x.Replaced)
	}
	b.compiler("# another script")
	x := b.explain()
	if len(x.Replaced) != 1 || len(x.Replaced[0].Before) != 64 || len(x.Replaced[0].After) != 64 {
		t.Errorf("got %+v, want the compiler script alone", x.Replaced)
	}
	if !strings.HasPrefix(labels(x.Units[0].Changes), "toolchain") {
		t.Errorf("changes of the key: %+v", x.Units[0].Changes)
	}
}

// TestArtifactSecondsAfterRelink checks that the time of an artifact includes the compiles of an
// earlier build.
func TestArtifactSecondsAfterRelink(t *testing.T) {
	b := newFixture(t)
	b.hook("sleep 0.3")
	first := b.build()
	if first.Artifact.Seconds < 0.6 {
		t.Errorf("two compiles of at least 0.3 s each: the artifact has %g s", first.Artifact.Seconds)
	}
	b.write("config.toml", strings.Replace(testConfig, "include = ", "link_flags = { common = [\"-Wl,-z,now\"] }\ninclude = ", 1))
	if again := b.build(); again.Units[0].Status != jit.Hit || again.Artifact.Digest == first.Artifact.Digest || again.Artifact.Seconds < 0.6 {
		t.Errorf("after a link without a compile: %+v", again)
	}
}

func TestBuildsAreCounted(t *testing.T) {
	b := newFixture(t)
	b.build()
	b.build()
	b.write("include/only_a.h", "#define ONLY_A 5\n")
	b.build()
	store, err := cache.Open(b.cacheDir, cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Stats()
	if err != nil || s.Hits != 3 || s.Misses != 3 || s.Saved <= 0 {
		t.Errorf("%d hits, %d misses, %g s saved, %v", s.Hits, s.Misses, s.Saved, err)
	}
	reasons := map[string]int64{}
	for _, c := range s.Counts {
		if c.Event == cache.UnitMiss {
			reasons[c.Cause] = c.N
		}
	}
	if len(reasons) != 2 || reasons["new"] != 2 || reasons["header"] != 1 {
		t.Errorf("misses by reason: %v", reasons)
	}
	if len(s.Modules) != 1 || s.Modules[0].Artifacts != 2 || s.Modules[0].Bytes <= 0 || len(s.Targets) != 1 || s.Targets[0].Name != "cpu" {
		t.Errorf("shares: %+v, %+v", s.Modules, s.Targets)
	}
}

// TestEachStepIsLoggedOnce parses the log.
func TestEachStepIsLoggedOnce(t *testing.T) {
	b := newFixture(t)
	steps := func() map[string]map[string]any {
		var log bytes.Buffer
		logger := slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		if _, err := b.manager(func(o *jit.Options) { o.Jobs, o.Logger = 1, logger }).Build(t.Context(), demo(t)); err != nil {
			t.Fatal(err)
		}
		seen := map[string]map[string]any{}
		for line := range strings.Lines(log.String()) {
			var e map[string]any
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			name := e["msg"].(string)
			if s, ok := e["source"].(string); ok {
				name += " " + s
			}
			if seen[name] != nil {
				t.Errorf("logged twice: %s", line)
			}
			seen[name] = e
		}
		return seen
	}
	want := map[string][]string{
		"toolchain found": {"digest", "reason"}, "module started": {"units"},
		"unit missed src/a.cpp": {"cause", "reason"}, "unit started src/a.cpp": {"cause", "reason"}, "unit finished src/a.cpp": {"seconds"},
		"unit published src/a.cpp": {"key", "digest"}, "unit missed src/b.cpp": {"cause", "reason"},
		"link missed": {}, "link started": {}, "link finished": {"seconds"}, "link published": {"key", "digest"},
		"module finished": {"seconds", "status"},
	}
	got := steps()
	for name, fields := range want {
		for _, f := range append(fields, "module", "target") {
			if got[name][f] == nil {
				t.Errorf("%q has no %s: %v", name, f, got[name])
			}
		}
	}
	got = steps()
	for _, name := range []string{"unit hit src/a.cpp", "unit hit src/b.cpp", "link hit"} {
		if got[name]["status"] != "hit" {
			t.Errorf("%q: %v", name, got[name])
		}
	}
}

func TestRebuildComparesBytes(t *testing.T) {
	b := newFixture(t)
	b.build()
	b.compiles()
	ctx := context.Background()
	list, err := b.manager().Rebuild(ctx, demo(t))
	if err != nil || len(list) != 1 || !list[0].Identical() || list[0].Skipped != "" || len(list[0].Units) != 2 || list[0].Rebuilt == "" {
		t.Errorf("%+v, %v", list, err)
	}
	if n := b.compiles(); n != 2 {
		t.Errorf("%d compiles, want 2", n)
	}
	b.noStaging()
	b.write("src/a.cpp", testFiles["src/a.cpp"]+"// more\n")
	if list, err = b.manager().Rebuild(ctx, demo(t)); err != nil || !strings.Contains(list[0].Skipped, "src/a.cpp") {
		t.Errorf("after an edit: %+v, %v", list, err)
	}

	// This compiler writes a new number into each object.
	b.write("src/a.cpp", "extern \"C\" const char* demo_a() { return STAMP; }\n"+demoOp)
	stamp := b.beside("stamp")
	if err := os.WriteFile(stamp, []byte("first"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.hook(`set -- "$@" "-DSTAMP=\"$(cat ` + stamp + `)\""`)
	b.build()
	if err := os.WriteFile(stamp, []byte("second"), 0o600); err != nil {
		t.Fatal(err)
	}
	list, err = b.manager().Rebuild(ctx, demo(t))
	if err != nil || list[0].Identical() || list[0].Units[0].Stored == list[0].Units[0].Rebuilt ||
		list[0].Units[1].Stored != list[0].Units[1].Rebuilt {
		t.Errorf("with a compiler that is not reproducible: %+v, %v", list, err)
	}
}

// TestOnlyBuildsTrim checks that a due trim runs after a compile, but not after a hit.
func TestOnlyBuildsTrim(t *testing.T) {
	b := newFixture(t)
	b.build()
	trimmed := func() bool {
		r := new(recorder)
		m := b.manager(func(o *jit.Options) { o.Observer = r })
		_, err := m.Build(context.Background(), demo(t))
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(strings.Join(r.events, ","), string(jit.Trimmed))
	}
	file := b.cacheDir + "/v2/trimmed"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-48 * time.Hour)
	if err := os.Chtimes(file, old, old); err != nil {
		t.Fatal(err)
	}
	if trimmed() {
		t.Error("a hit trimmed the cache")
	}
	b.write("include/only_a.h", "#define ONLY_A 5\n")
	if !trimmed() {
		t.Error("a compile did not trim the cache")
	}
	b.write("include/only_a.h", "#define ONLY_A 6\n")
	if trimmed() {
		t.Error("the cache was trimmed twice within an hour")
	}
}
