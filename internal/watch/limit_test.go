//go:build linux

package watch_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/aiter-go/aiter/internal/watch"
	"github.com/aiter-go/aiter/jit"
)

// limitVar names the limit that a run of this program in a new user namespace lowers to 2.
const limitVar = "AITER_TEST_INOTIFY_LIMIT"

// If the kernel watches no more folders, the Watcher reports the limit and still checks files.
func TestLimits(t *testing.T) {
	for limit, sysctl := range map[string]string{
		"max_inotify_watches": "fs.inotify.max_user_watches", "max_inotify_instances": "fs.inotify.max_user_instances",
	} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestUnderLimit$", "-test.v")
		cmd.Env = append(os.Environ(), limitVar+"="+limit+" "+sysctl)
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		}
		out, err := cmd.CombinedOutput()
		var refused *os.PathError
		if errors.As(err, &refused) {
			t.Skipf("the kernel makes no user namespace, in which limits could be lowered: %v", err)
		}
		if err != nil || !strings.Contains(string(out), "--- PASS: TestUnderLimit") {
			t.Errorf("%s: %v\n%s", limit, err, out)
		}
	}
}

// TestUnderLimit is the part of TestLimits that runs in the namespace.
func TestUnderLimit(t *testing.T) {
	limit, sysctl, given := strings.Cut(os.Getenv(limitVar), " ")
	if !given {
		t.Skip("part of TestLimits")
	}
	most := []byte("2")
	if strings.HasSuffix(limit, "instances") {
		most = []byte("0")
	}
	do(t, os.WriteFile(filepath.Join("/proc/sys/user", limit), most, 0o644))
	var reports atomic.Int64
	root, inputs := tree(t)
	w := watch.New(watch.Options{Report: func(err error) {
		reports.Add(1)
		var limit *watch.LimitError
		if !errors.As(err, &limit) || limit.Sysctl != sysctl || !strings.Contains(err.Error(), "sysctl "+sysctl+"=") {
			t.Errorf("got %v, want one that names %s", err, sysctl)
		}
	}})
	defer w.Close()
	w.Set(jit.Request{}, inputs)
	time.AfterFunc(quiet, func() { _ = os.WriteFile(filepath.Join(root, "src/a.cpp"), []byte("a2"), 0o644) })
	if got := next(t, w, root, patience); got != "changed src/a.cpp" {
		t.Errorf("got %q", got)
	}
	if reports.Load() != 1 {
		t.Errorf("%d reports", reports.Load())
	}
}
