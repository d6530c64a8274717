package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/metrics"
	"github.com/aiter-go/aiter/registry"
)

const config = `
[module.module_small]
include = ["src"]
targets = ["cpu"]
[[module.module_small.source]]
path = "src/*.cpp"
[[module.module_small.op]]
name = "small"
schema = "() -> ()"
`

// fixture is a source tree with a small module, a cache, and a collector.
type fixture struct {
	t      *testing.T
	tree   *testenv.Tree
	cache  string
	counts *metrics.Collector
	reg    *prometheus.Registry
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	b := &fixture{t: t, tree: testenv.NewTree(t, config), cache: t.TempDir(), counts: metrics.New(), reg: prometheus.NewPedanticRegistry()}
	b.tree.Write("src/a.cpp", "#include \"h.h\"\nextern \"C\" int __tvm_ffi_small(void*, void*, int, void*) { return ZERO; }\n")
	b.tree.Write("src/b.cpp", "int b() { return 1; }\n")
	b.tree.Write("src/h.h", "#define ZERO 0\n")
	b.reg.MustRegister(b.counts)
	return b
}

func (b *fixture) open(opts registry.Options) *registry.Registry {
	b.t.Helper()
	opts.Root, opts.CacheDir, opts.Observer = b.tree.Root, b.cache, b.counts
	r, err := registry.Open(b.t.Context(), opts)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = r.Close() })
	return r
}

// build builds the small module with a new registry.
func (b *fixture) build(opts registry.Options) error {
	b.t.Helper()
	cpu, err := target.Parse("cpu")
	if err != nil {
		b.t.Fatal(err)
	}
	_, err = b.open(opts).Manager().Build(b.t.Context(), jit.Request{Module: "module_small", Target: cpu})
	return err
}

// text returns the response of a scrape.
func (b *fixture) text() string {
	b.t.Helper()
	srv := httptest.NewServer(b.counts.Handler())
	defer srv.Close()
	res, err := http.Get(srv.URL)
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		b.t.Fatalf("%s: %v", res.Status, err)
	}
	return string(body)
}

// expect checks the values of series, each in a line "series value".
func (b *fixture) expect(after string, lines ...string) {
	b.t.Helper()
	text := strings.Split(b.text(), "\n")
	for _, want := range lines {
		if !slices.Contains(text, want) {
			series, _, _ := strings.Cut(want, " ")
			i := slices.IndexFunc(text, func(l string) bool { return strings.HasPrefix(l, series) })
			got := "nothing"
			if i >= 0 {
				got = text[i]
			}
			b.t.Errorf("after %s: got %s, want %s", after, got, want)
		}
	}
}

func lookups(cause string, n int) string {
	return fmt.Sprintf(`aiter_unit_lookups_total{arch="cpu",cause=%q,module="module_small",result="miss"} %d`, cause, n)
}

