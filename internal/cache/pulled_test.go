package cache

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// publishPulled publishes a pulled cache with an artifact of size bytes.
func publishPulled(t *testing.T, d *Dir, name string, size int) {
	t.Helper()
	made, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	addArtifact(t, made, strings.Repeat("p", size))
	s, err := d.NewStage()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := os.CopyFS(s.File("set"), os.DirFS(made.Path())); err != nil {
		t.Fatal(err)
	}
	if err := d.PublishPulled(s, "set", name, []byte(name)); err != nil {
		t.Fatal(err)
	}
}

func TestPulled(t *testing.T) {
	d, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	publishPulled(t, d, "a-1", 10)
	publishPulled(t, d, "a-1", 20) // of another process at the same time
	publishPulled(t, d, "b-1", 30)
	if got := d.PulledNames("a-"); !slices.Equal(got, []string{"a-1"}) {
		t.Errorf("names %q", got)
	}
	p, note, err := d.OpenPulled("a-1")
	if err != nil || string(note) != "a-1" {
		t.Fatalf("%q %v", note, err)
	}
	list, err := p.Artifacts()
	if err != nil || len(list) != 1 || list[0].Size != 10 {
		t.Fatalf("%v %v, want the artifact that was published first", list, err)
	}
	id := list[0].ID
	if _, err := d.Artifact(id); err == nil {
		t.Error("a pulled cache is used before it is added")
	}
	d.AddReadOnly(p)
	if a, err := d.Artifact(id); err != nil || a.ReadOnly != p.Path() {
		t.Errorf("%v %v", a, err)
	}
	if err := d.RemovePulled("a-1"); err == nil {
		t.Error("a pulled cache that is in use was removed")
	}
	if err := d.RemovePulled("b-1"); err != nil {
		t.Error(err)
	}
	if _, _, err := d.OpenPulled("b-1"); !isAbsent(err) {
		t.Errorf("removed: %v", err)
	}
	if rep, err := d.Verify(); err != nil || len(rep.Faults) > 0 {
		t.Errorf("%+v %v", rep, err)
	}
}

// TestAddReadOnlyAfterLookups adds a cache that has what a record of an earlier one lacked.
func TestAddReadOnlyAfterLookups(t *testing.T) {
	d, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	var l Lines
	l.Add("a", "record")
	first, errA := Open(t.TempDir(), Options{})
	second, errB := Open(t.TempDir(), Options{})
	if err := errors.Join(errA, errB, first.Put(Linked, l.Key(), []byte("lost")), second.Put(Linked, l.Key(), []byte("found"))); err != nil {
		t.Fatal(err)
	}
	d.AddReadOnly(first)
	if err := d.Forget(Linked, l.Key()); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Get(Linked, l.Key()); err == nil {
		t.Fatal("a forgotten record is found")
	}
	d.AddReadOnly(second)
	if all := d.GetAll(Linked, l.Key()); len(all) != 2 || string(all[1]) != "found" {
		t.Errorf("%q, want the records of both caches", all)
	}
}

