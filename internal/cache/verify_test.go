//go:build linux

package cache

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestVerifyDuringBuildsAndCleaning checks that entries that builds publish and cleaners remove
// meanwhile are not reported as damaged.
func TestVerifyDuringBuildsAndCleaning(t *testing.T) {
	d := open(t)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for n := range 2 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					publishSome(t, d, fmt.Sprint(n, i%7))
				}
			}
		})
	}
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if _, err := d.Clean(CleanRequest{}); err != nil {
					t.Error(err)
				}
			}
		}
	})
	checked := 0
	for start := time.Now(); checked < 2000 && time.Since(start) < 20*time.Second; {
		rep, err := d.Verify()
		if err != nil || len(rep.Faults) > 0 {
			t.Errorf("faults %+v, %v", rep.Faults, err)
		}
		checked += rep.Checked
	}
	close(stop)
	wg.Wait()
	if left, _ := os.ReadDir(filepath.Join(d.base, "quarantine")); len(left) > 0 {
		t.Errorf("quarantined: %v", left)
	}
	if checked < 100 {
		t.Errorf("only %d entries were checked: the test tests nothing", checked)
	}
}

// publishSome publishes entries like a build.
func publishSome(t *testing.T, d *Dir, content string) {
	s, err := d.NewStage()
	if err != nil {
		t.Error(err)
		return
	}
	defer s.Close()
	key := Lines{{"content", content}}.Key()
	if err := os.WriteFile(s.File("object"), []byte(content), 0o600); err != nil {
		t.Error(err)
	}
	digest, err := d.AddBlob(s.File("object"))
	if err := errors.Join(err, d.Put(Object, key, []byte(digest+" 0.5"))); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(s.File("library"), []byte(content), 0o600); err != nil {
		t.Error(err)
	}
	a, err := d.AddArtifact(s, s.File("library"), Artifact{Module: "m", Target: "cpu", LinkKey: key,
		Units: []Ref{{Result: key, Object: digest}}})
	if err := errors.Join(err, d.Put(Linked, key, []byte(a.ID))); err != nil {
		t.Error(err)
	}
	d.Count(Count{Event: UnitMiss, N: 1})
}

// TestVerifyReportsMissingFiles checks the lists of missing files: the files, what names them, and
// whether they count as damage.
func TestVerifyReportsMissingFiles(t *testing.T) {
	d := open(t)
	publishSome(t, d, "x")
	key := Lines{{"content", "x"}}.Key()
	gaps := func(what string, want ...string) {
		t.Helper()
		rep, err := d.Verify()
		if err != nil || len(rep.Faults) > 0 || len(rep.Missing) != len(want) {
			t.Fatalf("%s: %+v, %v, want %v missing", what, rep, err, want)
		}
		for i, f := range rep.Missing {
			if !strings.Contains(f.Path+": "+f.Reason, want[i]) {
				t.Errorf("%s: %+v, want %s", what, f, want[i])
			}
		}
	}
	gaps("whole")
	if err := os.Remove(d.BlobPath(SHA256([]byte("x")))); err != nil {
		t.Fatal(err)
	}
	gaps("object gone", "missing: named by m for cpu")
	if err := d.Forget(Linked, key); err != nil {
		t.Fatal(err)
	}
	gaps("and the link's record", "blob/", "record/linked/")
	list, err := d.Artifacts()
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	if err := errors.Join(os.RemoveAll(filepath.Dir(list[0].Path)), d.Put(Linked, key, []byte(list[0].ID))); err != nil {
		t.Fatal(err)
	}
	gaps("and the artifact", "artifact/", "named by the record ")
	if _, err := d.Clean(CleanRequest{}); err != nil {
		t.Fatal(err)
	}
	gaps("cleaned")
}

// TestLinkedRecordOfOtherArtifactStays checks that removing an artifact keeps a record that leads
// to another one.
func TestLinkedRecordOfOtherArtifactStays(t *testing.T) {
	d := open(t)
	key := Lines{{"link", "x"}}.Key()
	var list []Artifact
	for _, content := range []string{"first", "second"} { // as from a nondeterministic linker, with --force
		s, path := stageFile(t, d, content)
		a, err := d.AddArtifact(s, path, Artifact{Module: "m", Target: "cpu", LinkKey: key})
		if err := errors.Join(err, d.Put(Linked, key, []byte(a.ID))); err != nil {
			t.Fatal(err)
		}
		list = append(list, a)
	}
	if rep, err := d.Clean(CleanRequest{Match: func(a Artifact) bool { return a.ID == list[0].ID }}); err != nil || len(rep.Removed) != 1 {
		t.Fatalf("%+v, %v", rep, err)
	}
	if id, err := d.Get(Linked, key); err != nil || string(id) != list[1].ID {
		t.Errorf("the record leads to %q, %v; want %s", id, err, list[1].ID)
	}
}

