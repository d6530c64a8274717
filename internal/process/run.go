//go:build linux

package process

import (
	"context"
	"errors"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Run executes the command and waits for its end. It kills the process group if the context ends, if the program runs longer
// than Timeout, if a buffer with Strict set overflows, or if a child keeps the output open for longer than Grace. The kernel
// kills the program itself if this process dies. The error is that of exec.Cmd.Run, an *OverflowError or a *TimeoutError.
func (c *Command) Run(parent context.Context) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	if c.Timeout > 0 {
		timer := time.AfterFunc(c.Timeout, func() { cancel(&TimeoutError{Limit: c.Timeout}) })
		defer timer.Stop()
	}
	c.bound(cancel)
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Dir, cmd.Env = c.Dir, c.Env
	cmd.Stdout, cmd.Stderr = c.Output, c.Output
	if c.Errors != nil {
		cmd.Stderr = c.Errors
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = c.Grace
	runtime.LockOSThread() // Pdeathsig kills the process when the thread that started it ends
	defer runtime.UnlockOSThread()
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		// Children of the ended program may still run in its group.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	if over := overflow(ctx); over != nil {
		return over
	}
	if late, ok := errors.AsType[*TimeoutError](context.Cause(ctx)); ok && err != nil {
		return late
	}
	return err
}

// bound makes strict buffers cancel the command when they overflow.
func (c *Command) bound(cancel context.CancelCauseFunc) {
	for _, b := range []*Buffer{c.Output, c.Errors} {
		if b != nil && b.Strict {
			b.full = func() { cancel(&OverflowError{Limit: b.Limit}) }
		}
	}
}

// overflow returns the *OverflowError that ended ctx, nil if ctx has another cause.
func overflow(ctx context.Context) error {
	var over *OverflowError
	if errors.As(context.Cause(ctx), &over) {
		return over
	}
	return nil
}
