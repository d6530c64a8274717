//go:build linux

package cache

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// strange creates entries of other types in the place of a file.
var strange = map[string]func(path string) error{
	"pipe":         func(p string) error { return syscall.Mkfifo(p, 0o600) },
	"folder":       func(p string) error { return os.MkdirAll(filepath.Join(p, "sub"), 0o700) },
	"symlink":      func(p string) error { return os.Symlink("/etc/passwd", p) },
	"dead symlink": func(p string) error { return os.Symlink("nowhere", p) },
	"endless file": func(p string) error { return os.Symlink("/dev/zero", p) },
	"socket":       func(p string) error { return syscall.Mknod(p, syscall.S_IFSOCK|0o600, 0) },
}

func TestIrregularEntriesAreQuarantined(t *testing.T) {
	for name, make := range strange {
		t.Run(name, func(t *testing.T) {
			d := open(t)
			a := addArtifact(t, d, "library")
			_, path := stageFile(t, d, "object")
			blob, err := d.AddBlob(path)
			if err != nil {
				t.Fatal(err)
			}
			key := Lines{{"a", "b"}}.Key()
			if err := d.Put(Object, key, []byte("x")); err != nil {
				t.Fatal(err)
			}
			for _, p := range []string{d.recordPath(Object, key), d.BlobPath(blob), a.Path} {
				if err := errors.Join(os.Remove(p), make(p)); err != nil {
					t.Fatal(err)
				}
			}
			_, err = d.Get(Object, key)
			wantMiss(t, err, "")
			_, err = d.Blob(blob)
			wantMiss(t, err, "")
			_, err = d.Artifact(a.ID)
			wantMiss(t, err, "")
			// Each entry can be stored again at the same path.
			if err := d.Put(Object, key, []byte("x")); err != nil {
				t.Error(err)
			}
			_, path = stageFile(t, d, "object")
			if _, err := d.AddBlob(path); err != nil {
				t.Error(err)
			}
			if back := addArtifact(t, d, "library"); back.Path != a.Path {
				t.Errorf("published at %s", back.Path)
			}
			meta := filepath.Join(filepath.Dir(a.Path), artifactMeta)
			if err := errors.Join(os.Remove(meta), make(meta)); err != nil {
				t.Fatal(err)
			}
			_, err = d.Artifact(a.ID)
			wantMiss(t, err, "")
			addArtifact(t, d, "library")
		})
	}
}

