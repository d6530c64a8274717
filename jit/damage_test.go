//go:build linux

package jit_test

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aiter-go/aiter/internal/deps"
	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/jit"
)

// damagedCache is a cache of two modules, a failed build and an extracted source tree.
type damagedCache struct {
	*fixture
	reqs  []jit.Request
	want  []string // digests of the libraries
	whole *snapshot
	// places are the paths in the cache folder that the tests damage, by the kind of file.
	places map[string]string
	tree   *deps.EmbeddedTree
	random *rand.Rand
}

func newDamagedCache(t *testing.T) *damagedCache {
	b, reqs := twins(t)
	want, err := b.libraries(reqs)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // a failed build writes a record and a log
		b.write("src/a.cpp", "#include \"both.h\"\nint x = ;\n")
		b.write("src/twin.cpp", "int x = ;\n")
		if _, err := b.libraries(reqs); err == nil {
			t.Fatal("the build did not fail")
		}
	}
	b.write("src/a.cpp", testFiles["src/a.cpp"])
	b.write("src/twin.cpp", "extern \"C\" int demo_a() { return 7; }\n")
	if _, err := b.libraries(reqs); err != nil {
		t.Fatal(err)
	}
	d := &damagedCache{fixture: b, reqs: reqs, want: want, random: newRandom(t)}
	if err := os.WriteFile(b.cacheDir+"/v2/trimmed", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d.tree = deps.NewEmbeddedTree(os.DirFS(b.root), openStore(t, b.cacheDir))
	if _, err := d.tree.Dir(context.Background()); err != nil {
		t.Fatal(err)
	}
	d.whole = b.copyCache()
	d.findPlaces()
	return d
}

// findPlaces stores one path of each kind.
func (d *damagedCache) findPlaces() {
	d.t.Helper()
	d.places = map[string]string{}
	for name, pattern := range map[string]string{
		"manifest": "v2/record/manifest/*/*", "deplist": "v2/record/deplist/*/*", "object": "v2/record/object/*/*",
		"linked": "v2/record/linked/*/*", "failure": "v2/record/failure/*/*", "last": "v2/record/last/*/*", "compiler": "v2/record/compiler/*/*",
		"blob": "v2/blob/*/*", "library": "v2/artifact/*/*.so", "description": "v2/artifact/*/artifact.json",
		"counts": "v2/counts", "digests": "v2/filehash", "trimmed": "v2/trimmed", "tag": "CACHEDIR.TAG",
		"lock": "v2/lock/*", "log": "v2/log/*", "source": "v2/source/*/src/a.cpp",
		"artifact folder": "v2/artifact/*", "shard": "v2/record/object/*", "kind": "v2/record/object", "source folder": "v2/source/*",
	} {
		found, err := filepath.Glob(filepath.Join(d.cacheDir, pattern))
		if err != nil || len(found) == 0 {
			d.t.Fatalf("no %s: %v", pattern, err)
		}
		d.places[name] = found[0]
	}
}

// verdict is the expected report of Verify about a damaged path.
type verdict int

const (
	fault verdict = iota
	missing
	nothing
)

// expected returns the path that Verify has to report, and the kind of report.
func (d *damagedCache) expected(place, what string) (string, verdict) {
	path := d.places[place]
	switch {
	case slices.Contains([]string{"lock", "log", "trimmed"}, place) && irregulars[what] == nil,
		slices.Contains([]string{"lock", "log", "trimmed", "counts", "digests"}, place) && what == "an empty file" && place != "digests",
		place == "counts" && slices.Contains([]string{"emptied", "doubled", "without a first line"}, what), // whole lines
		place == "tag" && slices.Contains([]string{"middle bit flipped", "last bit flipped", "cut by a byte", "cut in half", "appended to",
			"doubled", "without a byte"}, what):
		return "", nothing
	case place == "library", place == "description":
		return filepath.Dir(path), fault
	case place == "source":
		return d.places["source folder"], fault
	}
	return path, fault
}

// afterRemoval is like expected for a path that was removed.
func (d *damagedCache) afterRemoval(place string) (string, verdict) {
	switch place {
	case "manifest", "deplist", "object", "linked", "last", "compiler", "blob":
		return d.places[place], missing
	case "library", "description":
		return filepath.Dir(d.places[place]), fault
	case "source":
		return d.places["source folder"], fault
	}
	return "", nothing
}

// check verifies the damaged cache and then builds with it.
func (d *damagedCache) check(what, path string, want verdict) {
	d.t.Helper()
	rep := within(d.t, what+": verify", func() (r report, err error) {
		v, err := jit.Verify(openStore(d.t, d.cacheDir))
		for _, f := range v.Faults {
			r.faults = append(r.faults, f.Path)
		}
		for _, f := range v.Missing {
			r.missing = append(r.missing, f.Path)
		}
		return r, err
	})
	if reported := slices.Contains(rep.faults, path); reported != (want == fault) || want != fault && len(rep.faults) > 0 {
		d.t.Errorf("%s: faults %q, want %q", what, rep.faults, path)
	}
	if reported := slices.Contains(rep.missing, path); want != fault && reported != (want == missing) {
		d.t.Errorf("%s: missing %q, want %q", what, rep.missing, path)
	}
	if want == nothing || !*everyPart && d.random.IntN(3) > 0 { // builds are slow: a sample suffices
		return
	}
	d.checkBuild(what + ", quarantined")
	if rep, err := jit.Verify(openStore(d.t, d.cacheDir)); err != nil || len(rep.Faults) > 0 {
		d.t.Errorf("%s, after a build: %v, %v", what, rep.Faults, err)
	}
}

