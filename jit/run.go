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
	out := process.Buffer{Limit: maxOutput}
	err := (&process.Command{Argv: c.argv, Dir: c.dir, Env: c.env, Output: &out, Grace: 5 * time.Second}).Run(ctx)
	if parent.Err() != nil {
		return outcome{}, context.Cause(parent)
	}
	return outcome{output: out.Bytes(), reason: failure(ctx, c, err), late: err != nil && ctx.Err() != nil}, nil
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
