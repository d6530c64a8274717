//go:build linux

package toolchain

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestStampDetectsRestoredTimes: programs can set the modification time of a folder back, but not its change time.
func TestStampDetectsRestoredTimes(t *testing.T) {
	dir := t.TempDir()
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(dir, old, old); err != nil {
		t.Fatal(err)
	}
	before := stampOf(dir)
	time.Sleep(20 * time.Millisecond) // more than the kernel's clock tick
	write(t, filepath.Join(dir, "new"), "", 0o644)
	if err := os.Chtimes(dir, old, old); err != nil {
		t.Fatal(err)
	}
	if stampOf(dir) == before {
		t.Error("a new file with restored times does not change the stamp")
	}
}

// TestStampOfReadOnlyFilesystem checks that the stamp of a folder in an image depends on names, not on times.
func TestStampOfReadOnlyFilesystem(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a filesystem needs root")
	}
	mount := t.TempDir()
	stampWith := func(name string) stamp {
		if err := syscall.Mount("none", mount, "tmpfs", 0, ""); err != nil {
			t.Skipf("mounting a filesystem is forbidden here: %v", err)
		}
		defer func() {
			if err := syscall.Unmount(mount, syscall.MNT_DETACH); err != nil {
				t.Error(err)
			}
		}()
		write(t, filepath.Join(mount, name), "", 0o644)
		if err := syscall.Mount("none", mount, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
			t.Fatal(err)
		}
		s := stampOf(mount)
		s.CTime, s.Inode, s.Dev = 0, 0, 0 // another version of an image may have equal ones
		return s
	}
	one, two, again := stampWith("one"), stampWith("two"), stampWith("one")
	if one == two || one != again {
		t.Errorf("stamps are %+v, %+v, and again %+v", one, two, again)
	}
}

func TestFacts(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	write(t, path("file"), "", 0o644)
	relink(t, "file", path("link"))
	facts := map[fact]bool{
		newFact(factPresent, path("file")): true, newFact(factAbsent, path("none")): true, newFact(factAbsent, path("file/below")): true,
		newFact(factLink, path("link")): true, newFact(factResolved, path("link")): true,
		newFact(factPresent, path("none")): false, newFact(factAbsent, path("file")): false, newFact(factLink, path("file")): false,
		newFact(factResolved, path("none")): false, "f": false, "x/": false,
	}
	for f, want := range facts {
		if got := f.holds(); got != want {
			t.Errorf("%q holds: %t, want %t", f, got, want)
		}
	}
	link, resolved := newFact(factLink, path("link")), newFact(factResolved, path("link"))
	write(t, path("other"), "", 0o644)
	relink(t, "other", path("link"))
	if link.holds() || resolved.holds() {
		t.Error("the fact about a link holds although its target changed")
	}
	if got := topmost(newFact(factAbsent, path("a/b/c"))); got != newFact(factAbsent, path("a")) {
		t.Errorf("the topmost absent folder is %q", got)
	}
}
