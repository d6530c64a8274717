package cache

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func open(t *testing.T) *Dir {
	t.Helper()
	d, err := Open(filepath.Join(t.TempDir(), "cache"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// stageFile makes a file with that content in a new stage.
func stageFile(t *testing.T, d *Dir, content string) (*Stage, string) {
	t.Helper()
	s, err := d.NewStage()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	path := s.File("file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return s, path
}

func addArtifact(t *testing.T, d *Dir, content string) Artifact {
	t.Helper()
	s, path := stageFile(t, d, content)
	a, err := d.AddArtifact(s, path, Artifact{Module: "module_x", Target: "cpu", Built: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func wantMiss(t *testing.T, err error, reason string) {
	t.Helper()
	var miss *MissError
	if !errors.As(err, &miss) || !strings.Contains(miss.Reason, reason) {
		t.Errorf("got %v, want a MissError with reason %q", err, reason)
	}
}

func TestKeyLinesAreDistinct(t *testing.T) {
	a := Lines{{"flag", "-O2\"\n\"x\"\t\"y"}}
	b := Lines{{"flag", "-O2"}, {"x", "y"}}
	if a.Key() == b.Key() {
		t.Error("a value with quotes and a line end gives the key of two lines")
	}
	if (Lines{{"a", "b"}}).Key() == (Lines{{"ab", ""}}).Key() {
		t.Error("the key does not depend on where a label ends")
	}
}

func TestRecords(t *testing.T) {
	d := open(t)
	key := Lines{{"a", "b"}}.Key()
	_, err := d.Get(Object, key)
	wantMiss(t, err, "absent")
	if err := d.Put(Object, key, []byte("one\ntwo")); err != nil {
		t.Fatal(err)
	}
	if got, err := d.Get(Object, key); err != nil || string(got) != "one\ntwo" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := d.Get(Linked, key); err == nil {
		t.Error("a record is found under another kind")
	}
	if err := d.Forget(Object, key); err != nil {
		t.Fatal(err)
	}
	if err := d.Forget(Object, key); err != nil {
		t.Errorf("forgetting twice: %v", err)
	}
}

func TestFlippedBitsOfRecordAreDetected(t *testing.T) {
	d := open(t)
	key := Lines{{"a", "b"}}.Key()
	path := d.recordPath(Object, key)
	if err := d.Put(Object, key, []byte("0123")); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range good {
		bad := append([]byte{}, good...)
		bad[i] ^= 1
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := d.Get(Object, key)
		wantMiss(t, err, "corrupt")
		if _, err := os.Stat(path); err == nil {
			t.Fatalf("byte %d: the corrupt record was not removed", i)
		}
	}
}

func TestBlobs(t *testing.T) {
	d := open(t)
	_, path := stageFile(t, d, "object")
	digest, err := d.AddBlob(path)
	if err != nil {
		t.Fatal(err)
	}
	if digest != SHA256([]byte("object")) {
		t.Errorf("digest %s", digest)
	}
	got, err := d.Blob(digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(got, []byte("objecu"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = d.Blob(digest)
	wantMiss(t, err, "corrupt")
	_, err = d.Blob(digest)
	wantMiss(t, err, "absent")
}

func TestArtifacts(t *testing.T) {
	d := open(t)
	a := addArtifact(t, d, "library")
	if filepath.Base(a.Path) != "module_x.so" || a.Size != 7 {
		t.Errorf("artifact %+v", a)
	}
	again := addArtifact(t, d, "library")
	if again.Path != a.Path {
		t.Errorf("identical libraries at %s and %s", a.Path, again.Path)
	}
	tests := []struct {
		name   string
		damage func() error
		reason string
	}{
		{"truncated", func() error { return os.Truncate(a.Path, 3) }, "corrupt"},
		{"empty", func() error { return os.Truncate(a.Path, 0) }, "corrupt"},
		{"library gone", func() error { return os.Remove(a.Path) }, "library is gone"},
		{"description gone", func() error { return os.Remove(filepath.Join(filepath.Dir(a.Path), artifactMeta)) }, "no such file"},
		{"description garbled", func() error {
			return os.WriteFile(filepath.Join(filepath.Dir(a.Path), artifactMeta), []byte("{"), 0o600)
		}, "checksum does not match"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := tt.damage(); err != nil {
				t.Fatal(err)
			}
			_, err := d.Artifact(a.ID)
			wantMiss(t, err, tt.reason)
			if back := addArtifact(t, d, "library"); back.Path != a.Path {
				t.Errorf("not published again: %s", back.Path)
			}
		})
	}
}

func TestLockExcludesAndNamesHolder(t *testing.T) {
	d := open(t)
	ctx := context.Background()
	key := Lines{{"a", "b"}}.Key()
	first, err := d.Lock(ctx, LockRequest{Key: key, What: "compile x.hip"})
	if err != nil {
		t.Fatal(err)
	}
	var seen Holder
	_, err = d.Lock(ctx, LockRequest{Key: key, What: "the same", Timeout: 30 * time.Millisecond, Waiting: func(h Holder) { seen = h }})
	var late *LockTimeoutError
	if !errors.As(err, &late) || late.Holder.PID != os.Getpid() || late.Holder.What != "compile x.hip" {
		t.Errorf("got %v, want a LockTimeoutError that names the holder", err)
	}
	if seen.PID != os.Getpid() {
		t.Errorf("waiters get %+v", seen)
	}
	if err := first.Unlock(); err != nil {
		t.Fatal(err)
	}
	second, err := d.Lock(ctx, LockRequest{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := d.Lock(cancelled, LockRequest{Key: key}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
	second.Unlock()
}

func TestLockFileRemovedBetweenOpenAndFlock(t *testing.T) {
	d := open(t)
	key := Lines{{"a", "b"}}.Key()
	held, err := d.Lock(context.Background(), LockRequest{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(d.lockPath(key)); err != nil {
		t.Fatal(err)
	}
	process, err := Open(d.path, Options{}) // as another process would
	if err != nil {
		t.Fatal(err)
	}
	other, err := process.Lock(context.Background(), LockRequest{Key: key, Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if sameFile(held.f, d.lockPath(key)) || !sameFile(other.f, d.lockPath(key)) {
		t.Error("the lock is not on the file that other processes will open")
	}
}

func TestUntrustedFolders(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	var bad *UntrustedError
	if _, err := Open(dir, Options{}); !errors.As(err, &bad) || !strings.Contains(err.Error(), "chmod go-w") {
		t.Errorf("got %v, want an UntrustedError with the command that fixes it", err)
	}
	if _, err := Open(dir, Options{TrustForeign: true}); err != nil {
		t.Errorf("trusted explicitly: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var access *AccessError
	if _, err := Open(file, Options{}); !errors.As(err, &access) {
		t.Errorf("got %v, want an AccessError for a file", err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dir, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir, Options{}); !errors.As(err, &bad) || bad.Exposed[0].Owner != 12345 {
			t.Errorf("got %v, want an UntrustedError that names the owner", err)
		}
	}
}

func TestSweepKeepsStagesInUse(t *testing.T) {
	d := open(t)
	living, path := stageFile(t, d, "x")
	dead := filepath.Join(d.base, "stage", "job-dead")
	if err := os.Mkdir(dead, 0o700); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Minute)
	for _, p := range []string{dead, living.Path} {
		if err := os.Chtimes(p, old, old); err != nil {
			t.Fatal(err)
		}
	}
	if n := d.Sweep(); n != 1 {
		t.Errorf("swept %d stages, want 1", n)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("a stage in use was removed: %v", err)
	}
	if _, err := os.Stat(dead); err == nil {
		t.Error("the stage of a dead job was not removed")
	}
}

func TestClean(t *testing.T) {
	d := open(t)
	a, b, c := addArtifact(t, d, "aaaa"), addArtifact(t, d, "bbbb"), addArtifact(t, d, "cccc")
	age := func(a Artifact, by time.Duration) {
		when := time.Now().Add(-by)
		if err := os.Chtimes(filepath.Dir(a.Path), when, when); err != nil {
			t.Fatal(err)
		}
	}
	age(a, 100*time.Hour)
	age(b, 50*time.Hour)
	release, err := d.Use(c)
	if err != nil {
		t.Fatal(err)
	}
	rep, err := d.Clean(CleanRequest{OlderThan: 70 * time.Hour, DryRun: true})
	if err != nil || len(rep.Removed) != 1 || rep.Removed[0].Digest != a.Digest {
		t.Errorf("dry run by age: %+v, %v", rep, err)
	}
	if _, err := d.Artifact(a.ID); err != nil {
		t.Errorf("a dry run removed: %v", err)
	}
	age(a, 100*time.Hour)
	rep, err = d.Clean(CleanRequest{MaxSize: d.size() - 1})
	if err != nil || len(rep.Removed) != 1 || rep.Removed[0].Digest != a.Digest {
		t.Errorf("by size, oldest first: %+v, %v", rep, err)
	}
	rep, err = d.Clean(CleanRequest{})
	if err != nil || len(rep.Removed) != 1 || len(rep.InUse) != 1 || rep.InUse[0].Digest != c.Digest {
		t.Errorf("all except artifacts in use: %+v, %v", rep, err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	if rep, err = d.Clean(CleanRequest{}); err != nil || len(rep.Removed) != 1 {
		t.Errorf("all, after release: %+v, %v", rep, err)
	}
	if list, err := d.Artifacts(); err != nil || len(list) != 0 {
		t.Errorf("left: %v, %v", list, err)
	}
}

func TestCleanRemovesUnreferencedEntries(t *testing.T) {
	d := open(t)
	_, path := stageFile(t, d, "object")
	digest, err := d.AddBlob(path)
	if err != nil {
		t.Fatal(err)
	}
	pick := func(Artifact) bool { return true }
	if rep, err := d.Clean(CleanRequest{Match: pick}); err != nil || rep.Orphans != 0 {
		t.Errorf("a new object may belong to a running build: %+v, %v", rep, err)
	}
	if rep, err := d.Clean(CleanRequest{}); err != nil || rep.Orphans != 1 {
		t.Errorf("a clean of everything: %+v, %v", rep, err)
	}
	_, err = d.Blob(digest)
	wantMiss(t, err, "absent")
}

func TestVerifyFindsDamage(t *testing.T) {
	d := open(t)
	a := addArtifact(t, d, "library")
	key := Lines{{"a", "b"}}.Key()
	if err := d.Put(Object, key, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if rep, err := d.Verify(); err != nil || len(rep.Faults) != 0 || rep.Checked != 2 {
		t.Errorf("an intact cache: %+v, %v", rep, err)
	}
	if err := os.Truncate(a.Path, 1); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(d.recordPath(Object, key), 5); err != nil {
		t.Fatal(err)
	}
	if rep, err := d.Verify(); err != nil || len(rep.Faults) != 2 {
		t.Errorf("a damaged cache: %+v, %v", rep, err)
	}
	stats, err := d.Stats()
	if err != nil || stats.Corrupt == 0 || len(stats.Artifacts) != 0 {
		t.Errorf("stats %+v, %v", stats, err)
	}
}
