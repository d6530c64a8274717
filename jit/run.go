package jit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// command is one compiler or linker run.
type command struct {
	argv    []string
	dir     string
	env     []string
	timeout time.Duration
}

// outcome is how a run ended.
type outcome struct {
	output []byte // what it printed, both streams as they came
	reason string // why it counts as failed; "" when it did not
	late   bool   // the reason is the time limit
}

// maxOutput bounds what is kept of a compiler's output, in bytes.
const maxOutput = 4 << 20

// run executes c in a process group of its own, which ends as a whole when
// the context ends or the time is up. When this process is killed, only what it
// started dies with it; what a compiler's driver started goes on until the next
// build ends it (cache.Dir.Sweep). So a program that builds should end the
// context at the signals that it can catch. The error is the context's; a
// compiler that failed is no error here.
func (c command) run(parent context.Context) (outcome, error) {
	ctx, cancel := context.WithTimeout(parent, c.timeout)
	defer cancel()
	var out limitedBuffer
	cmd := exec.CommandContext(ctx, c.argv[0], c.argv[1:]...)
	cmd.Dir, cmd.Env = c.dir, c.env
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	err := runOnThread(cmd)
	if parent.Err() != nil {
		return outcome{}, context.Cause(parent)
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		// It ended and left a child behind, which kept the group alive.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	return outcome{output: out.buf.Bytes(), reason: failure(ctx, c, err), late: err != nil && ctx.Err() != nil}, nil
}

// runOnThread keeps the thread that starts the process until it ends:
// Pdeathsig fires when that thread dies, not the process.
func runOnThread(cmd *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return cmd.Run()
}

func failure(ctx context.Context, c command, err error) string {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return ""
	case ctx.Err() != nil:
		return fmt.Sprintf("it had not ended after %s and was killed; if it needs longer, set timeout in the module's configuration", c.timeout)
	case errors.Is(err, exec.ErrWaitDelay):
		return "it ended but left a process behind that kept its output open"
	case errors.As(err, &exit):
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return fmt.Sprintf("it was killed by a signal (%s); if the system ran out of memory, lower MAX_JOBS", ws.Signal())
		}
		return fmt.Sprintf("exit status %d", exit.ExitCode())
	default:
		return err.Error()
	}
}

// limitedBuffer keeps the first bytes of what is written to it.
type limitedBuffer struct{ buf bytes.Buffer }

// Write implements io.Writer; it never fails, so that a talkative compiler
// goes on.
func (b *limitedBuffer) Write(p []byte) (int, error) {
	b.buf.Write(p[:min(len(p), max(maxOutput-b.buf.Len(), 0))])
	return len(p), nil
}
