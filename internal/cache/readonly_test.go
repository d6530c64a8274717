package cache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// filled is a cache with one entry of each kind.
type filled struct {
	dir      *Dir
	artifact Artifact
	blob     string
	key      Key
}

func newFilled(t *testing.T) filled {
	t.Helper()
	f := filled{dir: open(t), key: Lines{{"a", "b"}}.Key()}
	f.artifact = addArtifact(t, f.dir, "library")
	_, path := stageFile(t, f.dir, "object")
	var err error
	if f.blob, err = f.dir.AddBlob(path); err != nil {
		t.Fatal(err)
	}
	if err := f.dir.Put(Object, f.key, []byte("record")); err != nil {
		t.Fatal(err)
	}
	return f
}

// over opens an empty cache with f as its read-only cache, and appends to faults.
func (f filled) over(t *testing.T, faults *[]Fault) *Dir {
	t.Helper()
	readOnly, err := OpenReadOnly(f.dir.path, Options{Faulty: func(x Fault) { *faults = append(*faults, x) }})
	if err != nil {
		t.Fatal(err)
	}
	d := open(t)
	d.AddReadOnly(readOnly)
	return d
}

// snapshot returns every name below a folder with its mode, size and time.
func snapshot(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil {
			fmt.Fprintln(&b, path, info.Mode(), info.Size(), info.ModTime())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestReadOnlyCachesAreNeverWritten(t *testing.T) {
	f := newFilled(t)
	var faults []Fault
	d := f.over(t, &faults)
	before := snapshot(t, f.dir.path)
	if data, err := d.Get(Object, f.key); err != nil || string(data) != "record" {
		t.Errorf("record: %q, %v", data, err)
	}
	if path, err := d.Blob(f.blob); err != nil || path != f.dir.BlobPath(f.blob) {
		t.Errorf("object: %s, %v", path, err)
	}
	a, err := d.Artifact(f.artifact.ID)
	if err != nil || a.Path != f.artifact.Path || a.ReadOnly != f.dir.path {
		t.Errorf("artifact: %+v, %v", a, err)
	}
	release, err := d.Use(a)
	if err != nil {
		t.Error(err)
	} else if err := release(); err != nil {
		t.Error(err)
	}
	if have := addArtifact(t, d, "library"); have.ReadOnly == "" {
		t.Errorf("an entry of a read-only cache was stored again: %+v", have)
	}
	if rep, err := d.Clean(CleanRequest{}); err != nil || len(rep.Removed) != 0 {
		t.Errorf("clean: %+v, %v", rep, err)
	}
	d.Count(Count{Event: UnitHit, N: 1})
	if err := d.Put(Object, f.key, []byte("own")); err != nil {
		t.Fatal(err)
	}
	if all := d.GetAll(Object, f.key); len(all) != 2 || string(all[0]) != "own" || string(all[1]) != "record" {
		t.Errorf("own first, then the read-only cache's: %q", all)
	}
	if after := snapshot(t, f.dir.path); after != before || len(faults) != 0 {
		t.Errorf("the read-only cache was written to:\n%s\nbefore:\n%s\nfaults %v", after, before, faults)
	}
	_, err = d.Get(Failure, f.key)
	wantMiss(t, err, "absent")
}

func TestReadOnlyCacheRefusesWrites(t *testing.T) {
	f := newFilled(t)
	readOnly, err := OpenReadOnly(f.dir.path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, f.dir.path)
	var access *AccessError
	if err := readOnly.Put(Object, f.key, nil); !errors.As(err, &access) {
		t.Errorf("Put: %v", err)
	}
	if _, err := readOnly.Clean(CleanRequest{}); !errors.As(err, &access) {
		t.Errorf("Clean: %v", err)
	}
	if _, err := readOnly.TryLock(LockRequest{Key: f.key}); !errors.As(err, &access) {
		t.Errorf("TryLock: %v", err)
	}
	_ = readOnly.Forget(Object, f.key)
	readOnly.Sweep()
	readOnly.Count(Count{Event: UnitHit, N: 1})
	if rep, err := readOnly.Trim(); err != nil || rep.Due {
		t.Errorf("Trim: %+v, %v", rep, err)
	}
	if after := snapshot(t, f.dir.path); after != before {
		t.Errorf("written to:\n%s\nbefore:\n%s", after, before)
	}
}

func TestDamageInReadOnlyCacheIsIgnored(t *testing.T) {
	f := newFilled(t)
	for _, path := range []string{f.artifact.Path, f.dir.BlobPath(f.blob), f.dir.recordPath(Object, f.key)} {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		data[0] ^= 1
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var faults []Fault
	d := f.over(t, &faults)
	before := snapshot(t, f.dir.path)
	_, err := d.Get(Object, f.key)
	wantMiss(t, err, "absent")
	_, err = d.Blob(f.blob)
	wantMiss(t, err, "absent")
	_, err = d.Artifact(f.artifact.ID)
	wantMiss(t, err, "corrupt")
	if len(faults) != 3 || snapshot(t, f.dir.path) != before {
		t.Errorf("faults %v", faults)
	}
	if rep, err := d.Verify(); err != nil || len(rep.Faults) != 3 {
		t.Errorf("verify: %+v, %v", rep, err)
	}
	if own := addArtifact(t, d, "library"); own.ReadOnly != "" {
		t.Errorf("made again: %+v", own)
	}
}

func TestForgottenRecordsOfReadOnlyCacheAreIgnored(t *testing.T) {
	f := newFilled(t)
	var faults []Fault
	d := f.over(t, &faults)
	if err := d.Forget(Object, f.key); err != nil {
		t.Fatal(err)
	}
	_, err := d.Get(Object, f.key)
	wantMiss(t, err, "absent")
}

func TestRefusedReadOnlyCaches(t *testing.T) {
	tests := []struct {
		name   string
		spoil  func(f filled) error
		fix    string
		asRoot bool
	}{
		{"others may write", func(f filled) error { return os.Chmod(f.dir.path, 0o777) }, "run: chmod go-w %s;", false},
		{"others may write inside", func(f filled) error { return os.Chmod(filepath.Join(f.dir.base, "record"), 0o775) },
			"run: chmod -R go-w %s/v2;", false},
		{"a third user's", func(f filled) error { return os.Chown(f.dir.base, 12345, 12345) }, "run: chown -R root %s/v2;", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.asRoot && os.Geteuid() != 0 {
				t.Skip("needs root to give a folder away")
			}
			f := newFilled(t)
			if err := tt.spoil(f); err != nil {
				t.Fatal(err)
			}
			_, err := OpenReadOnly(f.dir.path, Options{})
			var bad *UntrustedError
			if want := fmt.Sprintf(tt.fix, f.dir.path); !errors.As(err, &bad) || !bad.ReadOnly || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want an UntrustedError that contains %q", err, want)
			}
			if _, err := OpenReadOnly(f.dir.path, Options{TrustForeign: true}); err != nil {
				t.Errorf("trusted explicitly: %v", err)
			}
		})
	}
	var none *ReadOnlyError
	if _, err := OpenReadOnly(t.TempDir(), Options{}); !errors.As(err, &none) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that is no cache: %v", err)
	}
}

func TestLibraryWritableByOthersIsNotUsed(t *testing.T) {
	for _, inside := range []string{".", "module_x.so"} {
		f := newFilled(t)
		if err := os.Chmod(filepath.Join(filepath.Dir(f.artifact.Path), inside), 0o777); err != nil {
			t.Fatal(err)
		}
		var faults []Fault
		_, err := f.over(t, &faults).Artifact(f.artifact.ID)
		wantMiss(t, err, "chmod -R go-w")
		if len(faults) != 1 || !strings.Contains(faults[0].Reason, "chmod -R go-w") {
			t.Errorf("faults %v", faults)
		}
	}
}

func TestPrebuiltFolderIsReadableByAll(t *testing.T) {
	f := newFilled(t)
	if err := f.dir.MakeReadable(); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(f.dir.path, func(path string, e fs.DirEntry, err error) error {
		info, bad := e.Info()
		if bad == nil && info.Mode().Perm()&0o044 != 0o044 || info.Mode().Perm()&0o022 != 0 {
			t.Errorf("%s has the mode %v", path, info.Mode())
		}
		return errors.Join(err, bad)
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenReadOnly(f.dir.path, Options{}); err != nil {
		t.Error(err)
	}
}
