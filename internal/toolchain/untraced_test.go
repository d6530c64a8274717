package toolchain

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/aiter-go/aiter/internal/filehash"
)

// forbidTracing makes ptrace(2) fail in this process and its children, as some containers do.
func forbidTracing(t *testing.T) {
	t.Helper()
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the number of the system call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_PTRACE, Jf: 1},
		{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program))); errno != 0 {
		t.Fatal(errno)
	}
}

const untracedProcess = "AITER_TEST_UNTRACED"

// TestUntraced runs itself in a process in which tracing is forbidden. The files that a wrapper reads are unknown there:
// it is asked each time, and the commands in its answers show a change. The answers of g++ itself are remembered.
func TestUntraced(t *testing.T) {
	if os.Getenv(untracedProcess) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestUntraced$", "-test.v")
		cmd.Env = append(os.Environ(), untracedProcess+"=1")
		out, err := cmd.CombinedOutput()
		if err != nil || strings.Contains(string(out), "--- SKIP") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	forbidTracing(t)
	visible := []string{"sourced script", "environment of a sourced script", "second wrapper", "response file", "program in PATH",
		"program earlier in PATH", "specs in a -B folder", "new specs in a -B folder", "file that appears", "file that is removed", "listed folder", "link to a folder"}
	all := slices.DeleteFunc(wrappers(t), func(w wrapped) bool { return !slices.Contains(visible, w.name) })
	dirs := settledWrappers(t, all)
	for i, w := range all {
		t.Run(w.name, func(t *testing.T) {
			dir, memo := dirs[i], filehash.Open("")
			before := findIn(t, dir, memo)
			if !strings.Contains(before.Unknown, "operation not permitted") {
				t.Errorf("unknown: %q", before.Unknown)
			}
			w.change(t, dir)
			if after := findIn(t, dir, memo); after.Digest == before.Digest {
				t.Error("the digest is the same after the change")
			}
		})
	}
	t.Run("a compiler that is not a script", func(t *testing.T) {
		f := &Finder{Env: environment(), Memo: filehash.Open("")}
		tc, err := f.Find(t.Context(), parse(t, "cpu"))
		if err != nil {
			t.Fatal(err)
		}
		s := &search{session: f.Session(), tc: tc}
		question, err := s.question(commonQuestion)
		if _, ok := f.Memo.Get(question); !ok || err != nil {
			t.Errorf("its answers are not remembered: %v", err)
		}
	})
}
