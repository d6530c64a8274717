//go:build linux

package dl_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/aiter-go/aiter/internal/dl"
)

// buildAnswer compiles a library whose function answer returns n.
func buildAnswer(t *testing.T, n int) string {
	t.Helper()
	lib := filepath.Join(t.TempDir(), fmt.Sprintf("answer%d.so", n))
	cmd := exec.Command("cc", "-shared", "-fPIC", "-x", "c", "-o", lib, "-")
	cmd.Stdin = strings.NewReader(fmt.Sprintf("int answer(void) { return %d; }\n", n))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	return lib
}

func file(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func answer(t *testing.T, f *os.File) int {
	t.Helper()
	lib, err := dl.OpenFile(f, dl.Local)
	if err != nil {
		t.Fatal(err)
	}
	if lib.Name() != f.Name() {
		t.Errorf("the library of %s is called %s", f.Name(), lib.Name())
	}
	return int(int32(dl.Call(sym(t, lib, "answer"))))
}

// OpenFile loads the file that was opened, although another file has its name by then.
func TestOpenFileLoadsTheOpenFile(t *testing.T) {
	good, evil := buildAnswer(t, 1), buildAnswer(t, 2)
	f := file(t, good)
	if err := os.Rename(evil, good); err != nil {
		t.Fatal(err)
	}
	if got := answer(t, f); got != 1 {
		t.Errorf("loaded the library that was put in its place: %d", got)
	}
}

// The dynamic linker identifies libraries by the name under which they were loaded. Descriptors
// get the same numbers again, even if a program closes descriptors that are not its own.
func TestOpenFileWhenDescriptorsAreUsedAgain(t *testing.T) {
	for n := 10; n < 20; n++ {
		before := descriptors(t)
		f := file(t, buildAnswer(t, n))
		if got := answer(t, f); got != n {
			t.Fatalf("got the library %d, want %d", got, n)
		}
		_ = f.Close()
		for fd := range descriptors(t) {
			if !before[fd] {
				_ = syscall.Close(fd)
			}
		}
	}
}

// A library that the process has loaded takes no more descriptors.
func TestOpenFileAgainTakesNoDescriptor(t *testing.T) {
	f := file(t, buildAnswer(t, 30))
	answer(t, f)
	before := len(descriptors(t))
	for range 20 {
		answer(t, f)
	}
	if after := len(descriptors(t)); after != before {
		t.Errorf("%d descriptors, then %d", before, after)
	}
}

// descriptors returns the descriptors of regular files that this process has open.
func descriptors(t *testing.T) map[int]bool {
	t.Helper()
	open := map[int]bool{}
	for fd := range 256 {
		var st syscall.Stat_t
		if syscall.Fstat(fd, &st) == nil && st.Mode&syscall.S_IFMT == syscall.S_IFREG {
			open[fd] = true
		}
	}
	return open
}

// Profilers and messages show the file's own name.
func TestOpenFileKeepsTheName(t *testing.T) {
	path := buildAnswer(t, 40)
	answer(t, file(t, path))
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil || !strings.Contains(string(maps), path) {
		t.Errorf("%v: %s is not in /proc/self/maps", err, path)
	}
	text := filepath.Join(t.TempDir(), "text.so")
	if err := os.WriteFile(text, []byte("not a library"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := len(descriptors(t))
	_, err = dl.OpenFile(file(t, text), dl.Local)
	var oe *dl.OpenError
	if !errors.As(err, &oe) || !strings.Contains(err.Error(), text+": ") || strings.Contains(err.Error(), "/proc/") {
		t.Errorf("a file that is not a library: %v", err)
	}
	if after := len(descriptors(t)); after != before+1 {
		t.Errorf("%d descriptors, then %d", before, after)
	}
}

// Without /proc the file's own name is used unless it leads to another file.
func TestOpenFileWithoutProc(t *testing.T) {
	if path := os.Getenv("AITER_TEST_WITHOUT_PROC"); path != "" {
		if _, err := os.Stat("/proc/self"); err == nil {
			t.Fatal("/proc is mounted")
		}
		f := file(t, path)
		if err := os.Rename(path, path+"~"); err != nil {
			t.Fatal(err)
		}
		if _, err := dl.OpenFile(f, dl.Local); err == nil || !strings.Contains(err.Error(), "leads to another file") {
			t.Errorf("a file that was moved away: %v", err)
		}
		if err := os.Rename(path+"~", path); err != nil {
			t.Fatal(err)
		}
		if got := answer(t, f); got != 50 {
			t.Errorf("loaded %d", got)
		}
		return
	}
	if exec.Command("unshare", "-rm", "mount", "-t", "tmpfs", "none", "/proc").Run() != nil {
		if strings.Contains(os.Getenv("AITER_REQUIRE_TOOLS"), "mount") {
			t.Fatal("unshare cannot mount over /proc")
		}
		t.Skip("mounting is forbidden here")
	}
	cmd := exec.Command("unshare", "-rm", "sh", "-c", `mount -t tmpfs none /proc && exec "$0" -test.run=^TestOpenFileWithoutProc$`, os.Args[0])
	cmd.Env = append(os.Environ(), "AITER_TEST_WITHOUT_PROC="+buildAnswer(t, 50))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
