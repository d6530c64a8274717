//go:build linux

package filehash

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aiter-go/aiter/internal/testenv"
)

// TestRebuiltImage mounts two images one after the other. Their files differ only in their text.
func TestRebuiltImage(t *testing.T) {
	for _, tt := range []struct {
		name  string
		mount func(t *testing.T, image, at string) (unmount func())
	}{
		{"read-only", func(t *testing.T, image, at string) func() {
			return testenv.Mount(t, at, "-t", "ext4", "-o", "loop,ro", image)
		}},
		{"writable", func(t *testing.T, image, at string) func() {
			return testenv.Mount(t, at, "-t", "ext4", "-o", "loop", image)
		}},
		{"below an overlay", func(t *testing.T, image, at string) func() {
			lower, above := t.TempDir(), t.TempDir()
			first := testenv.Mount(t, lower, "-t", "ext4", "-o", "loop,ro", image)
			upper, work := filepath.Join(above, "upper"), filepath.Join(above, "work")
			if err := errors.Join(os.Mkdir(upper, 0o755), os.Mkdir(work, 0o755)); err != nil {
				t.Fatal(err)
			}
			second := testenv.Mount(t, at, "-t", "overlay", "-o", "lowerdir="+lower+",upperdir="+upper+",workdir="+work, "overlay")
			return func() { second(); first() }
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			at, kept := t.TempDir(), filepath.Join(t.TempDir(), "memo")
			path, living := filepath.Join(at, "header.h"), Open("")
			var before syscall.Stat_t
			for i, text := range []string{"#define X 1\n", "#define X 2\n"} {
				unmount := tt.mount(t, testenv.Image(t, "header.h", text), at)
				var now syscall.Stat_t
				if err := syscall.Stat(path, &now); err != nil {
					t.Fatal(err)
				}
				if same := now.Ino == before.Ino && now.Size == before.Size && now.Mtim == before.Mtim && now.Ctim == before.Ctim; i > 0 && !same {
					t.Fatalf("the images differ in more than the text: %+v, %+v", before, now)
				}
				before = now
				m := Open(kept)
				for range 2 {
					if got := digest(t, m, path); got != hexSum(text) {
						t.Errorf("in a new process: image %d has the digest of another text", i+1)
					}
					if got := digest(t, living, path); got != hexSum(text) {
						t.Errorf("in the same process: image %d has the digest of another text", i+1)
					}
				}
				if err := m.Save(); err != nil {
					t.Fatal(err)
				}
				unmount()
			}
		})
	}
}

// TestSharedMapping edits a file through a mapping whose page is writable already, so that the file's times do not change.
func TestSharedMapping(t *testing.T) {
	folders := map[string]func(*testing.T) string{
		"disk": disk,
		"tmpfs": func(t *testing.T) string {
			at := t.TempDir()
			testenv.Mount(t, at, "-t", "tmpfs", "-o", "size=1m", "tmpfs")
			return at
		},
		"overlay": func(t *testing.T) string { return overlay(t, disk(t)) },
		"overlay of tmpfs": func(t *testing.T) string {
			above := t.TempDir()
			testenv.Mount(t, above, "-t", "tmpfs", "-o", "size=1m", "tmpfs")
			return overlay(t, above)
		},
	}
	for name, folder := range folders {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(folder(t), "header.h")
			mapped := mapShared(t, path, strings.Repeat("a", 4096))
			m := later(Open(""))
			for _, letter := range "bcd" {
				time.Sleep(20 * time.Millisecond) // more than a tick of the clock that stamps files
				mapped[0] = byte(letter)
				want := hexSum(string(letter) + strings.Repeat("a", 4095))
				for range 2 {
					if got := digest(t, m, path); got != want {
						t.Fatalf("after a store of %q the digest is that of the earlier text", letter)
					}
				}
			}
		})
	}
}

// overlay mounts an overlay whose layers are in the folder named above.
func overlay(t *testing.T, above string) string {
	t.Helper()
	at := t.TempDir()
	lower, upper, work := filepath.Join(above, "lower"), filepath.Join(above, "upper"), filepath.Join(above, "work")
	if err := errors.Join(os.Mkdir(lower, 0o755), os.Mkdir(upper, 0o755), os.Mkdir(work, 0o755)); err != nil {
		t.Fatal(err)
	}
	testenv.Mount(t, at, "-t", "overlay", "-o", "lowerdir="+lower+",upperdir="+upper+",workdir="+work, "overlay")
	return at
}

