//go:build linux

package cache

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Entries that an attacker could put into a cache still belong to her after the command of the
// error. They are neither read nor loaded.
func TestForeignEntriesAreNotTrusted(t *testing.T) {
	needRoot(t)
	key := Lines{{"a", "b"}}.Key()
	plant := map[string]func(f filled) (path string){
		"record":          func(f filled) string { return f.dir.recordPath(Object, key) },
		"record's folder": func(f filled) string { return filepath.Dir(f.dir.recordPath(Object, key)) },
		"kind's folder":   func(f filled) string { return filepath.Join(f.dir.base, "record", string(Object)) },
		"object":          func(f filled) string { return f.dir.BlobPath(f.blob) },
		"description":     func(f filled) string { return filepath.Join(filepath.Dir(f.artifact.Path), artifactMeta) },
		"library":         func(f filled) string { return f.artifact.Path },
		"artifact":        func(f filled) string { return filepath.Dir(f.artifact.Path) },
	}
	spoils := map[string]func(path string) error{
		"foreign":  func(path string) error { return os.Chown(path, other, other) },
		"for all":  func(path string) error { return os.Chmod(path, 0o777) },
		"by group": func(path string) error { return errors.Join(os.Chown(path, 0, other), os.Chmod(path, 0o770)) },
	}
	for name, at := range plant {
		for how, spoil := range spoils {
			for _, readOnly := range []bool{false, true} {
				t.Run(name+" "+how, func(t *testing.T) { checkPlanted(t, at, spoil, key, readOnly) })
			}
		}
	}
}

func checkPlanted(t *testing.T, at func(filled) string, spoil func(string) error, key Key, readOnly bool) {
	f := newFilled(t)
	path := at(f)
	if err := spoil(path); err != nil {
		t.Fatal(err)
	}
	var faults []Fault
	opts := Options{Faulty: func(x Fault) { faults = append(faults, x) }}
	d, err := Open(f.dir.path, opts)
	if readOnly {
		d, err = OpenReadOnly(f.dir.path, opts)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, record := d.Get(Object, key)
	_, object := d.Blob(f.blob)
	_, library := d.Artifact(f.artifact.ID)
	_, _, loaded := d.OpenArtifact(f.artifact.ID)
	_, known := d.KnownArtifact(f.artifact.ID, func(string) (string, error) { return f.artifact.Digest, nil })
	refused := 0
	for _, err := range []error{record, object, library, loaded, known} {
		if as[*MissError](err) {
			refused++
		}
	}
	if want := map[bool]int{true: 3, false: 1}[strings.Contains(path, "/artifact/")]; refused != want {
		t.Errorf("%d of %d reads refused: %v, %v, %v, %v, %v", refused, want, record, object, library, loaded, known)
	}
	if len(faults) == 0 || !strings.Contains(faults[0].Reason, path+" (owner ") {
		t.Errorf("reported: %v", faults)
	}
	if readOnly {
		return
	}
	// Each entry can be stored again at the same path.
	if err := d.Put(Object, key, []byte("x")); err != nil {
		t.Error(err)
	}
	_, again := d.Get(Object, key)
	_, file := stageFile(t, d, "object")
	_, added := d.AddBlob(file)
	_, object = d.Blob(f.blob)
	_, library = d.Artifact(addArtifact(t, d, "library").ID)
	if err := errors.Join(again, added, object, library); err != nil {
		t.Errorf("made again: %v", err)
	}
}

// A memo that another user may have written is not used.
func TestForeignMemoIsQuarantined(t *testing.T) {
	needRoot(t)
	f := newFilled(t)
	memo := filepath.Join(f.dir.base, "filehash")
	if err := errors.Join(os.WriteFile(memo, []byte("lies"), 0o600), os.Chown(memo, other, other)); err != nil {
		t.Fatal(err)
	}
	readOnly, err := OpenReadOnly(f.dir.path, Options{})
	if err != nil || readOnly.MemoPath() != "" {
		t.Errorf("of a read-only cache: %q, %v", readOnly.MemoPath(), err)
	}
	if got := f.dir.MemoPath(); got != memo || present(memo) {
		t.Errorf("%s was not removed", got)
	}
}

// The umask decides the mode that compilers give a library.
func TestPublishedFilesAreWritableByOwnerOnly(t *testing.T) {
	d := open(t)
	s, path := stageFile(t, d, "library")
	_, object := stageFile(t, d, "object")
	if err := errors.Join(os.Chmod(path, 0o777), os.Chmod(object, 0o666)); err != nil {
		t.Fatal(err)
	}
	a, errA := d.AddArtifact(s, path, Artifact{Module: "module_x", Target: "cpu"})
	digest, errB := d.AddBlob(object)
	if err := errors.Join(errA, errB); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{a.Path, d.BlobPath(digest)} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o022 != 0 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
}

// Another process replaces the library all the time: the returned file must be the hashed one.
func TestOpenArtifactReadsTheFileThatItHashed(t *testing.T) {
	f := newFilled(t)
	d, err := OpenReadOnly(f.dir.path, Options{TrustForeign: true}) // a read-only cache quarantines nothing
	if err != nil {
		t.Fatal(err)
	}
	evil := f.artifact.Path + ".evil"
	if err := os.WriteFile(evil, []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var attack sync.WaitGroup
	attack.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, evil, unix.AT_FDCWD, f.artifact.Path, unix.RENAME_EXCHANGE)
			}
		}
	})
	good := 0
	for start := time.Now(); time.Since(start) < time.Second; {
		a, library, err := d.OpenArtifact(f.artifact.ID)
		if err != nil {
			if library != nil {
				t.Fatal("an error, and a file")
			}
			continue
		}
		data := make([]byte, 7)
		if _, err := library.ReadAt(data, 0); err != nil || string(data) != "library" || library.Name() != a.Path {
			t.Fatalf("%s: %q, %v", library.Name(), data, err)
		}
		good++
		_ = library.Close()
	}
	close(done)
	attack.Wait()
	if good == 0 {
		t.Error("the library was never returned")
	}
}
