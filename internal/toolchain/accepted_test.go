package toolchain

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/internal/filehash"
	"github.com/aiter-go/aiter/jit/target"
)

// Each real compiler accepts a known flag and refuses a misspelled one.
func TestAccepted(t *testing.T) {
	for _, r := range reals() {
		t.Run(r.name, func(t *testing.T) {
			known, wrong := []string{"-fno-exceptions"}, []string{"-fno-exeptions"}
			switch {
			case r.name == "cuda":
				known, wrong = []string{"-Xcompiler", "-fno-exceptions"}, []string{"-Xcompiler", "-fno-exeptions"}
			case r.name != "cpu":
				known, wrong = []string{"-mllvm", "-amdgpu-early-inline-all=true"}, []string{"-mllvm", "-amdgpu-early-inline-alll=true"}
			}
			got, err := r.find(t).Accepted(t.Context(), [][]string{wrong, known, wrong})
			if err != nil || len(got) != 1 || !slices.Equal(got[0], known) {
				t.Errorf("got %q, %v, want %q", got, err, known)
			}
		})
	}
}

// script returns a toolchain of a shell script, which adds its arguments to the file log.
func script(t *testing.T, text string) (tc *Toolchain, log string) {
	t.Helper()
	dir := t.TempDir()
	log = filepath.Join(dir, "log")
	compiler := filepath.Join(dir, "c++")
	if err := os.WriteFile(compiler, fmt.Appendf(nil, "#!/bin/sh\necho \"$@\" >>%s\n%s\n", log, text), 0o755); err != nil {
		t.Fatal(err)
	}
	return &Toolchain{Vendor: target.CPU, Compiler: compiler, Digest: "d", memo: filehash.Open(filepath.Join(dir, "memo"))}, log
}

// A compiler runs once for a flag, and once without a flag that it refuses. The memo of a later process has the answers.
func TestAcceptedRunsOnce(t *testing.T) {
	tc, log := script(t, `for a; do [ "$a" = -bad ] && exit 1; done; exit 0`)
	for range 2 {
		got, err := tc.Accepted(t.Context(), [][]string{{"-good"}, {"-bad"}})
		if err != nil || len(got) != 1 || !slices.Equal(got[0], []string{"-good"}) {
			t.Errorf("got %q, %v", got, err)
		}
	}
	if err := tc.memo.Save(); err != nil {
		t.Fatal(err)
	}
	tc.memo = filehash.Open(filepath.Join(filepath.Dir(log), "memo"))
	if _, err := tc.Accepted(t.Context(), [][]string{{"-good"}, {"-bad"}}); err != nil {
		t.Error(err)
	}
	const base = "-fsyntax-only -x c++ /dev/null"
	if got := string(read(t, log)); got != base+" -good\n"+base+" -bad\n"+base+"\n" {
		t.Errorf("the compiler ran with\n%s", got)
	}
	tc.Digest = "of another compiler"
	_, err := tc.Accepted(t.Context(), [][]string{{"-good"}})
	if got := string(read(t, log)); err != nil || !strings.HasSuffix(got, base+"\n"+base+" -good\n") {
		t.Errorf("the answer of one compiler is that of another: the compilers ran with\n%s, error %v", got, err)
	}
}

// A compiler that fails without the flag, or is killed, has given no answer, and nothing is kept.
func TestAcceptedFails(t *testing.T) {
	for _, text := range []string{"echo no license; exit 1", `for a; do [ "$a" = -good ] && kill -9 $$; done; exit 0`} {
		tc, _ := script(t, text)
		var probe *ProbeError
		if got, err := tc.Accepted(t.Context(), [][]string{{"-good"}}); !errors.As(err, &probe) {
			t.Errorf("%s: got %q, %v, want a *ProbeError", text, got, err)
		}
		if answer, ok := tc.memo.Get("accepts\x00d\x00-good"); ok {
			t.Errorf("%s: the memo has %q", text, answer)
		}
	}
	tc, _ := script(t, "exit 1")
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stopped)
	if _, err := tc.Accepted(ctx, [][]string{{"-good"}}); !errors.Is(err, stopped) {
		t.Errorf("canceled: got %v, want the cause", err)
	}
}
