package cache

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// aged sets the time of last use of an artifact back.
func aged(t *testing.T, a Artifact, by time.Duration) Artifact {
	t.Helper()
	setAge(t, filepath.Dir(a.Path), by)
	return a
}

func setAge(t *testing.T, path string, by time.Duration) {
	t.Helper()
	when := time.Now().Add(-by)
	if err := os.Chtimes(path, when, when); err != nil {
		t.Fatal(err)
	}
}

// due makes a trim due.
func due(t *testing.T, d *Dir) {
	t.Helper()
	d.TrimDue() // creates the file
	setAge(t, d.trimmed(), 2*trimEvery)
}

func digests(list []Artifact) []string {
	var out []string
	for _, a := range list {
		out = append(out, a.Digest)
	}
	slices.Sort(out)
	return out
}

func TestTrimKeepsTheLimits(t *testing.T) {
	big := strings.Repeat("x", 10000)
	tests := []struct {
		name   string
		limits Limits
		want   []int // which of the artifacts 0 (oldest) to 4 are left
	}{
		{"no limits", Limits{}, []int{0, 1, 2, 3, 4}},
		{"age", Limits{Age: 35 * time.Hour}, []int{2, 3, 4}},
		{"count", Limits{Count: 2}, []int{3, 4}},
		{"size", Limits{Size: 35000}, []int{2, 3, 4}},
		{"recently used artifacts stay", Limits{Count: 1, Size: 1}, []int{4}},
		{"age, then size", Limits{Age: 45 * time.Hour, Size: 25000}, []int{3, 4}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := open(t)
			d.limits = tt.limits
			var want []string
			for i := range 5 {
				a := aged(t, addArtifact(t, d, big+string(rune('0'+i))), time.Duration(4-i)*12*time.Hour)
				if slices.Contains(tt.want, i) {
					want = append(want, a.Digest)
				}
			}
			due(t, d)
			if rep, err := d.Trim(); err != nil || !rep.Due || len(rep.Removed) != 5-len(tt.want) {
				t.Errorf("%+v, %v", rep, err)
			}
			left, err := d.Artifacts()
			slices.Sort(want)
			if got := digests(left); err != nil || !slices.Equal(got, want) {
				t.Errorf("left %d, %v; want %v", len(got), err, tt.want)
			}
			if rep, err := d.Trim(); err != nil || rep.Due {
				t.Errorf("again within the hour: %+v, %v", rep, err)
			}
		})
	}
}

func TestTrimKeepsArtifactsInUse(t *testing.T) {
	d := open(t)
	d.limits = Limits{Count: 1, Age: time.Hour}
	used := aged(t, addArtifact(t, d, "used"), 100*time.Hour)
	aged(t, addArtifact(t, d, "idle"), 50*time.Hour)
	release, err := d.Use(used)
	if err != nil {
		t.Fatal(err)
	}
	due(t, d)
	rep, err := d.Trim()
	if left, _ := d.Artifacts(); err != nil || len(rep.InUse) == 0 || len(left) != 1 || left[0].ID != used.ID {
		t.Errorf("%+v, %v; left %v", rep, err, left)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	due(t, d)
	if rep, err := d.Trim(); err != nil || len(rep.Removed) != 1 {
		t.Errorf("after release: %+v, %v", rep, err)
	}
}

func TestFreeSpace(t *testing.T) {
	big := strings.Repeat("x", 10000)
	for _, tt := range []struct {
		name   string
		limits Limits
		young  bool
		left   int
	}{
		{"half", Limits{}, false, 2},
		{"half, far below the limit", Limits{Size: 1e9}, false, 2},
		{"the limit, below half", Limits{Size: 15000}, false, 1},
		{"just used", Limits{}, true, 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := open(t)
			d.limits = tt.limits
			for i := range 5 {
				a := addArtifact(t, d, big+string(rune('0'+i)))
				if !tt.young {
					aged(t, a, time.Duration(5-i)*12*time.Hour)
				}
			}
			rep, err := d.FreeSpace(context.Background())
			left, _ := d.Artifacts()
			if err != nil || rep.Due == tt.young || len(left) != tt.left || len(rep.Removed) != 5-tt.left {
				t.Errorf("%d left, %v, %d removed, %v; want %d", len(left), rep.Due, len(rep.Removed), err, tt.left)
			}
		})
	}
}