// TestDamagedPulled damages a library. The pulled cache goes to quarantine, so that a later process pulls it again.
func TestDamagedPulled(t *testing.T) {
	var faults []Fault
	d, err := Open(t.TempDir(), Options{Faulty: func(f Fault) { faults = append(faults, f) }})
	if err != nil {
		t.Fatal(err)
	}
	publishPulled(t, d, "a-1", 10)
	p, _, err := d.OpenPulled("a-1")
	if err != nil {
		t.Fatal(err)
	}
	list, err := p.Artifacts()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(list[0].Path, []byte("qqqqqqqqqq"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.AddReadOnly(p)
	if _, err := d.Artifact(list[0].ID); err == nil {
		t.Error("a damaged library is used")
	}
	if names := d.PulledNames(""); len(names) > 0 || len(faults) != 1 || !strings.Contains(faults[0].Reason, "pulls the set again") {
		t.Errorf("left %q, faults %+v", names, faults)
	}
}

// TestTrimPulled trims pulled caches before artifacts, the least recently used first, and none that is in use.
func TestTrimPulled(t *testing.T) {
	for _, c := range []struct {
		name   string
		limits Limits
		want   []string
	}{
		{"no limits", Limits{}, []string{"new", "used", "old", "oldest"}},
		{"age", Limits{Age: 15 * time.Hour}, []string{"new", "used"}},
		{"size", Limits{Size: 34_000}, []string{"new", "used", "old"}},
		{"tiny", Limits{Size: 1}, []string{"new", "used"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := Open(t.TempDir(), Options{Limits: c.limits})
			if err != nil {
				t.Fatal(err)
			}
			for i, name := range []string{"oldest", "old", "used", "new"} {
				publishPulled(t, d, name, 10_000)
				setAge(t, d.pulledPath(name), time.Duration(3-i)*10*time.Hour)
			}
			_, _, err = d.OpenPulled("used") // counts as a use, and holds it
			if err != nil {
				t.Fatal(err)
			}
			setAge(t, d.pulledPath("used"), 5*time.Hour)
			due(t, d)
			if _, err := d.Trim(); err != nil {
				t.Fatal(err)
			}
			if got := d.PulledNames(""); !slices.Equal(got, c.want) {
				t.Errorf("left %q, want %q", got, c.want)
			}
		})
	}
}

func TestIsEntry(t *testing.T) {
	const key = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for name, want := range map[string]bool{
		"v2/artifact/" + key + "/artifact.json":      true,
		"v2/artifact/" + key + "/module_a.so":        true,
		"v2/artifact/" + key + "/.so":                false,
		"v2/artifact/" + key + "/..so":               false,
		"v2/artifact/" + key + "/a/b.so":             false,
		"v2/artifact/../artifact.json":               false,
		"v2/artifact/" + key[:63] + "/artifact.json": false,
		"v2/record/linked/01/" + key:                 true,
		"v2/record/tuning/01/" + key:                 true,
		"v2/record/failure/01/" + key:                false,
		"v2/record/other/01/" + key:                  false,
		"v2/record/linked/02/" + key:                 false,
		"v2/record/linked/01/" + key + "/":           false,
		"v1/record/linked/01/" + key:                 false,
		"v2/blob/01/" + key:                          false,
		"v2/lock/" + key:                             false,
		"v2/filehash":                                false,
		"":                                           false,
	} {
		if IsEntry(name) != want {
			t.Errorf("IsEntry(%q) is %v", name, !want)
		}
		if want && !IsEntryFolder(filepath.Dir(name)) {
			t.Errorf("IsEntryFolder(%q) is false", filepath.Dir(name))
		}
		if IsEntryFolder(name) {
			t.Errorf("IsEntryFolder(%q) is true", name)
		}
	}
}

// TestPulledCaches describes pulled caches without using them, also a damaged one.
func TestPulledCaches(t *testing.T) {
	d, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	publishPulled(t, d, "whole", 10)
	publishPulled(t, d, "damaged", 20)
	used := time.Now().Add(-3 * time.Hour).Truncate(time.Second)
	err = errors.Join(os.Remove(filepath.Join(d.pulledPath("damaged"), pulledNote)), os.Chtimes(d.pulledPath("whole"), used, used))
	if err != nil {
		t.Fatal(err)
	}
	list := d.PulledCaches()
	if len(list) != 2 || list[0].Name != "damaged" || list[0].Err == nil {
		t.Fatalf("%+v, want the damaged cache, then the one that was used earlier", list)
	}
	p := list[1]
	if p.Err != nil || string(p.Note) != "whole" || len(p.Artifacts) != 1 || p.Artifacts[0].Size != 10 || p.Bytes < 10 {
		t.Errorf("%+v", p)
	}
	if again := d.PulledCaches()[1]; !again.Used.Equal(used) {
		t.Errorf("used at %s, want %s: describing a cache is no use", again.Used, used)
	}
	if err := d.RemovePulled("whole"); err != nil {
		t.Errorf("describing a cache holds it: %v", err)
	}
}
