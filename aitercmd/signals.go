package aitercmd

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// signalError is the cause of a cancelled context: a signal, or SIGPIPE if no process
// reads the output.
type signalError struct{ signal syscall.Signal }

func (e *signalError) Error() string { return e.signal.String() }

// Unwrap returns context.Canceled.
func (e *signalError) Unwrap() error { return context.Canceled }

// exitCode returns 128 plus the signal's number, as shells report it. SIGTERM has the
// exit code of SIGINT.
func (e *signalError) exitCode() int {
	if e.signal == syscall.SIGTERM {
		return exitInterrupted
	}
	return 128 + int(e.signal)
}

// signalOf returns the signal that ended ctx, nil if none has.
func signalOf(ctx context.Context) *signalError {
	e, _ := errors.AsType[*signalError](context.Cause(ctx))
	return e
}

// signalContext returns a context that the first signal cancels with a [*signalError]. The program then ends its compilers, which
// would keep running if the signal killed it.
func signalContext() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	terminating := []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, terminating...)
	if !signal.Ignored(syscall.SIGHUP) { // nohup
		signal.Notify(signals, syscall.SIGHUP)
	}
	// With a receiver of SIGPIPE, a write to a pipe without a reader returns an error (see outputWriter) and does not end the program.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	go func() {
		for s := range signals {
			cancel(&signalError{s.(syscall.Signal)})
			// The first signal cancels the context. The second one kills the program, which may
			// be inside a kernel that cannot be interrupted. A second SIGHUP does not: when a
			// terminal closes, both the terminal and the shell send one.
			signal.Reset(terminating...)
		}
	}()
	return ctx
}

// outputWriter is stdout or stderr. It cancels the program's context when no process
// reads the output, and keeps the error of the first write that failed.
type outputWriter struct {
	to  io.Writer
	end func(syscall.Signal)

	mu  sync.Mutex
	err error
}

// Write implements io.Writer.
func (o *outputWriter) Write(p []byte) (int, error) {
	n, err := o.to.Write(p)
	if errors.Is(err, syscall.EPIPE) {
		o.end(syscall.SIGPIPE)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// firstError returns the error of the first write that failed.
func (o *outputWriter) firstError() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}