// TestFreeSpaceDuringTrim checks that a call that waited for another's trim does not trim again.
func TestFreeSpaceDuringTrim(t *testing.T) {
	d := open(t)
	aged(t, addArtifact(t, d, "old"), 2*time.Hour)
	another, err := Open(d.path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	lock, err := another.TryLock(LockRequest{Key: trimKey()})
	if err != nil || lock == nil {
		t.Fatal(err)
	}
	waits := make(chan struct{}, 1)
	d.flock = func(f *os.File, how int) error {
		err := flockFile(f, how)
		if err != nil {
			select {
			case waits <- struct{}{}:
			default:
			}
		}
		return err
	}
	go func() {
		<-waits
		due(t, d)
		setAge(t, d.trimmed(), 0)
		_ = lock.Unlock()
	}()
	rep, err := d.FreeSpace(context.Background())
	if left, _ := d.Artifacts(); err != nil || !rep.Due || len(left) != 1 {
		t.Errorf("%+v, %v, %d left", rep, err, len(left))
	}
}

func TestFreeSpaceIfLocksDoNotExclude(t *testing.T) {
	d := open(t)
	d.flock = func(*os.File, int) error { return nil }
	aged(t, addArtifact(t, d, "old"), 2*time.Hour)
	rep, err := d.FreeSpace(context.Background())
	if left, _ := d.Artifacts(); err != nil || rep.Due || len(left) != 1 {
		t.Errorf("%+v, %v, %d left", rep, err, len(left))
	}
}

func TestTrimIfLocksDoNotExclude(t *testing.T) {
	d := open(t)
	d.limits = Limits{Age: time.Hour}
	d.flock = func(*os.File, int) error { return nil }
	aged(t, addArtifact(t, d, "library"), 100*time.Hour)
	due(t, d)
	if rep, err := d.Trim(); err != nil || !rep.Due || len(rep.Removed) != 0 {
		t.Errorf("removed although uses are unknown: %+v, %v", rep, err)
	}
}

func TestOneTrimAtATime(t *testing.T) {
	d := open(t)
	due(t, d)
	var mu sync.Mutex
	ran := 0
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			process, err := Open(d.path, Options{Limits: Limits{Age: time.Hour}})
			if err != nil {
				t.Error(err)
				return
			}
			rep, err := process.Trim()
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if rep.Due {
				ran++
			}
		})
	}
	wg.Wait()
	if ran != 1 {
		t.Errorf("%d of 8 trimmed", ran)
	}
}

func TestNewCacheIsNotTrimmed(t *testing.T) {
	d := open(t)
	for range 2 { // the first call creates the file
		if d.TrimDue() {
			t.Error("a new cache is due")
		}
	}
	setAge(t, d.trimmed(), -48*time.Hour)
	if !d.TrimDue() {
		t.Error("a time in the future, from a wrong clock, delays the trim")
	}
}

