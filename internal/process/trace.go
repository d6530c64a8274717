//go:build linux

package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Trace is like Run, and returns the names that the command and its children looked up. Traced set-user-ID programs run
// without their privileges. Children that outlive the program continue untraced, except those of Clang, which are killed.
// It ignores Timeout. It fails with [*UntraceableError] and the errors of Run.
func (c *Command) Trace(parent context.Context) (*Trace, error) {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	c.bound(cancel)
	out, err := c.pipes()
	if err != nil {
		return nil, err
	}
	t := newTracer()
	err = t.run(ctx, c, out)
	out.finish(c.Grace)
	switch over := overflow(ctx); {
	case over != nil:
		return nil, over
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return t.trace(), err
}

// run starts the command on a new thread, the only one that may trace it, and waits for its end.
func (t *tracer) run(ctx context.Context, c *Command, out *pipes) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		done <- t.follow(ctx, c, out)
	}()
	return <-done
}

// follow starts the command and traces it. It must run on the thread that traces.
func (t *tracer) follow(ctx context.Context, c *Command, out *pipes) error {
	if len(t.rules) == 0 {
		out.closeWriters()
		return &UntraceableError{errNoTracer}
	}
	p, err := os.StartProcess(c.Argv[0], c.Argv, &os.ProcAttr{
		Dir: c.Dir, Env: c.Env, Files: []*os.File{out.null, out.writers[0], out.writers[1]},
		Sys: &syscall.SysProcAttr{Setpgid: true, Ptrace: true, Pdeathsig: syscall.SIGKILL},
	})
	out.closeWriters()
	if err != nil {
		return &UntraceableError{err}
	}
	pid := p.Pid
	defer func() { _ = p.Release() }()
	stop := context.AfterFunc(ctx, func() { _ = unix.Kill(-pid, unix.SIGKILL) })
	defer stop()
	status, err := t.loop(pid)
	t.endTracing(err != nil || ctx.Err() != nil)
	if err != nil {
		return &UntraceableError{err}
	}
	return exitError(status)
}

func exitError(ws unix.WaitStatus) error {
	switch {
	case ws.Signaled():
		return fmt.Errorf("signal: %s", ws.Signal())
	case ws.ExitStatus() != 0:
		return fmt.Errorf("exit status %d", ws.ExitStatus())
	}
	return nil
}

// pipes carry a command's output to its buffers.
type pipes struct {
	null    *os.File
	readers []*os.File
	writers [2]*os.File
	copying sync.WaitGroup
}

func (c *Command) pipes() (*pipes, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	p := &pipes{null: null}
	buffers := []*Buffer{c.Output, c.Errors}
	for i, b := range buffers {
		if b == nil {
			p.writers[i] = p.writers[0]
			continue
		}
		r, w, err := os.Pipe()
		if err != nil {
			p.closeWriters()
			p.finish(0)
			return nil, err
		}
		p.readers, p.writers[i] = append(p.readers, r), w
		p.copying.Go(func() { _, _ = io.Copy(b, r) })
	}
	return p, nil
}

func (p *pipes) closeWriters() {
	p.null.Close()
	for _, w := range p.writers {
		if w != nil {
			w.Close() // closing a file twice is harmless
		}
	}
}

// finish waits until all output has arrived. If children keep it open, it waits for at most grace.
func (p *pipes) finish(grace time.Duration) {
	timer := time.AfterFunc(grace, func() {
		for _, r := range p.readers {
			_ = r.SetReadDeadline(time.Now())
		}
	})
	p.copying.Wait()
	timer.Stop()
	for _, r := range p.readers {
		r.Close()
	}
}

var errNoTracer = errors.New("tracing is not available for this architecture")