// unprivileged is the id of a user without rights.
const unprivileged = 65534

// TestUnreadableIsReportedAndKept verifies as a user who may not read a file and a folder.
func TestUnreadableIsReportedAndKept(t *testing.T) {
	dir, err := os.MkdirTemp("", "aiter-test-") // t.TempDir lies in a folder that only root can enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	d, err := Open(filepath.Join(dir, "cache"), Options{TrustForeign: true})
	if err != nil {
		t.Fatal(err)
	}
	publishSome(t, d, "x")
	blob, records := d.BlobPath(SHA256([]byte("x"))), filepath.Join(d.base, "record", "object")
	err = errors.Join(os.Chmod(dir, 0o755), filepath.WalkDir(d.path, func(path string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Chmod(path, 0o755))
	}), os.Chmod(blob, 0), os.Chmod(records, 0))
	if err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(records, 0o700)
	rep, err := asUnprivileged(t, d)
	if err != nil || len(rep.Faults) != 2 {
		t.Fatalf("%+v, %v", rep, err)
	}
	for i, path := range []string{blob, records} {
		if f := rep.Faults[i]; f.Path != path || !f.Kept || !strings.Contains(f.Reason, "permission denied") {
			t.Errorf("%+v, want %s kept", f, path)
		}
	}
}

// asUnprivileged runs Verify; if this process is root, on a thread without root's rights.
func asUnprivileged(t *testing.T, d *Dir) (rep VerifyReport, err error) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if os.Geteuid() == 0 {
			if _, _, errno := syscall.RawSyscall(syscall.SYS_SETUID, unprivileged, 0, 0); errno != 0 {
				err = errno
				return
			}
		}
		rep, err = d.Verify()
	}()
	<-done
	return rep, err
}

// TestHugeFilesAreDamaged checks that neither Verify nor lookups read a file into memory that is
// larger than any that the cache writes.
func TestHugeFilesAreDamaged(t *testing.T) {
	const size = 1 << 40 // bytes, of a file without blocks
	key := Lines{{"a", "b"}}.Key()
	places := map[string]func(d *Dir, a Artifact) (path, reported string){
		"record":      func(d *Dir, _ Artifact) (string, string) { p := d.recordPath(Object, key); return p, p },
		"description": func(_ *Dir, a Artifact) (string, string) { p := filepath.Dir(a.Path); return p + "/" + artifactMeta, p },
		"counts":      func(d *Dir, _ Artifact) (string, string) { return d.countsPath(), d.countsPath() },
		"tag":         func(d *Dir, _ Artifact) (string, string) { return d.tagPath(), d.tagPath() },
	}
	uses := map[string]func(d *Dir, a Artifact){
		"verify": func(*Dir, Artifact) {},
		"use": func(d *Dir, a Artifact) {
			if _, err := d.Get(Object, key); err != nil {
				wantMiss(t, err, "expected at most")
			}
			if _, err := d.Artifact(a.ID); err != nil {
				wantMiss(t, err, "expected at most")
			}
			d.Count(Count{Event: UnitHit, N: 1})
		},
	}
	for place, find := range places {
		for how, use := range uses {
			var faults []Fault
			d, err := Open(t.TempDir(), Options{Faulty: func(f Fault) { faults = append(faults, f) }})
			if err != nil {
				t.Fatal(err)
			}
			a := addArtifact(t, d, "library")
			d.Count(Count{Event: UnitMiss, N: 1})
			path, reported := find(d, a)
			if err := errors.Join(d.Put(Object, key, []byte("x")), os.Truncate(path, size)); err != nil {
				t.Fatal(err)
			}
			use(d, a)
			if rep, err := d.Verify(); err != nil || how == "verify" && len(rep.Faults) != 1 {
				t.Errorf("%s: %+v, %v", place, rep, err)
			}
			if len(faults) != 1 || faults[0].Path != reported {
				t.Errorf("%s, %s: reported %+v, want %s", place, how, faults, reported)
			}
		}
	}
}

// TestDamagedFolderInReadOnlyCacheIsOneFault checks that files below a damaged folder are not
// reported too.
func TestDamagedFolderInReadOnlyCacheIsOneFault(t *testing.T) {
	f := newFilled(t)
	if err := errors.Join(os.RemoveAll(f.dir.base+"/artifact"), os.WriteFile(f.dir.base+"/artifact", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	d := open(t)
	readOnly, err := OpenReadOnly(f.dir.path, Options{TrustForeign: true})
	if err != nil {
		t.Fatal(err)
	}
	d.AddReadOnly(readOnly)
	if rep, err := d.Verify(); err != nil || len(rep.Faults) != 1 {
		t.Errorf("%+v, %v, want one fault", rep.Faults, err)
	}
}