func TestTrimRemovesUnreferencedEntries(t *testing.T) {
	d := open(t)
	d.limits = Limits{Age: day}
	put := func(rel string, age time.Duration) string {
		path := filepath.Join(d.base, rel)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("x"), 0o600)); err != nil {
			t.Fatal(err)
		}
		setAge(t, path, age)
		setAge(t, filepath.Dir(path), age)
		return path
	}
	name := Lines{{"a", "b"}}.Key()
	gone := []string{
		put("log/old.log", 8*day), put("quarantine/old-1/file", 8*day), put("source/old/csrc/a.h", 2*day),
		put("blob/"+string(name[:2])+"/"+string(name), 2*day), put("record/failure/"+string(name[:2])+"/"+string(name), 8*day),
	}
	setAge(t, filepath.Join(d.base, "source/old"), 2*day)
	kept := []string{
		put("log/new.log", time.Hour), put("quarantine/new-1/file", time.Hour), put("source/new/csrc/a.h", time.Hour),
		put("source/held/csrc/a.h", 2*day), put("record/manifest/"+string(name[:2])+"/"+string(name), time.Hour),
	}
	held := HoldFolder(filepath.Join(d.base, "source/held"))
	if held == nil {
		t.Fatal("the source tree is not held")
	}
	defer held.Close()
	setAge(t, filepath.Join(d.base, "source/held"), 2*day)
	due(t, d)
	if _, err := d.Trim(); err != nil {
		t.Fatal(err)
	}
	for _, path := range gone {
		if present(path) {
			t.Errorf("left: %s", path)
		}
	}
	for _, path := range kept {
		if !present(path) {
			t.Errorf("removed: %s", path)
		}
	}
}

func TestTwoModulesWithIdenticalLibraries(t *testing.T) {
	d := open(t)
	one := addArtifact(t, d, "library")
	s, path := stageFile(t, d, "library")
	two, err := d.AddArtifact(s, path, Artifact{Module: "module_y", Target: "gfx942", Ops: []string{"y"}})
	if err != nil {
		t.Fatal(err)
	}
	if two.Module != "module_y" || filepath.Base(two.Path) != "module_y.so" || two.ID == one.ID || two.Digest != one.Digest {
		t.Errorf("the second module's artifact is %+v", two)
	}
	a, errA := os.Stat(one.Path)
	b, errB := os.Stat(two.Path)
	if errA != nil || errB != nil || !os.SameFile(a, b) {
		t.Errorf("stored twice: %v, %v", errA, errB)
	}
	pick := func(x Artifact) bool { return x.Module == "module_x" }
	if rep, err := d.Clean(CleanRequest{Match: pick}); err != nil || len(rep.Removed) != 1 {
		t.Errorf("%+v, %v", rep, err)
	}
	if _, err := d.Artifact(two.ID); err != nil {
		t.Errorf("the other artifact was removed too: %v", err)
	}
}

func TestSharedObjectsStayWithTheLastArtifact(t *testing.T) {
	d := open(t)
	_, path := stageFile(t, d, strings.Repeat("o", 5000))
	object, err := d.AddBlob(path)
	if err != nil {
		t.Fatal(err)
	}
	setAge(t, d.BlobPath(object), 10*day)
	var made []Artifact
	for i, name := range []string{"module_a", "module_b"} {
		s, path := stageFile(t, d, name)
		a, err := d.AddArtifact(s, path, Artifact{Module: name, Target: "cpu", Units: []Ref{{Object: object}}})
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, aged(t, a, time.Duration(10-i)*day))
	}
	// To free 4,000 bytes, Clean must remove the object, and so both artifacts.
	whole := d.size()
	rep, err := d.Clean(CleanRequest{MaxSize: whole - 4000, DryRun: true})
	if err != nil || len(rep.Removed) != 2 || rep.Bytes < 4000 {
		t.Errorf("dry run: %+v, %v", rep, err)
	}
	if rep, err = d.Clean(CleanRequest{MaxSize: whole - 1}); err != nil || len(rep.Removed) != 1 || rep.Removed[0].ID != made[0].ID {
		t.Errorf("one: %+v, %v", rep, err)
	}
	if _, err := d.Blob(object); err != nil {
		t.Errorf("the object that the other artifact needs: %v", err)
	}
	if rep, err = d.Clean(CleanRequest{MaxSize: 1}); err != nil || len(rep.Removed) != 1 {
		t.Errorf("both: %+v, %v", rep, err)
	}
	_, err = d.Blob(object)
	wantMiss(t, err, "absent")
}
