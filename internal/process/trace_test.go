//go:build linux

package process

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// shell returns a command that runs a script in a new folder, and the folder.
func shell(t *testing.T, script string) (*Command, string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &Command{
		Argv: []string{"/bin/sh", "-c", script}, Dir: dir, Env: os.Environ(),
		Output: &Buffer{Limit: 1 << 20, Strict: true}, Grace: 10 * time.Second,
	}, dir
}

// TestTraceAccesses makes every kind of access, in the shell itself and in programs that it starts.
func TestTraceAccesses(t *testing.T) {
	c, dir := shell(t,
		`. ./sourced; cat sub/read >made; mv made moved; cat moved; [ -e absent ] || [ -e there ]; ls sub; readlink link; ./script`)
	for name, text := range map[string]string{"sourced": ":", "sub/read": "text", "there": "", "script": "#!/bin/sh\ncat <also"} {
		write(t, filepath.Join(dir, name), text, 0o755)
	}
	write(t, filepath.Join(dir, "also"), "too", 0o644)
	if err := os.Symlink("elsewhere", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	trace, err := c.Trace(t.Context())
	if err != nil {
		t.Fatalf("%v, printed %s", err, c.Output.Bytes())
	}
	if got := string(c.Output.Bytes()); got != "textread\nelsewhere\ntoo" {
		t.Errorf("printed %q", got)
	}
	var got []string
	for _, a := range trace.Accesses {
		if rest, ok := strings.CutPrefix(a.Path, dir+"/"); ok {
			got = append(got, string(a.Kind)+" "+rest)
		}
		if a.Inside {
			t.Errorf("%s is reported in another filesystem", a.Path)
		}
	}
	for _, want := range []string{"r sourced", "r sub/read", "m absent", "f there", "d sub", "l link", "r script", "r also"} {
		if !slices.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
	for _, a := range got {
		if strings.HasSuffix(a, " made") || strings.HasSuffix(a, " moved") {
			t.Errorf("%q was written by the command itself", a)
		}
	}
	if !slices.ContainsFunc(trace.Accesses, func(a Access) bool { return a.Program && strings.HasSuffix(a.Path, "/cat") }) {
		t.Error("cat was not executed")
	}
	if trace.Incomplete != "" {
		t.Errorf("incomplete: %s", trace.Incomplete)
	}
}

// TestTraceIdentifiesFiles checks that an access has the device and inode of the file that was read.
func TestTraceIdentifiesFiles(t *testing.T) {
	c, dir := shell(t, "cat file")
	write(t, filepath.Join(dir, "file"), "text", 0o644)
	trace, err := c.Trace(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(dir, "file"), &st); err != nil {
		t.Fatal(err)
	}
	want := Access{Kind: Read, Path: filepath.Join(dir, "file"), Dev: st.Dev, Ino: st.Ino}
	if !slices.Contains(trace.Accesses, want) {
		t.Errorf("no %+v in %+v", want, trace.Accesses)
	}
}

// both runs a command traced and untraced.
func both(t *testing.T, test func(t *testing.T, run func(c *Command, ctx context.Context) error)) {
	t.Run("untraced", func(t *testing.T) { test(t, (*Command).Run) })
	t.Run("traced", func(t *testing.T) {
		test(t, func(c *Command, ctx context.Context) error {
			_, err := c.Trace(ctx)
			return err
		})
	})
}

func TestExit(t *testing.T) {
	both(t, func(t *testing.T, run func(c *Command, ctx context.Context) error) {
		for script, want := range map[string]string{"exit 0": "", "exit 3": "exit status 3", "kill -9 $$": "signal: killed",
			"kill -TERM $$": "signal: terminated"} {
			c, _ := shell(t, script)
			err := run(c, t.Context())
			if got := errorText(err); got != want {
				t.Errorf("%s: error is %q, want %q", script, got, want)
			}
		}
	})
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestOverflow checks that endless output ends the command with its children, and takes no memory.
func TestOverflow(t *testing.T) {
	both(t, func(t *testing.T, run func(c *Command, ctx context.Context) error) {
		c, dir := shell(t, "sleep 60 & echo $! >pid; yes; yes")
		start := time.Now()
		var over *OverflowError
		if err := run(c, t.Context()); !errors.As(err, &over) || over.Limit != c.Output.Limit {
			t.Errorf("error is %v, want an OverflowError", err)
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("took %s", took)
		}
		if n := len(c.Output.Bytes()); n != c.Output.Limit {
			t.Errorf("kept %d bytes, want %d", n, c.Output.Limit)
		}
		gone(t, filepath.Join(dir, "pid"))
	})
}

// TestLongOutputWithoutStrict checks that the command continues after the limit.
func TestLongOutputWithoutStrict(t *testing.T) {
	both(t, func(t *testing.T, run func(c *Command, ctx context.Context) error) {
		c, _ := shell(t, "yes | head -c 3000000; exit 3")
		c.Output.Strict = false
		if err := run(c, t.Context()); errorText(err) != "exit status 3" {
			t.Errorf("error is %v", err)
		}
		if n := len(c.Output.Bytes()); n != c.Output.Limit {
			t.Errorf("kept %d bytes, want %d", n, c.Output.Limit)
		}
	})
}

func TestSeparateErrors(t *testing.T) {
	both(t, func(t *testing.T, run func(c *Command, ctx context.Context) error) {
		c, _ := shell(t, "echo out; echo err >&2")
		c.Errors = &Buffer{Limit: 100}
		if err := run(c, t.Context()); err != nil || string(c.Output.Bytes()) != "out\n" || string(c.Errors.Bytes()) != "err\n" {
			t.Errorf("got %q, %q, %v", c.Output.Bytes(), c.Errors.Bytes(), err)
		}
	})
}

func TestCancel(t *testing.T) {
	both(t, func(t *testing.T, run func(c *Command, ctx context.Context) error) {
		c, dir := shell(t, "sleep 60 & echo $! >pid; wait")
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		start := time.Now()
		if err := run(c, ctx); err == nil || ctx.Err() == nil {
			t.Errorf("error is %v", err)
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("took %s", took)
		}
		gone(t, filepath.Join(dir, "pid"))
	})
}

func TestTimeout(t *testing.T) {
	c, dir := shell(t, "echo out; sleep 60 & echo $! >pid; wait")
	c.Timeout = 300 * time.Millisecond
	err := c.Run(t.Context())
	if late, ok := errors.AsType[*TimeoutError](err); !ok || late.Limit != c.Timeout || string(c.Output.Bytes()) != "out\n" {
		t.Errorf("error is %v, output %q", err, c.Output.Bytes())
	}
	gone(t, filepath.Join(dir, "pid"))
	c, _ = shell(t, "exit 3")
	c.Timeout = time.Minute
	if exit, ok := errors.AsType[*exec.ExitError](c.Run(t.Context())); !ok || exit.ExitCode() != 3 {
		t.Error("an error without a timeout is not that of the program")
	}
}

func pidIn(t *testing.T, file string) int {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// state returns the letter for a process's state in /proc, "" if the process does not exist.
func state(pid int) string {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	return string(text[strings.LastIndexByte(string(text), ')')+2])
}

func gone(t *testing.T, file string) {
	t.Helper()
	pid := pidIn(t, file)
	for deadline := time.Now().Add(5 * time.Second); state(pid) != "" && state(pid) != "Z"; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d still exists", pid)
		}
	}
}

// TestTraceLeavesDaemons checks that a server that a compiler starts, such as sccache, continues after the trace.
func TestTraceLeavesDaemons(t *testing.T) {
	c, dir := shell(t, `setsid sh -c 'echo $$ >pid; while :; do sleep 0.05; echo x >>ticks; done' </dev/null >/dev/null 2>&1 &
		until [ -s ticks ]; do sleep 0.02; done`)
	if _, err := c.Trace(t.Context()); err != nil {
		t.Fatal(err)
	}
	pid := pidIn(t, filepath.Join(dir, "pid"))
	defer func() { _ = unix.Kill(-pid, unix.SIGKILL) }()
	before := len(readFile(t, filepath.Join(dir, "ticks")))
	for deadline := time.Now().Add(10 * time.Second); len(readFile(t,
		filepath.Join(dir, "ticks"))) < before+20; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the daemon does not continue; its state is %q", state(pid))
		}
	}
	if status := string(readFile(t, "/proc/"+strconv.Itoa(pid)+"/status")); !strings.Contains(status, "TracerPid:\t0") {
		t.Error("the daemon is still traced")
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestTraceThreads traces a program with many threads, any of which may execute another program.
func TestTraceThreads(t *testing.T) {
	c, dir := shell(t, "exec go version go.mod")
	write(t, filepath.Join(dir, "go.mod"), "module x\n", 0o644)
	trace, err := c.Trace(t.Context())
	if err != nil {
		t.Fatalf("%v: %s", err, c.Output.Bytes())
	}
	if !slices.ContainsFunc(trace.Accesses, func(a Access) bool { return a.Path == filepath.Join(dir, "go.mod") }) {
		t.Error("go.mod was not read")
	}
}

// TestTraceMany traces several commands in parallel, while others run untraced.
func TestTraceMany(t *testing.T) {
	for range 16 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			c, dir := shell(t, "for i in 1 2 3; do cat file | cat; done")
			write(t, filepath.Join(dir, "file"), "x", 0o644)
			if _, err := c.Trace(t.Context()); err != nil || string(c.Output.Bytes()) != "xxx" {
				t.Errorf("traced: %v, %q", err, c.Output.Bytes())
			}
			c.Output = &Buffer{Limit: 100}
			if err := c.Run(t.Context()); err != nil || string(c.Output.Bytes()) != "xxx" {
				t.Errorf("untraced: %v, %q", err, c.Output.Bytes())
			}
		})
	}
}

