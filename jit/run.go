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

// outcome is the result of a compiler or linker run.
type outcome struct {
	output   []byte // both streams in the order of their writes
	reason   string // why it failed, "" for success
	timedOut bool   // it was killed because of the time limit
}

// maxOutput bounds the stored output of a compiler, in bytes.
const maxOutput = 4 << 20

// newCommand returns a compiler or linker run in its own process group. Its Run kills the whole group when the context ends or
// the time limit has passed.
//
// If this process is killed, the kernel kills its direct children only. Children of a
// compiler's driver run until the next build kills them ([cache.Dir.SweepJobs]). So a program
// should cancel the context on the signals that it can catch.
func newCommand(argv []string, dir string, env []string, timeout time.Duration) *process.Command {
	return &process.Command{
		Argv: argv, Dir: dir, Env: env, Output: &process.Buffer{Limit: maxOutput}, Grace: 5 * time.Second, Timeout: timeout,
	}
}

// outcomeOf returns the outcome of a run, given the error of c.Run. A failed compiler is an outcome; the error is that of the
// context.
func outcomeOf(ctx context.Context, c *process.Command, err error) (outcome, error) {
	if ctx.Err() != nil {
		return outcome{}, context.Cause(ctx)
	}
	_, timedOut := errors.AsType[*process.TimeoutError](err)
	return outcome{output: c.Output.Bytes(), reason: failureReason(err), timedOut: timedOut}, nil
}

// failureReason describes how a run failed, "" for success.
func failureReason(err error) string {
	var (
		late *process.TimeoutError
		exit *exec.ExitError
	)
	switch {
	case err == nil:
		return ""
	case errors.As(err, &late):
		return late.Error() + "; if it needs more time, set timeout in the module's configuration"
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
