// Command aiterctl builds GPU operators ahead of time, looks after the kernel
// cache, and runs and checks operators.
package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"syscall"

	"github.com/aiter-go/aiter/internal/term"
)

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400) // most commands end before a collection would pay
	}
	os.Exit(run(os.Args[1:]))
}

// run is the whole program; it returns the exit code.
func run(args []string) int {
	ctx, end := signalContext()
	stdout := &outputWriter{to: os.Stdout, end: end}
	out := term.NewEscaper(stdout)
	a := &app{out: out, err: term.New(os.Stderr, &outputWriter{to: os.Stderr, end: end}), getenv: os.Getenv}
	root := newRoot(a)
	root.SetArgs(args)
	err := checkLineBreaks(args, os.Environ())
	if err == nil {
		err = root.ExecuteContext(ctx)
	}
	out.Flush()
	switch e := signalOf(ctx); {
	case e != nil && e.signal == syscall.SIGPIPE:
		return e.exitCode() // whoever closed it wants to hear no more
	case err == nil && stdout.firstError() == nil:
		return exitOK
	case err == nil:
		err = fmt.Errorf("print: %w", stdout.firstError())
	case e != nil:
		fmt.Fprintln(a.err, "aiterctl: interrupted")
		return e.exitCode()
	}
	a.report(err)
	return exitCode(err)
}
