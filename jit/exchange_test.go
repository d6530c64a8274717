//go:build linux

package jit_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/jit"
)

// Two modules whose records are exchanged.
const twinConfig = oneUnit + `
[module.module_twin]
include = ["include"]
[[module.module_twin.source]]
path = "src/twin.cpp"
`

func twins(t *testing.T) (*fixture, []jit.Request) {
	t.Helper()
	b := oneUnitFixture(t)
	b.write("config.toml", twinConfig)
	b.write("src/twin.cpp", "extern \"C\" int demo_a() { return 7; }\n")
	first := demo(t)
	second := first
	second.Module = "module_twin"
	return b, []jit.Request{first, second}
}

// libraries builds and returns the digests of the libraries, in the order of the requests.
func (b *fixture) libraries(reqs []jit.Request, change ...func(*jit.Options)) ([]string, error) {
	b.t.Helper()
	results, err := b.manager(change...).Build(context.Background(), reqs...)
	var digests []string
	for _, r := range results {
		if r.Err == nil && (r.Artifact.Module != r.Module || filepath.Base(r.Artifact.Path) != r.Module+".so") {
			b.t.Errorf("%s returned %s of %s", r.Request, r.Artifact.Path, r.Artifact.Module)
		}
		digests = append(digests, r.Artifact.Digest)
	}
	return digests, err
}

// records returns the paths of all records below a cache folder, by kind.
func records(t *testing.T, dir string) map[string][]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "v2/record/*/*/*"))
	if err != nil || len(paths) < 10 {
		t.Fatalf("records %q, %v", paths, err)
	}
	byKind := map[string][]string{}
	for _, p := range paths {
		kind := filepath.Base(filepath.Dir(filepath.Dir(p)))
		byKind[kind] = append(byKind[kind], p)
	}
	return byKind
}

// pairs returns all pairs of records of the same kind, and one pair for each two kinds.
func pairs(byKind map[string][]string) (out [][2]string) {
	var firsts []string
	for _, paths := range byKind {
		for i, a := range paths {
			for _, b := range paths[i+1:] {
				out = append(out, [2]string{a, b})
			}
		}
		for _, other := range firsts {
			out = append(out, [2]string{paths[0], other})
		}
		firsts = append(firsts, paths[0])
	}
	return out
}

func exchange(t *testing.T, p [2]string) {
	t.Helper()
	aside := p[0] + ".aside"
	if err := errors.Join(os.Rename(p[0], aside), os.Rename(p[1], p[0]), os.Rename(aside, p[1])); err != nil {
		t.Fatal(err)
	}
}

// verify checks that Verify reports exactly these paths as damaged.
func verify(t *testing.T, what string, store *cache.Dir, want ...string) {
	t.Helper()
	rep, err := jit.Verify(store)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, f := range rep.Faults {
		got[f.Path] = f.Reason
	}
	for _, path := range want {
		if got[path] == "" {
			t.Errorf("%s: %s is not among the reported faults %v", what, path, rep.Faults)
		}
		delete(got, path)
	}
	if len(got) > 0 {
		t.Errorf("%s: undamaged paths are reported: %v", what, got)
	}
}

func openStore(t *testing.T, dir string) *cache.Dir {
	t.Helper()
	store, err := cache.Open(dir, cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// TestExchangedRecords exchanges pairs of records. Each build has to return its own library, and
// Verify has to report both records.
func TestExchangedRecords(t *testing.T) {
	testenv.Long(t)
	b, reqs := twins(t)
	want, err := b.libraries(reqs)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"src/a.cpp", "src/twin.cpp"} { // failures are records too
		good, err := os.ReadFile(filepath.Join(b.root, name))
		if err != nil {
			t.Fatal(err)
		}
		b.write(name, "int x = ;\n")
		if _, err := b.libraries(reqs); err == nil {
			t.Fatal("the build did not fail")
		}
		b.write(name, string(good))
	}
	whole := b.copyCache()
	list := pairs(records(t, b.cacheDir))
	if len(list) < 20 {
		t.Fatalf("only %d pairs", len(list))
	}
	for _, p := range list {
		what := shortName(p[0]) + " and " + shortName(p[1])
		b.restore(whole)
		exchange(t, p)
		if got, err := b.libraries(reqs); err != nil || got[0] != want[0] || got[1] != want[1] {
			t.Errorf("%s exchanged: the build returned %v, %v; want %v", what, got, err, want)
		}
		b.restore(whole)
		exchange(t, p)
		verify(t, what, openStore(t, b.cacheDir), p[0], p[1])
		if got, err := b.libraries(reqs); err != nil || got[0] != want[0] || got[1] != want[1] {
			t.Errorf("%s quarantined: the build returned %v, %v; want %v", what, got, err, want)
		}
		verify(t, what+" after a build", openStore(t, b.cacheDir))
	}
	t.Logf("%d pairs", len(list))
}

// snapshot is a copy of a cache.
type snapshot struct {
	folder string
	states map[string]fileState // of the cache after the copy or the last restore, by relative path
}

// fileState changes if a file is written, replaced, linked or gets another mode.
type fileState struct {
	mode     uint32
	inode    uint64
	size     int64
	modified syscall.Timespec
	changed  syscall.Timespec
}

func stateOf(path string) (fileState, error) {
	var st syscall.Stat_t
	err := syscall.Lstat(path, &st)
	return fileState{st.Mode, st.Ino, st.Size, st.Mtim, st.Ctim}, err
}

// copyCache returns a copy of the cache, from which restore can restore it.
func (b *fixture) copyCache() *snapshot {
	b.t.Helper()
	whole := &snapshot{folder: filepath.Join(b.t.TempDir(), "whole"), states: map[string]fileState{}}
	if err := os.CopyFS(whole.folder, os.DirFS(b.cacheDir)); err != nil {
		b.t.Fatal(err)
	}
	b.restore(whole)
	return whole
}

// restore replaces what differs from the copy.
func (b *fixture) restore(whole *snapshot) {
	b.t.Helper()
	if err := errors.Join(b.removeOthers(whole), b.putBack(whole)); err != nil {
		b.t.Fatal(err)
	}
}

// removeOthers removes the files and folders that the copy lacks or has with another state.
func (b *fixture) removeOthers(whole *snapshot) error {
	return filepath.WalkDir(b.cacheDir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(b.cacheDir, path)
		state, err := stateOf(path)
		if known, ok := whole.states[rel]; ok && known == state || e.IsDir() && isDir(filepath.Join(whole.folder, rel)) {
			return err
		}
		if err := os.RemoveAll(path); err != nil || !e.IsDir() {
			return err
		}
		return filepath.SkipDir
	})
}

