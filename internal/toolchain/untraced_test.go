//go:build linux

package toolchain

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/aiter-go/aiter/internal/filehash"
	"github.com/aiter-go/aiter/internal/testenv"
)

const untracedProcess = "AITER_TEST_UNTRACED"

// TestUntraced runs itself in a process in which tracing is forbidden. The files that a wrapper reads are unknown there:
// it is queried each time, and the commands in its answers show a change. The answers of g++ itself are remembered.
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
	testenv.ForbidSyscall(t, unix.SYS_PTRACE)
	visible := []string{"sourced script", "environment of a sourced script", "second wrapper", "response file", "program in PATH",
		"program earlier in PATH", "specs in a -B folder", "new specs in a -B folder", "file that appears", "file that is removed",
		"listed folder", "link to a folder"}
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
		key, err := s.memoKey(commonQuery)
		if _, ok := f.Memo.Get(key); !ok || err != nil {
			t.Errorf("its answers are not remembered: %v", err)
		}
	})
}