func TestUntraceable(t *testing.T) {
	c, dir := shell(t, "")
	c.Argv[0] = filepath.Join(dir, "none")
	var e *UntraceableError
	if _, err := c.Trace(t.Context()); !errors.As(err, &e) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error is %v", err)
	}
}

// TestTraceLeavesOtherChildren: the tracing thread may have started other programs for the host program, which waits for
// them itself. Here one ends during the trace, and one has ended before it.
func TestTraceLeavesOtherChildren(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ended, ends := exec.Command("true"), exec.Command("sleep", "0.2")
	for _, other := range []*exec.Cmd{ended, ends} {
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(time.Minute); state(ended.Process.Pid) != "Z"; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the first process did not end")
		}
	}
	c, dir := shell(t, `sleep 0.5; cat read; (sleep 0.1; cat read)`)
	write(t, filepath.Join(dir, "read"), "text", 0o644)
	out, err := c.pipes()
	if err != nil {
		t.Fatal(err)
	}
	tr := newTracer()
	err = tr.follow(t.Context(), c, out)
	out.finish(c.Grace)
	if err != nil || string(c.Output.Bytes()) != "texttext" {
		t.Errorf("traced: %v, printed %q", err, c.Output.Bytes())
	}
	for _, other := range []*exec.Cmd{ended, ends} {
		if err := other.Wait(); err != nil {
			t.Errorf("%v: %v", other.Args, err)
		}
	}
}