func TestRecordsCannotNamePathsOutside(t *testing.T) {
	d := open(t)
	keep := addArtifact(t, d, "library")
	outside := filepath.Join(filepath.Dir(d.path), "outside")
	if err := os.Mkdir(outside, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, digest := range []string{"", ".", "..", "../../../outside", outside, strings.Repeat("A", 64), "x/" + strings.Repeat("a", 62)} {
		_, err := d.Artifact(digest)
		wantMiss(t, err, "absent")
		_, err = d.Blob(digest)
		wantMiss(t, err, "absent")
		_, err = d.Get(Object, Key(digest))
		wantMiss(t, err, "absent")
	}
	if _, err := os.Stat(outside); err != nil {
		t.Error(err)
	}
	if _, err := d.Artifact(keep.ID); err != nil {
		t.Error(err)
	}
}

// TestIntactEntriesStayWithoutFileDescriptors makes the process run out of file descriptors:
// an entry that then cannot be read is not corrupt.
func TestIntactEntriesStayWithoutFileDescriptors(t *testing.T) {
	d := open(t)
	a := addArtifact(t, d, "library")
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := limit
	none.Cur = 3
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	_, err := d.Artifact(a.ID)
	if back := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); back != nil {
		t.Fatal(back)
	}
	wantMiss(t, err, "too many open files")
	if _, err := d.Artifact(a.ID); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestForeignFoldersInside(t *testing.T) {
	d := open(t)
	other := t.TempDir()
	artifacts := filepath.Join(d.base, "artifact")
	if err := errors.Join(os.Remove(artifacts), os.Symlink(other, artifacts)); err != nil {
		t.Fatal(err)
	}
	var access *AccessError
	if _, err := Open(d.path, Options{}); !errors.As(err, &access) {
		t.Errorf("a symlink to another folder: got %v", err)
	}
	if err := errors.Join(os.Remove(artifacts), os.Mkdir(artifacts, 0o700), os.Chmod(artifacts, 0o777)); err != nil {
		t.Fatal(err)
	}
	var bad *UntrustedError
	if _, err := Open(d.path, Options{}); !errors.As(err, &bad) || bad.Exposed[0].Path != artifacts {
		t.Errorf("a folder inside that all users may write: got %v", err)
	}
}

func TestUseDuringClean(t *testing.T) {
	d := open(t)
	a := addArtifact(t, d, "library")
	if _, err := d.Clean(CleanRequest{}); err != nil {
		t.Fatal(err)
	}
	_, err := d.Use(a)
	wantMiss(t, err, "removed")

	// Either Use succeeds and the artifact stays, or the artifact is removed.
	for range 20 {
		a := addArtifact(t, d, "library")
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() { useOrMiss(t, d, a) })
		}
		wg.Go(func() {
			if _, err := d.Clean(CleanRequest{}); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
	}
}

func useOrMiss(t *testing.T, d *Dir, a Artifact) {
	release, err := d.Use(a)
	if err != nil {
		wantMiss(t, err, "removed")
		return
	}
	if _, err := d.Artifact(a.ID); err != nil {
		t.Errorf("in use, and removed: %v", err)
	}
	if err := release(); err != nil {
		t.Error(err)
	}
}

func TestUseWaitsForDryRun(t *testing.T) {
	d := open(t)
	a := addArtifact(t, d, "library")
	f, err := openRegular(filepath.Join(filepath.Dir(a.Path), artifactMeta))
	if err != nil {
		t.Fatal(err)
	}
	if err := flockFile(f, syscall.LOCK_EX); err != nil { // like a dry run
		t.Fatal(err)
	}
	time.AfterFunc(50*time.Millisecond, func() { _ = f.Close() })
	release, err := d.Use(a)
	if err != nil {
		t.Fatal(err)
	}
	if rep, err := d.Clean(CleanRequest{}); err != nil || len(rep.InUse) != 1 {
		t.Errorf("%+v, %v", rep, err)
	}
	_ = release()
}

func TestCleanKeepsEntriesOfLastBuild(t *testing.T) {
	d := open(t)
	recordKey := Lines{{"module", "x"}}.Key()
	s, path := stageFile(t, d, "library")
	a, err := d.AddArtifact(s, path, Artifact{Module: "module_x", Target: "cpu", BuildRecordKey: recordKey})
	if err != nil {
		t.Fatal(err)
	}
	// An identical library from an object with another key.
	unit := Lines{{"unit", "edited"}}.Key()
	body := `{"artifact":"` + a.ID + `","refs":[{"unit":"` + string(unit) + `"}]}`
	if err := errors.Join(d.Put(BuildRecord, recordKey, []byte(body)), d.Put(Manifest, unit, []byte("[]"))); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-2 * orphanAge)
	if err := os.Chtimes(d.recordPath(Manifest, unit), old, old); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Clean(CleanRequest{OlderThan: 24 * time.Hour}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Get(Manifest, unit); err != nil {
		t.Errorf("an entry of the last build: %v", err)
	}
	// An older artifact of the same module is removed; the build record stays.
	s, path = stageFile(t, d, "older library")
	older, err := d.AddArtifact(s, path, Artifact{Module: "module_x", Target: "cpu", BuildRecordKey: recordKey})
	if err != nil {
		t.Fatal(err)
	}
	pick := func(x Artifact) bool { return x.Digest == older.Digest }
	if rep, err := d.Clean(CleanRequest{Match: pick}); err != nil || len(rep.Removed) != 1 {
		t.Fatalf("%+v, %v", rep, err)
	}
	if _, err := d.Get(BuildRecord, recordKey); err != nil {
		t.Errorf("the build record: %v", err)
	}
	if rep, err := d.Clean(CleanRequest{Match: func(Artifact) bool { return true }}); err != nil || rep.Orphans != 1 {
		t.Errorf("all entries of only this artifact must be removed: %+v, %v", rep, err)
	}
}

func TestSymlinksAreNotFollowed(t *testing.T) {
	d := open(t)
	_, path := stageFile(t, d, "object")
	blob, err := d.AddBlob(path)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := filepath.Join(t.TempDir(), "good-for-now")
	if err := errors.Join(os.Rename(d.BlobPath(blob), elsewhere), os.Symlink(elsewhere, d.BlobPath(blob))); err != nil {
		t.Fatal(err)
	}
	_, err = d.Blob(blob)
	wantMiss(t, err, "not a regular file")
}

func TestUseSetsTime(t *testing.T) {
	d := open(t)
	a := addArtifact(t, d, "library")
	for _, by := range []time.Duration{-48 * time.Hour, 48 * time.Hour} {
		when := time.Now().Add(by)
		if err := os.Chtimes(filepath.Dir(a.Path), when, when); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Artifact(a.ID); err != nil {
			t.Fatal(err)
		}
		list, err := d.Artifacts()
		if err != nil || time.Since(list[0].Used).Abs() > time.Minute {
			t.Errorf("used now, the stored time is %v: %v", list[0].Used, err)
		}
	}
}
