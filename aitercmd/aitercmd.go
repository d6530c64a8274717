// Package aitercmd is the program aiterctl as a package. A program that calls [Main] has all commands of aiterctl for its
// own operators: build, run, test, bench, inspect, watch and the others.
//
//	func main() {
//		aitercmd.Main(aitercmd.Program{
//			Modules:   []registry.Source{scaledadd.Module()},
//			Operators: []optests.Operator{cases.Operator()},
//		})
//	}
//
// The commands test, bench, tune and profile need the cases and the reference of an operator. [Program].Operators declares
// them.
// The command aiterctl new operator writes such a program.
package aitercmd

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/aiter-go/aiter/internal/term"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/op_tests/aiterops"
	"github.com/aiter-go/aiter/registry"
)

// Program is a program with the commands of aiterctl.
type Program struct {
	// Name is the program's name in messages; default: the name of the executable file.
	Name string
	// Version and Revision identify the program; default: those of the main module, as the go command
	// stores them in the executable file.
	Version, Revision string
	// Modules are sources of operators, see [registry.Options].Modules. Flags and variables such as --root replace them
	// by folders.
	Modules []registry.Source
	// NoBuiltin leaves out the operators of aiter.
	NoBuiltin bool
	// Operators declare the cases and references of operators in Modules. The commands test, bench, tune, profile,
	// run --verify and watch --test need them; other commands do not. AITER_VERIFY compares calls with the references.
	Operators []optests.Operator
}

// Main runs the command of the program's arguments and exits with its code. Signals end the command; aiterctl exit-codes
// lists the codes.
func Main(p Program) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400) // most commands end before a collection would help
	}
	os.Exit(p.Run(signalContext(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// Run runs the command line args, which does not contain the program's name, and returns the exit code. It handles no
// signals; the command ends when ctx is canceled. The command watch reads the Enter key from stdin, which may be nil.
// Results go to stdout, all other text to stderr. Paths are relative to the working directory of the process, and the
// command reads the environment of the process.
func (p Program) Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	end := func(s syscall.Signal) { cancel(&signalError{s}) }
	results := &outputWriter{to: stdout, end: end}
	out := term.NewEscaper(results)
	p.Name = nameOr(p.Name)
	a := &app{
		program: p, in: stdin, out: out, width: term.Width(asFile(stdout)),
		err: term.New(asFile(stderr), &outputWriter{to: stderr, end: end}), getenv: os.Getenv, args: args,
	}
	a.operator = namedOperator(args, a.declaredNames())
	err := a.execute(ctx)
	out.Flush()
	switch e := signalOf(ctx); {
	case e != nil && e.signal == syscall.SIGPIPE:
		return e.exitCode() // no process reads the output
	case err == nil && results.firstError() == nil:
		return exitOK
	case err == nil:
		err = fmt.Errorf("print: %w", results.firstError())
	case e != nil:
		fmt.Fprintf(a.err, "%s: interrupted\n", p.Name)
		return e.exitCode()
	}
	a.report(err)
	return exitCode(err)
}

// nameOr returns the name, or that of the executable file.
func nameOr(name string) string {
	if name == "" {
		name = strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe")
	}
	return name
}

// asFile returns w if it is a file, else nil.
func asFile(w io.Writer) *os.File {
	f, _ := w.(*os.File)
	return f
}

// execute runs the command of the arguments.
func (a *app) execute(ctx context.Context) error {
	root := newRoot(a)
	root.SetArgs(a.args)
	if err := checkLineBreaks(a.args, os.Environ()); err != nil {
		return err
	}
	if err := a.program.check(); err != nil {
		return err
	}
	return root.ExecuteContext(ctx)
}

// check verifies the declarations of operators.
func (p Program) check() error {
	names := map[string]bool{}
	for i, op := range p.Operators {
		switch {
		case op.Name == "" || op.Reference == nil:
			return fmt.Errorf("%s: Program.Operators[%d] %q: expected a Name and a Reference", p.Name, i, op.Name)
		case names[op.Name]:
			return fmt.Errorf("%s: Program.Operators[%d]: %s is declared twice", p.Name, i, op.Name)
		}
		names[op.Name] = true
	}
	return nil
}

// references returns the references with which AITER_VERIFY compares calls: those of the declared operators, and of AIter's.
func (p Program) references() map[string]registry.Reference {
	list := aiterops.References()
	for _, op := range p.Operators {
		list[op.Name] = op.Verification()
	}
	return list
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