// TestOverlayIsRemembered checks files in an upper layer on a disk. Digests of new files are remembered for the mount,
// those of unpacked files, whose times were set, without limit.
func TestOverlayIsRemembered(t *testing.T) {
	at, m := overlay(t, disk(t)), later(Open(""))
	written, unpacked := filepath.Join(at, "written"), filepath.Join(at, "unpacked")
	write(t, written, "x")
	write(t, unpacked, "x")
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(unpacked, old, old); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]lifetime{written: perMount, unpacked: always} {
		digest(t, m, path)
		id, fs, err := m.mounts.statFile(path)
		if err != nil || fs.lifetime(id) != want || m.fresh[kindFile+path] == nil {
			t.Errorf("%s: lifetime %d, want %d; remembered: %v; error %v", path, fs.lifetime(id), want, m.fresh[kindFile+path] != nil, err)
		}
	}
}

// mapShared makes a file and maps it.
func mapShared(t *testing.T, path, text string) []byte {
	t.Helper()
	write(t, path, text)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mapped, err := unix.Mmap(int(f.Fd()), 0, len(text), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(mapped) })
	return mapped
}

// TestImageIsReadOncePerMount checks that other processes remember the file of an image until the image is unmounted or
// the machine boots again.
func TestImageIsReadOncePerMount(t *testing.T) {
	at, kept := t.TempDir(), filepath.Join(t.TempDir(), "memo")
	path, image := filepath.Join(at, "header.h"), testenv.Image(t, "header.h", "text\n")
	reads := func(boot string) bool {
		t.Helper()
		m := Open(kept)
		if boot != "" {
			m.mounts.boot = func() string { return boot }
		}
		digest(t, m, path)
		read := m.dirty
		if err := m.Save(); err != nil {
			t.Fatal(err)
		}
		return read
	}
	unmount := testenv.Mount(t, at, "-t", "ext4", "-o", "loop,ro", image)
	if first, second := reads(""), reads(""); !first || second {
		t.Errorf("read by the first process: %v, want true; by the second: %v, want false", first, second)
	}
	unmount()
	testenv.Mount(t, at, "-t", "ext4", "-o", "loop,ro", image)
	if !reads("") {
		t.Error("not read after it was mounted again")
	}
	if !reads("another boot") {
		t.Error("not read after another boot")
	}
}

// TestReadOnlyView checks that other processes remember the files of a read-only bind mount of a writable filesystem too.
func TestReadOnlyView(t *testing.T) {
	dir, at := disk(t), t.TempDir()
	write(t, filepath.Join(dir, "f"), "x")
	testenv.Mount(t, at, "--bind", dir)
	if out, err := exec.Command("mount", "-o", "remount,bind,ro", at).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.WriteFile(filepath.Join(at, "g"), nil, 0o600); !errors.Is(err, syscall.EROFS) {
		t.Fatalf("writing to the view: %v, want EROFS", err)
	}
	m := later(Open(""))
	digest(t, m, filepath.Join(at, "f"))
	if len(m.fresh) != 1 {
		t.Error("a file of a read-only view was not remembered")
	}
}

