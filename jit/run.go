package jit

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"

	"github.com/aiter-go/aiter/internal/process"
)

// command is one compiler or linker run.
type command struct {
	argv    []string
	dir     string
	env     []string
	timeout time.Duration
}

// outcome is the result of a run.
type outcome struct {
	output   []byte // both streams in the order of their writes
	reason   string // why it failed, "" for success
	timedOut bool   // it was killed because of the time limit
}

// maxOutput bounds the stored output of a compiler, in bytes.
const maxOutput = 4 << 20

// run executes c in its own process group. It kills the whole group when the context ends or
// the time limit has passed. A failed compiler is an outcome; the error is that of the
// context.
//
// If this process is killed, the kernel kills its direct children only. Children of a
// compiler's driver run until the next build kills them ([cache.Dir.SweepJobs]). So a program
// should cancel the context on the signals that it can catch.
func (c command) run(parent context.Context) (outcome, error) {
	ctx, cancel := context.WithTimeout(parent, c.timeout)
	defer cancel()
	out := process.Buffer{Limit: maxOutput}
	err := (&process.Command{Argv: c.argv, Dir: c.dir, Env: c.env, Output: &out, Grace: 5 * time.Second}).Run(ctx)
	if parent.Err() != nil {
		return outcome{}, context.Cause(parent)
	}
	return outcome{output: out.Bytes(), reason: failureReason(ctx, c, err), timedOut: err != nil && ctx.Err() != nil}, nil
}

// failureReason describes how a run failed, "" for success.
func failureReason(ctx context.Context, c command, err error) string {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return ""
	case ctx.Err() != nil:
		return fmt.Sprintf("it ran longer than %s and was killed; if it needs more time, set timeout in the module's configuration", c.timeout)
	case errors.Is(err, exec.ErrWaitDelay):
		return "it exited, but a process that it had started kept its output open"
	case errors.As(err, &exit):
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return fmt.Sprintf("it was killed by a signal (%s); if the system ran out of memory, lower MAX_JOBS", ws.Signal())
		}
		return fmt.Sprintf("exit status %d", exit.ExitCode())
	default:
		return err.Error()
	}
}