// putBack copies what is missing.
func (b *fixture) putBack(whole *snapshot) error {
	return filepath.WalkDir(whole.folder, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(whole.folder, path)
		to := filepath.Join(b.cacheDir, rel)
		if e.IsDir() {
			return errors.Join(os.MkdirAll(to, 0o700), os.Chmod(to, 0o700))
		}
		if _, err := os.Lstat(to); err == nil {
			return nil
		}
		data, err := os.ReadFile(path)
		if err = errors.Join(err, os.WriteFile(to, data, must(e.Info()).Mode().Perm())); err != nil {
			return err
		}
		whole.states[rel], err = stateOf(to)
		return err
	})
}

func isDir(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}

// shortName returns the kind of a record and the start of its key.
func shortName(path string) string {
	return filepath.Base(filepath.Dir(filepath.Dir(path))) + " " + filepath.Base(path)[:8]
}

// TestExchangedRecordsOfPrebuiltCache checks that a build without a compiler returns its own
// library or none.
func TestExchangedRecordsOfPrebuiltCache(t *testing.T) {
	testenv.Long(t)
	b, reqs := twins(t)
	made := b.prebuild(reqs...)
	want, err := b.libraries(reqs, b.over(made), withoutCompiler)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pairs(records(t, made)) {
		what := shortName(p[0]) + " and " + shortName(p[1])
		exchange(t, p)
		got, err := b.libraries(reqs, b.over(made), withoutCompiler)
		for i := range want {
			if got[i] != want[i] && got[i] != "" {
				t.Errorf("%s exchanged: the build returned %v, %v; want %v or errors", what, got, err, want)
			}
		}
		if got, err := b.libraries(reqs, b.over(made)); err != nil || got[0] != want[0] || got[1] != want[1] {
			t.Errorf("%s exchanged: with a compiler the build returned %v, %v; want %v", what, got, err, want)
		}
		store := openStore(t, filepath.Join(t.TempDir(), "cache"))
		readOnly, err := cache.OpenReadOnly(made, cache.Options{})
		if err != nil {
			t.Fatal(err)
		}
		store.AddReadOnly(readOnly)
		verify(t, what, store, p[0], p[1])
		exchange(t, p)
	}
}

// TestLinkedRecordOfAnotherModule checks that an intact record is quarantined if its artifact
// belongs to another module.
func TestLinkedRecordOfAnotherModule(t *testing.T) {
	b, reqs := twins(t)
	want, err := b.libraries(reqs)
	if err != nil {
		t.Fatal(err)
	}
	var reported []cache.Fault
	store, err := cache.Open(b.cacheDir, cache.Options{Faulty: func(f cache.Fault) { reported = append(reported, f) }})
	if err != nil {
		t.Fatal(err)
	}
	linked := records(t, b.cacheDir)["linked"]
	key := func(i int) cache.Key { return cache.Key(filepath.Base(linked[i])) }
	id, err := store.Get(cache.Linked, key(0))
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Put(cache.Linked, key(1), id); err != nil {
		t.Fatal(err)
	}
	got, err := b.libraries(reqs, func(o *jit.Options) { o.Cache = store })
	if err != nil || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("the build returned %v, %v; want %v", got, err, want)
	}
	if len(reported) != 1 || reported[0].Path != linked[1] || !strings.Contains(reported[0].Reason, "it leads to module_") {
		t.Errorf("reported %+v, want the record of another module", reported)
	}
}