func TestLifetime(t *testing.T) {
	const day = 86_400_000_000_000
	written := identity{mtime: 9 * day, ctime: 10*day + 123, mount: 7}
	fresh := identity{mtime: 10*day + 123, ctime: 10*day + 123, mount: 7}
	clamped := identity{mtime: 10 * day, ctime: 10 * day, mount: 7}
	unnumbered := func(id identity) identity { id.mount = 0; return id }
	const squashfs, fuse, tmpfs = unix.SQUASHFS_MAGIC, unix.FUSE_SUPER_MAGIC, unix.TMPFS_MAGIC
	const ext4, overlay, nfs = unix.EXT4_SUPER_MAGIC, unix.OVERLAYFS_SUPER_MAGIC, unix.NFS_SUPER_MAGIC
	for _, tt := range []struct {
		name     string
		magic    uint32
		readOnly bool
		id       identity
		want     lifetime
	}{
		{"local", ext4, false, fresh, always},
		{"local, times in whole seconds", ext4, false, clamped, perMount},
		{"local, read-only", ext4, true, written, perMount},
		{"local, old kernel", ext4, false, unnumbered(fresh), always},
		{"local, whole seconds, old kernel", ext4, false, unnumbered(clamped), never},
		{"overlay, unpacked file", overlay, false, written, always},
		{"overlay, times perhaps copied", overlay, false, fresh, perMount},
		{"overlay, whole seconds", overlay, false, clamped, perMount},
		{"overlay, read-only", overlay, true, written, perMount},
		{"nfs, unpacked file", nfs, false, written, always},
		{"nfs, read-only here", nfs, true, written, always},
		{"nfs, times perhaps copied", nfs, false, fresh, never},
		{"nfs, whole seconds", nfs, false, clamped, never},
		{"squashfs", squashfs, true, clamped, perMount},
		{"squashfs, old kernel", squashfs, true, unnumbered(clamped), never},
		{"sshfs, read-only here", fuse, true, written, never},
		{"nfs, read-only here, whole seconds", nfs, true, clamped, never},
		{"sshfs", fuse, false, written, never},
		{"tmpfs", tmpfs, false, fresh, never},
	} {
		if got := (filesystem{magic: tt.magic, readOnly: tt.readOnly}).lifetime(tt.id); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

// TestOldIdentity compares the results of stat and statx.
func TestOldIdentity(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write(t, path, "text")
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, l := range []location{{unix.AT_FDCWD, path, 0}, {int(f.Fd()), "", unix.AT_EMPTY_PATH}} {
		id, mode, err := l.identity()
		old, oldMode, oldErr := l.oldIdentity()
		if err := errors.Join(err, oldErr); err != nil {
			t.Fatal(err)
		}
		id.mount = 0
		if id != old || mode != oldMode {
			t.Errorf("statx: %+v, %o; stat: %+v, %o", id, mode, old, oldMode)
		}
	}
}

func TestSuperWritable(t *testing.T) {
	const table = `21 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
22 21 254:0 /usr /mnt/a\040b ro,relatime shared:3 master:1 - ext4 /dev/vda rw
23 21 7:0 / /image ro - squashfs /dev/loop0 ro,errors=continue
24 21 7:0 / /short ro - squashfs
25 21 7:0 / /torn`
	for mount, want := range map[uint64]bool{21: true, 22: true, 23: false, 24: false, 25: false, 2: false} {
		if got := superWritable(table, mount); got != want {
			t.Errorf("mount %d: %v, want %v", mount, got, want)
		}
	}
}

// TestStamp checks that stamps change with their file or folder, and when other processes may compare them.
func TestStamp(t *testing.T) {
	dir, m := disk(t), later(Open(""))
	path := filepath.Join(dir, "f")
	write(t, path, "one")
	seen := map[string]string{}
	look := func(what, path string) {
		t.Helper()
		stamp, lasting, err := m.Stamp(path)
		if before, ok := seen[stamp]; ok || err != nil || !lasting {
			t.Errorf("%s: the stamp of %s; lasting %v, error %v", what, before, lasting, err)
		}
		seen[stamp] = what
		time.Sleep(20 * time.Millisecond) // more than a tick of the clock that stamps files
	}
	look("a file", path)
	write(t, path, "one")
	look("the file written again", path)
	old := time.Now().Add(-time.Hour)
	if err := errors.Join(os.WriteFile(path+".new", []byte("one"), 0o600), os.Chtimes(path+".new", old, old),
		os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
	look("a file that replaces it", path)
	look("a folder", dir)
	write(t, path+".new", "")
	look("the folder with another name", dir)
	if err := errors.Join(os.Remove(path+".new"), os.Chtimes(dir, old, old)); err != nil {
		t.Fatal(err)
	}
	look("the folder without the name, its time set back", dir)

	if _, lasting, err := Open("").Stamp(dir); lasting || err != nil {
		t.Errorf("a new folder: lasting %v, error %v", lasting, err)
	}
	if _, _, err := m.Stamp(filepath.Join(dir, "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	at := t.TempDir()
	testenv.Mount(t, at, "-t", "tmpfs", "-o", "size=1m", "tmpfs")
	if _, lasting, err := m.Stamp(at); lasting || err != nil {
		t.Errorf("a folder of tmpfs: lasting %v, error %v", lasting, err)
	}
}

// TestStampOfRebuiltImage checks that the folders of two images have different stamps.
func TestStampOfRebuiltImage(t *testing.T) {
	at, m, seen := t.TempDir(), later(Open("")), map[string]bool{}
	for range 2 {
		unmount := testenv.Mount(t, at, "-t", "ext4", "-o", "loop,ro", testenv.Image(t, "f", "text\n"))
		stamp, lasting, err := m.Stamp(at)
		again, _, _ := Open("").Stamp(at)
		if err != nil || !lasting || stamp != again {
			t.Errorf("stamp %s, in another process %s; lasting %v, error %v", stamp, again, lasting, err)
		}
		seen[stamp] = true
		unmount()
	}
	if len(seen) != 2 {
		t.Error("two mounts have one stamp")
	}
}
