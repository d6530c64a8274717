package aitercmd

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/aiter-go/aiter/internal/testenv"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){aiterctl: func() { Main(Program{Name: aiterctl}) }})
}

// TestScript runs the real main on the scripts of testdata/script. Besides
// testscript's own commands they have:
//
//	exits CODE PROGRAM ARG...   the program ends with that exit code
//	waitfor FILE                wait until the file exists
//	waitline FILE REGEXP [N]    wait until N lines of the file match (default 1)
//	replace FILE OLD NEW        replace text in a file
//
// The condition [mounts] is true if unshare may mount filesystems.
func TestScript(t *testing.T) {
	resetHangups(t)
	testscript.Run(t, testscript.Params{
		Dir:   "testdata/script",
		Setup: setup,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "waitfor": waitFor, "replace": replace, "waitline": waitLine,
		},
		Condition:          condition,
		RequireUniqueNames: true,
	})
}

// resetHangups gives child processes the default action for SIGHUP. Below nohup they would ignore
// the signal; exec resets the action if this process handles it.
func resetHangups(t *testing.T) {
	if !signal.Ignored(syscall.SIGHUP) {
		return
	}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	t.Cleanup(func() { signal.Ignore(syscall.SIGHUP) })
}

// setup gives each script its own home and cache, unsets the variables that aiterctl reads, and
// sets $AITER to the checkout and $SHARED_CACHE to the cache that the tests of all packages share.
func setup(env *testscript.Env) error {
	for _, name := range []string{
		"AITER_META_DIR", "AITER_CONFIG", "AITER_JIT_PATH", "AITER_JIT_MAX_SIZE", "AITER_JIT_MAX_AGE", "AITER_JIT_MAX_COUNT", "AITER_LOG_LEVEL",
		"AITER_CHECKOUT",
		"AITER_REBUILD", "AITER_TRUST_JIT_DIR", "AITER_TOOLCHAIN_ROOT", "AITER_VERIFY", "AITER_RELOAD", "AITER_NO_COMPILE", "AITER_NUM_THREADS",
		"AITER_CPU_ISA",
		"GPU_ARCHS", "MAX_JOBS", "HIPCC", "ROCM_PATH", "ROCM_HOME", "NVCC", "CUDA_HOME", "CUDA_PATH", "CXX", "XDG_CACHE_HOME",
	} {
		env.Setenv(name, "")
	}
	root, err := filepath.Abs("..")
	if err != nil {
		return err
	}
	env.Setenv("AITER", root)
	env.Setenv("NEWLINE", "two\nlines") // scripts cannot contain it
	env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
	env.Setenv("AITER_JIT_DIR", filepath.Join(env.WorkDir, "cache"))
	env.Setenv("GORACE", os.Getenv("GORACE")) // settings of the race detector
	shared, err := testenv.SharedCache()
	env.Setenv("SHARED_CACHE", shared)
	return err
}

func condition(name string) (bool, error) {
	if name != "mounts" {
		return false, fmt.Errorf("unknown condition %q", name)
	}
	return exec.Command("unshare", "-rm", "mount", "-t", "tmpfs", "none", os.TempDir()).Run() == nil, nil
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARG...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	err = ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		got = exit.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func waitFor(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: waitfor FILE")
	}
	const limit = 60 * time.Second
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(ts.MkAbs(args[0])); err == nil {
			return
		}
	}
	ts.Fatalf("%s did not appear within %s", args[0], limit)
}

func waitLine(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: waitline FILE REGEXP [N]")
	}
	pattern, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	want := 1
	if len(args) == 3 {
		want, err = strconv.Atoi(args[2])
		ts.Check(err)
	}
	const limit = 60 * time.Second
	var text []byte
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		text, _ = os.ReadFile(ts.MkAbs(args[0])) // the file may not exist yet
		if len(pattern.FindAll(text, -1)) >= want {
			return
		}
	}
	ts.Fatalf("%s: no %d lines that match %s within %s:\n%s", args[0], want, args[1], limit, text)
}

func replace(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: replace FILE OLD NEW")
	}
	text := ts.ReadFile(args[0])
	changed := strings.Replace(text, args[1], args[2], 1)
	if changed == text {
		ts.Fatalf("%s does not contain %q", args[0], args[1])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(changed), 0o644))
}
