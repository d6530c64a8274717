// Command aiterctl builds GPU operators ahead of time, looks after the kernel
// cache, and runs and checks operators.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
)

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400) // most commands end before a collection would pay
	}
	os.Exit(run(os.Args[1:]))
}

// run is the whole program; it returns the exit code.
func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal asks for an orderly end, the second one ends the program
	// though it may be inside a kernel that nobody can stop.
	context.AfterFunc(ctx, stop)
	a := newApp(os.Stdout, os.Stderr, os.Getenv)
	root := newRoot(a)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	if ctx.Err() != nil {
		fmt.Fprintln(a.err, "aiterctl: interrupted")
		return exitInterrupted
	}
	a.report(err)
	return exitCode(err)
}
