//go:build linux

package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// CannotMount skips the test, or fails it if AITER_REQUIRE_TOOLS contains mount. why is the reason.
func CannotMount(t testing.TB, why string) {
	t.Helper()
	if strings.Contains(os.Getenv("AITER_REQUIRE_TOOLS"), "mount") {
		t.Fatal(why + ", and AITER_REQUIRE_TOOLS requires it")
	}
	t.Skip(why)
}

// Mount mounts a filesystem on the folder at with mount(8) and these arguments. The returned function, or the end of the
// test, unmounts it. Mount skips the test if that is impossible; see [CannotMount].
func Mount(t testing.TB, at string, args ...string) (unmount func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		CannotMount(t, "mounting a filesystem needs root")
	}
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mount", append(args, at)...).CombinedOutput(); err != nil {
		CannotMount(t, fmt.Sprintf("mount %q on %s: %v: %s", args, at, err, out))
	}
	mounted := true
	unmount = func() {
		if mounted {
			mounted = false
			if err := syscall.Unmount(at, 0); err != nil {
				t.Errorf("unmount %s: %v", at, errors.Join(err, syscall.Unmount(at, syscall.MNT_DETACH)))
			}
		}
	}
	t.Cleanup(unmount)
	return unmount
}

// imageTime is the time of every file in an [Image], as debugfs reads it.
const imageTime = "19800101000000"

// Image returns the path of an ext4 image that contains the file name with that text. Images
// whose texts have equal lengths differ only in the text: inode numbers, times and the
// filesystem's UUID are equal, as in images that tools build reproducibly.
func Image(t testing.TB, name, text string) string {
	t.Helper()
	dir := t.TempDir()
	tree, image := filepath.Join(dir, "tree"), filepath.Join(dir, "image")
	if err := errors.Join(os.Mkdir(tree, 0o755), os.WriteFile(filepath.Join(tree, name), []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
	const uuid = "3e2b9a44-7d0f-4d58-9c4c-6a2f51d1a001"
	var times []string
	for _, field := range []string{"atime", "mtime", "ctime", "crtime"} {
		times = append(times, fmt.Sprintf("sif /%s %s %s", name, field, imageTime),
			fmt.Sprintf("sif /%s %s_extra 0", name, field))
	}
	commands := filepath.Join(dir, "commands")
	if err := os.WriteFile(commands, []byte(strings.Join(times, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, argv := range [][]string{
		{tool(t, "mke2fs"), "-q", "-t", "ext4", "-I", "256", "-O", "^has_journal", "-U", uuid, "-E", "hash_seed=" + uuid,
			"-d", tree, image, "4M"},
		{tool(t, "debugfs"), "-w", "-f", commands, image},
	} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", argv, err, out)
		}
	}
	return image
}

// tool returns the path of a program of e2fsprogs, which the PATH of users often lacks.
func tool(t testing.TB, name string) string {
	t.Helper()
	for _, candidate := range []string{name, "/usr/sbin/" + name, "/sbin/" + name} {
		if path, err := exec.LookPath(candidate); err == nil {
			return path
		}
	}
	CannotMount(t, "no "+name+" of e2fsprogs, which makes images")
	return ""
}
