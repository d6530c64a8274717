package cache

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// olderLayout makes a cache folder of version 1: a record whose checksum covers only its body,
// an artifact, counts.
func olderLayout(t *testing.T, path string, key Key) (base string) {
	t.Helper()
	base = filepath.Join(path, "v1")
	record := filepath.Join(base, "record", string(BuildRecord), string(key[:2]), string(key))
	body := `{"artifact":"x"}`
	err := errors.Join(
		os.MkdirAll(filepath.Dir(record), 0o700), os.MkdirAll(filepath.Join(base, "artifact", string(key)), 0o700),
		os.WriteFile(record, []byte(SHA256([]byte(body))+"\n"+body), 0o600),
		os.WriteFile(filepath.Join(base, "counts"), []byte("1\t0.5\tunit hit\t\n"), 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	return base
}

func TestOlderLayoutIsAMiss(t *testing.T) {
	d := open(t)
	key := Lines{{"module", "x"}}.Key()
	base := olderLayout(t, d.path, key)
	before := snapshot(t, base)
	_, err := d.Get(BuildRecord, key)
	wantMiss(t, err, absent)
	if got := d.Outdated(BuildRecord, key); got != "v1" {
		t.Errorf("outdated %q, want v1", got)
	}
	if got := d.Outdated(Object, key); got != "" {
		t.Errorf("outdated %q, want none", got)
	}
	if rep, err := d.Verify(); err != nil || len(rep.Faults)+len(rep.Missing) != 0 {
		t.Errorf("verify: %+v, %v", rep, err)
	}
	if _, err := d.Clean(CleanRequest{OlderThan: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if after := snapshot(t, base); after != before {
		t.Errorf("changed:\n%s\nbefore:\n%s", after, before)
	}
}

func TestOlderLayoutIsCleaned(t *testing.T) {
	d := open(t)
	key := Lines{{"module", "x"}}.Key()
	base := olderLayout(t, d.path, key)
	newer := filepath.Join(d.path, "v3", "record")
	if err := os.MkdirAll(newer, 0o700); err != nil {
		t.Fatal(err)
	}
	if rep, err := d.Clean(CleanRequest{DryRun: true}); err != nil || rep.Orphans != 2 || !present(base) {
		t.Errorf("dry run: %+v, %v", rep, err)
	}
	if rep, err := d.Clean(CleanRequest{}); err != nil || rep.Orphans != 2 || present(base) {
		t.Errorf("clean: %+v, %v", rep, err)
	}
	if !present(newer) {
		t.Error("a newer layout was removed")
	}
	// Trim removes a layout that was unused for a week.
	for age, want := range map[time.Duration]bool{6 * day: true, 8 * day: false} {
		olderLayout(t, d.path, key)
		when := time.Now().Add(-age)
		err := filepath.WalkDir(base, func(path string, _ fs.DirEntry, err error) error {
			return errors.Join(err, os.Chtimes(path, when, when))
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.trim(Limits{}); err != nil || present(base) != want {
			t.Errorf("unused for %s: kept %v, %v, want %v", age, present(base), err, want)
		}
	}
}

func TestReadOnlyCacheOfAnotherLayout(t *testing.T) {
	path := filepath.Join(t.TempDir(), "made")
	olderLayout(t, path, Lines{{"module", "x"}}.Key())
	_, err := OpenReadOnly(path, Options{})
	var none *ReadOnlyError
	var layout *LayoutError
	if !errors.As(err, &none) || !errors.As(err, &layout) || layout.Found != "v1" || !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("got %v, want a ReadOnlyError for another layout", err)
	}
	for _, want := range []string{path, "layout v1, expected v2", "aiterctl build --output " + path} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not contain %q: %v", want, err)
		}
	}
	if name, err := FindForeign(path); name != "" || err != nil {
		t.Errorf("foreign: %q, %v", name, err)
	}
}