func TestBuilds(t *testing.T) {
	b := newFixture(t)
	steps := []struct {
		name  string
		do    func()
		opts  registry.Options
		fails bool
		want  []string
	}{
		{name: "a cold build", do: func() {}, want: []string{
			lookups("new", 2), `aiter_build_duration_seconds_count{arch="cpu",module="module_small",result="ok"} 1`,
			`aiter_compile_duration_seconds_count{arch="cpu",module="module_small",result="ok"} 2`,
			`aiter_link_duration_seconds_count{arch="cpu",module="module_small",result="ok"} 1`, "aiter_compilers_running 0",
		}},
		{name: "a warm build", do: func() {}, want: []string{
			`aiter_unit_lookups_total{arch="cpu",cause="",module="module_small",result="hit"} 2`,
			`aiter_build_duration_seconds_count{arch="cpu",module="module_small",result="hit"} 1`,
			`aiter_link_hits_total{arch="cpu",module="module_small"} 1`,
		}},
		{name: "an edit of a header", do: func() { b.tree.Write("src/h.h", "#define ZERO (1 - 1)\n") }, want: []string{
			lookups("header", 1), `aiter_unit_lookups_total{arch="cpu",cause="",module="module_small",result="hit"} 3`,
		}},
		{name: "an edit of a source", do: func() { b.tree.Write("src/b.cpp", "int b() { return 2; }\n") }, want: []string{lookups("source", 1)}},
		{name: "a change of a flag", do: func() {
			b.tree.Config(strings.Replace(config, `targets =`, "flags.common = [\"-O1\"]\ntargets =", 1))
		},
			want: []string{lookups("flags", 2)}},
		{name: "force", do: func() {}, opts: registry.Options{Rebuild: true}, want: []string{lookups("forced", 2)}},
		{name: "damage", do: func() { damage(t, filepath.Join(b.cache, "v2/record/object")) }, want: []string{
			lookups("lost", 2),
		}},
		{name: "a syntax error", do: func() { b.tree.Write("src/h.h", "oops\n") }, fails: true, want: []string{
			lookups("header", 2), `aiter_build_duration_seconds_count{arch="cpu",module="module_small",result="failed"} 1`,
			`aiter_compile_duration_seconds_count{arch="cpu",module="module_small",result="failed"} 1`,
			"aiter_compilers_running 0",
		}},
	}
	for _, s := range steps {
		s.do()
		if err := b.build(s.opts); (err != nil) != s.fails {
			t.Fatalf("%s: %v", s.name, err)
		}
		b.expect(s.name, s.want...)
		if !s.fails {
			b.sameCauses(s.name, nil)
		}
	}
	if text := b.text(); strings.Contains(text, "aiter_cache_quarantined_files_total 0") ||
		strings.Contains(text, fmt.Sprintf(`cause=%q`, jit.CauseOther)) {
		t.Errorf("damage was not counted, or a miss has the cause \"other\":\n%s", text)
	}
}

// TestCauseOfAnotherVersion checks that misses in a cache of another program version have the cause "format" in the
// metrics and in the counts of the cache.
func TestCauseOfAnotherVersion(t *testing.T) {
	b := newFixture(t)
	if err := b.build(registry.Options{}); err != nil {
		t.Fatal(err)
	}
	before := b.cacheCauses()
	if err := os.Rename(filepath.Join(b.cache, "v2"), filepath.Join(b.cache, "v1")); err != nil {
		t.Fatal(err)
	}
	if err := b.build(registry.Options{}); err != nil {
		t.Fatal(err)
	}
	b.expect("another version", lookups("format", 2))
	b.sameCauses("another version", before)
}

// cacheCauses returns the misses of units by cause, as "aiterctl cache stats" reports them.
func (b *fixture) cacheCauses() map[string]int64 {
	b.t.Helper()
	store, err := cache.Open(b.cache, cache.Options{})
	if err != nil {
		b.t.Fatal(err)
	}
	causes := map[string]int64{}
	for _, c := range store.Counts() {
		if c.Event == cache.UnitMiss {
			causes[c.Cause] += c.N
		}
	}
	return causes
}

// sameCauses checks that the cache counts the same misses as the metrics. earlier are misses that only the metrics count.
func (b *fixture) sameCauses(after string, earlier map[string]int64) {
	b.t.Helper()
	want := b.cacheCauses()
	for cause, n := range earlier {
		want[cause] += n
	}
	got := map[string]int64{}
	for _, m := range regexp.MustCompile(`aiter_unit_lookups_total{arch="cpu",cause="(.*)",module="module_small",result="miss"} `+
		`(\d+)`).FindAllStringSubmatch(b.text(), -1) {
		n, err := strconv.ParseInt(m[2], 10, 64)
		if err != nil {
			b.t.Fatal(err)
		}
		got[m[1]] = n
	}
	if !maps.Equal(got, want) {
		b.t.Errorf("after %s: the metrics count the misses %v, the cache %v", after, got, want)
	}
}

// damage flips a byte of each file below a folder.
func damage(t *testing.T, dir string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		files++
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		data[len(data)-1] ^= 1
		return os.WriteFile(path, data, 0o600)
	})
	if err != nil || files == 0 {
		t.Fatalf("%d files, %v", files, err)
	}
}

