package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// signalError is why the program ends before it is done: a signal, or that nobody
// reads what it prints any more, which is SIGPIPE.
type signalError struct{ signal syscall.Signal }

func (e *signalError) Error() string { return e.signal.String() }

// Unwrap makes it what other cancelled contexts say.
func (e *signalError) Unwrap() error { return context.Canceled }

// exitCode is the exit code: as a shell reports a program that the signal ended,
// except that SIGTERM has always been told as SIGINT is.
func (e *signalError) exitCode() int {
	if e.signal == syscall.SIGTERM {
		return exitInterrupted
	}
	return 128 + int(e.signal)
}

// signalOf is why ctx ended, nil when it has not.
func signalOf(ctx context.Context) *signalError {
	e, _ := errors.AsType[*signalError](context.Cause(ctx))
	return e
}

// signalContext returns a context that ends, with an [*ending], at the first
// signal that asks the program to end, or when end is called. So compilers are
// ended with the program whatever ends it: killed by a signal it would leave
// them behind.
func signalContext() (ctx context.Context, end func(syscall.Signal)) {
	ctx, cancel := context.WithCancelCause(context.Background())
	end = func(s syscall.Signal) { cancel(&signalError{s}) }
	asked := []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, asked...)
	if !signal.Ignored(syscall.SIGHUP) { // nohup
		signal.Notify(signals, syscall.SIGHUP)
	}
	// With somebody to tell of SIGPIPE a write into a pipe that nobody reads is an error (see output).
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	go func() {
		for s := range signals {
			end(s.(syscall.Signal))
			// The first signal asks for an orderly end, the second one ends the program though it
			// may be inside a kernel that nobody can stop. Not so SIGHUP: a terminal that is closed
			// sends it, and the shell once more.
			signal.Reset(asked...)
		}
	}()
	return ctx, end
}

// outputWriter is stdout or stderr. It ends the program when nobody reads it any
// more, and remembers the first write that failed.
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

// firstError is the error of the first write that failed.
func (o *outputWriter) firstError() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}
