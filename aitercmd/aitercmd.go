// Package aitercmd has the commands of aiterctl. aiterctl builds GPU operators ahead of time, manages the kernel cache, and
// runs and checks operators.
package aitercmd

import (
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/aiter-go/aiter/internal/term"
)

// Main runs the command of the program's arguments and exits.
func Main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400) // most commands end before a collection would help
	}
	os.Exit(run(os.Args[1:]))
}

// run runs the command of the arguments and returns the exit code.
func run(args []string) int {
	ctx, end := signalContext()
	stdout := &outputWriter{to: os.Stdout, end: end}
	out := term.NewEscaper(stdout)
	a := &app{out: out, width: term.Width(os.Stdout), err: term.New(os.Stderr, &outputWriter{to: os.Stderr, end: end}), getenv: os.Getenv, args: args}
	a.operator = namedOperator(args)
	root := newRoot(a)
	root.SetArgs(args)
	err := checkLineBreaks(args, os.Environ())
	if err == nil {
		err = root.ExecuteContext(ctx)
	}
	out.Flush()
	switch e := signalOf(ctx); {
	case e != nil && e.signal == syscall.SIGPIPE:
		return e.exitCode() // no process reads the output
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

// checkLineBreaks returns an error for arguments and variables with a line break. The text
// after a line break in a path would be a line of its own in the output, and
// [term.Escaper] cannot distinguish it from the program's lines.
func checkLineBreaks(args, environ []string) error {
	for _, arg := range args {
		if strings.Contains(arg, "\n") {
			return usagef("the argument %q has a line break; expected one line (rename the file or folder)", arg)
		}
	}
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		if strings.Contains(value, "\n") && readsVariable(name) {
			return usagef("the variable %s has a line break: %q; expected one line", name, value)
		}
	}
	return nil
}

// readsVariable reports whether the program or its libraries read a path, a name or a
// list from the variable.
func readsVariable(name string) bool {
	return strings.HasPrefix(name, "AITER_") || slices.ContainsFunc(variables(), func(v variable) bool { return v.name == name }) ||
		slices.Contains([]string{"HOME", "XDG_CACHE_HOME", "TMPDIR", "PATH", "PWD", "LD_LIBRARY_PATH"}, name)
}
