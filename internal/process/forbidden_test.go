//go:build linux

package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aiter-go/aiter/internal/testenv"
)

// TestTraceWithoutRemoteReads runs itself in a process that may use ptrace(2), but not process_vm_readv(2).
func TestTraceWithoutRemoteReads(t *testing.T) {
	const child = "AITER_TEST_NO_REMOTE_READS"
	if os.Getenv(child) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestTraceWithoutRemoteReads$", "-test.v")
		cmd.Env = append(os.Environ(), child+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	testenv.ForbidSyscall(t, unix.SYS_PROCESS_VM_READV)
	c, dir := shell(t, "cat file")
	write(t, filepath.Join(dir, "file"), "text", 0o644)
	trace, err := c.Trace(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	read := func(a Access) bool { return a.Kind == Read && a.Path == filepath.Join(dir, "file") }
	if !slices.ContainsFunc(trace.Accesses, read) || trace.Incomplete != "" {
		t.Errorf("the file is not among %d accesses, incomplete: %q", len(trace.Accesses), trace.Incomplete)
	}
}

// TestUnreadableMemory checks that an unreadable name makes the trace incomplete, and a bad address does not.
func TestUnreadableMemory(t *testing.T) {
	for err, lost := range map[error]bool{unix.EPERM: true, unix.EIO: true, unix.EFAULT: false, unix.ESRCH: false} {
		tr := newTracer()
		if tr.unreadable(err); (tr.incomplete != "") != lost {
			t.Errorf("%v: incomplete %q", err, tr.incomplete)
		}
	}
}

// TestUntraceableLeavesNoProcess makes the tracer fail at its start: the error comes at once, and no process is left.
func TestUntraceableLeavesNoProcess(t *testing.T) {
	for name, spoil := range map[string]func(tr *tracer){
		"no system calls": func(tr *tracer) { tr.rules = nil },
		"no options":      func(tr *tracer) { tr.options = -1 },
	} {
		c, dir := shell(t, "")
		marker := filepath.Join(dir, "marker")
		c.Argv = []string{"/bin/sh", "-c", "sleep 60", marker}
		out, err := c.pipes()
		if err != nil {
			t.Fatal(err)
		}
		tr, start := newTracer(), time.Now()
		spoil(tr)
		err = tr.run(t.Context(), c, out)
		out.finish(c.Grace)
		var e *UntraceableError
		if !errors.As(err, &e) || time.Since(start) > c.Grace/2 {
			t.Errorf("%s: %v after %s", name, err, time.Since(start))
		}
		if pid := running(t, marker); pid != "" {
			t.Errorf("%s: process %s is left", name, pid)
		}
	}
}

// running returns the process with that argument, "" if there is none.
func running(t *testing.T, argument string) string {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		if text, _ := os.ReadFile(file); strings.Contains(string(text), "\x00"+argument+"\x00") {
			return filepath.Base(filepath.Dir(file))
		}
	}
	return ""
}

// TestTraceOfManyNames checks that a trace keeps a bounded number of names, and reports that it is incomplete.
func TestTraceOfManyNames(t *testing.T) {
	tr := newTracer()
	for i := range maxNames {
		tr.note(Missing, name{path: fmt.Sprint("/", i)})
		tr.wrote(name{path: fmt.Sprint("/w", i)})
	}
	if n := len(tr.seen) + len(tr.written); n != maxNames || tr.trace().Incomplete == "" {
		t.Errorf("%d names, incomplete: %q", n, tr.incomplete)
	}
}