// Names, help texts and labels follow the conventions of Prometheus.
func TestConventions(t *testing.T) {
	b := newFixture(t)
	r := b.open(registry.Options{})
	b.counts.SetCache(r.Manager().Cache())
	if err := b.build(registry.Options{}); err != nil {
		t.Fatal(err)
	}
	problems, err := testutil.GatherAndLint(b.reg)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	n, err := testutil.GatherAndCount(b.reg)
	if err != nil || n > 100 {
		t.Errorf("%d series, %v", n, err)
	}
	stats, err := r.Manager().Cache().Stats()
	if err != nil {
		t.Fatal(err)
	}
	b.expect("a build", fmt.Sprintf("aiter_cache_artifacts %d", len(stats.Artifacts)))
	if text := b.text(); !strings.Contains(text, "\naiter_cache_size_bytes ") || strings.Contains(text, "\naiter_cache_size_bytes 0\n") ||
		!strings.Contains(text, "\ngo_goroutines ") {
		t.Errorf("the scrape lacks the metrics of the cache's size or of the process:\n%s", text)
	}
}

// Two registries build the same module, and one waits for the other.
func TestWaits(t *testing.T) {
	b := newFixture(t)
	cxx := filepath.Join(t.TempDir(), "cxx")
	script := "#!/bin/sh\ncase \" $* \" in *\" -MF \"*) sleep 1;; esac\nexec g++ \"$@\"\n"
	if err := os.WriteFile(cxx, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	getenv := func(name string) string {
		if name == "CXX" {
			return cxx
		}
		return os.Getenv(name)
	}
	errs := make(chan error, 2)
	for range 2 {
		go func() { errs <- b.build(registry.Options{Getenv: getenv, Jobs: 2}) }()
	}
	if err := errors.Join(<-errs, <-errs); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.text(), "\n"+`aiter_lock_wait_duration_seconds_count{arch="cpu",module="module_small",result="ok"}`) {
		t.Error("no build waited for a lock")
	}
	b.expect("two builds of the same module", lookups("new", 2),
		`aiter_unit_lookups_total{arch="cpu",cause="",module="module_small",result="hit"} 2`)
}

func TestReloads(t *testing.T) {
	b := newFixture(t)
	r := b.open(registry.Options{Reload: true})
	op, err := r.Lookup("small")
	if err != nil {
		t.Fatal(err)
	}
	if err := op.Call(context.Background()); err != nil {
		t.Fatal(err)
	}
	wantReload := func(result string) {
		t.Helper()
		want := fmt.Sprintf("\naiter_reload_duration_seconds_count{module=\"module_small\",result=%q} 1\n", result)
		for end := time.Now().Add(time.Minute); !strings.Contains(b.text(), want); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the metrics lack %s", want)
			}
		}
	}
	b.tree.Write("src/h.h", "oops\n")
	wantReload("failed")
	b.tree.Write("src/h.h", "#define ZERO (2 - 2)\n")
	wantReload("ok")
}

// Without the cache folder only the metrics of its size are missing.
func TestUnreadableCache(t *testing.T) {
	counts := metrics.New()
	dir := filepath.Join(t.TempDir(), "cache")
	reg, err := registry.Open(t.Context(), registry.Options{CacheDir: dir, Observer: counts})
	if err != nil {
		t.Fatal(err)
	}
	defer reg.Close()
	counts.SetCache(reg.Manager().Cache())
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	counts.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	text := w.Body.String()
	if w.Code != http.StatusOK || !strings.Contains(text, "\ngo_goroutines ") || !strings.Contains(text, "\naiter_compilers_running 0") ||
		strings.Contains(text, "aiter_cache_artifacts") {
		t.Errorf("got %d\n%s", w.Code, text)
	}
}

// TestPulls counts pulls: with a result, of a module that the set does not have, and failed.
func TestPulls(t *testing.T) {
	b := newFixture(t)
	fault := &jit.PullError{Cause: jit.PullTimeout}
	for _, err := range []error{nil, &jit.PullError{Cause: jit.PullAbsent}, fault, fault} {
		b.counts.Observe(jit.Event{Step: jit.Pulled, Module: "module_small", Target: "cpu", Seconds: 1, Err: err})
	}
	b.expect("four pulls",
		`aiter_pull_duration_seconds_count{arch="cpu",module="module_small",result="ok"} 1`,
		`aiter_pull_duration_seconds_count{arch="cpu",module="module_small",result="miss"} 1`,
		`aiter_pull_duration_seconds_count{arch="cpu",module="module_small",result="failed"} 2`,
		`aiter_pull_faults_total{cause="timeout"} 2`)
}