type report struct{ faults, missing []string }

// within fails the test if f takes too long, for example because it reads from a pipe.
func within[T any](t *testing.T, what string, f func() (T, error)) T {
	t.Helper()
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := f()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			t.Errorf("%s: %v", what, r.err)
		}
		return r.value
	case <-time.After(2 * time.Minute):
		t.Fatalf("%s: does not return", what)
		panic("unreachable")
	}
}

// checkBuild builds and checks the libraries and the source tree.
func (d *damagedCache) checkBuild(what string) {
	d.t.Helper()
	got := within(d.t, what+": a build", func() ([]string, error) { return d.libraries(d.reqs) })
	if !slices.Equal(got, d.want) {
		d.t.Errorf("%s: the build returned %q, want %q", what, got, d.want)
	}
	within(d.t, what+": the sources", func() (string, error) {
		return deps.NewEmbeddedTree(os.DirFS(d.root), openStore(d.t, d.cacheDir)).Dir(context.Background())
	})
}

func (d *damagedCache) folders() []string {
	return []string{"artifact folder", "shard", "kind", "source folder"}
}

// TestVerifyReportsDamagedFiles damages each kind of file in each way. Verify has to report
// exactly the damage that matters, and the next build has to return the right libraries.
func TestVerifyReportsDamagedFiles(t *testing.T) {
	testenv.Long(t)
	d := newDamagedCache(t)
	n := 0
	for _, place := range slices.Sorted(maps.Keys(d.places)) { // sorted, so that a seed selects the same cases
		path := d.places[place]
		if slices.Contains(d.folders(), place) {
			continue
		}
		all := map[string]func(string) error{"removed": os.Remove, "with other permissions": func(p string) error { return os.Chmod(p, 0o400) },
			"with another name too": func(p string) error { return os.Link(p, filepath.Join(t.TempDir(), "twin")) }}
		for _, kinds := range []map[string]func(string) error{contents, irregulars, exchanges} {
			for what, do := range kinds {
				all[what] = do
			}
		}
		for _, what := range slices.Sorted(maps.Keys(all)) {
			do := all[what]
			if exchanges[what] != nil && (sibling(path) == "" ||
				slices.Contains([]string{"source", "lock", "log", "trimmed", "counts", "digests", "tag"}, place)) {
				continue
			}
			d.restore(d.whole)
			if data, err := os.ReadFile(path); err != nil || len(data) == 0 && contents[what] != nil {
				continue
			}
			if err := do(path); err != nil {
				t.Fatalf("%s %s: %v", place, what, err)
			}
			at, want := d.expected(place, what)
			switch what {
			case "removed":
				at, want = d.afterRemoval(place)
			case "with other permissions", "with another name too":
				at, want = "", nothing
			case "renamed to another's key":
				at = d.afterRename(place, at)
			}
			d.check(place+" "+what, at, want)
			n++
		}
	}
	t.Logf("%d cases", n)
}

// afterRename returns the path that Verify has to report after place was renamed over its sibling.
func (d *damagedCache) afterRename(place, at string) string {
	if place == "library" || place == "description" {
		return at
	}
	whole := strings.Replace(d.places[place], d.cacheDir, d.whole.folder, 1)
	return strings.Replace(sibling(whole), d.whole.folder, d.cacheDir, 1)
}

func TestVerifyReportsDamagedFolders(t *testing.T) {
	d := newDamagedCache(t)
	for _, place := range d.folders() {
		for _, what := range slices.Sorted(maps.Keys(irregulars)) {
			if what == "a folder" {
				continue
			}
			d.restore(d.whole)
			if err := irregulars[what](d.places[place]); err != nil {
				t.Fatalf("%s %s: %v", place, what, err)
			}
			d.check(place+" "+what, d.places[place], fault)
		}
	}
}

// TestBuildsReplaceDamagedEntries builds without a preceding Verify. No damaged entry may block a
// build or prevent that the build replaces it.
func TestBuildsReplaceDamagedEntries(t *testing.T) {
	testenv.Long(t)
	d := newDamagedCache(t)
	for place, path := range d.places {
		for what, do := range irregulars {
			d.restore(d.whole)
			if err := do(path); err != nil {
				t.Fatalf("%s %s: %v", place, what, err)
			}
			d.checkBuild(place + " " + what)
		}
	}
}

// TestBuildWhenAllFilesAreDamaged replaces every file of the cache by something else.
func TestBuildWhenAllFilesAreDamaged(t *testing.T) {
	testenv.Long(t)
	d := newDamagedCache(t)
	for what, do := range irregulars {
		d.restore(d.whole)
		err := filepath.WalkDir(d.cacheDir, func(p string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || strings.Contains(p, "/source/") || strings.HasSuffix(p, "CACHEDIR.TAG") || strings.Contains(p, "/.nfs/") {
				return err
			}
			return do(p)
		})
		if err != nil {
			t.Fatal(err)
		}
		d.checkBuild("each file is " + what)
		d.write("src/a.cpp", "int x = ;\n") // the failed build writes a log
		within(t, "a failing build after each file was "+what, func() ([]string, error) {
			_, err := d.libraries(d.reqs)
			if err == nil {
				return nil, fmt.Errorf("the build did not fail")
			}
			return nil, nil
		})
		d.write("src/a.cpp", testFiles["src/a.cpp"])
	}
}
