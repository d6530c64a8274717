// Command aiterservice lists what two inference services need of AMD's AIter, and builds it. AITER_CHECKOUT names a checkout of AIter.
//
// The program looks up each operator in the registry. For an operator that it finds it prints the module and the vendors; for each of the
// others it prints why it is missing. With --output it builds a prebuilt set of the modules found and no others, and prints the sizes of
// the libraries.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/aiter-go/aiter/registry"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "aiterservice:", err)
		os.Exit(1)
	}
}

// run prints the report to out. Help, and messages of the build, go to messages.
func run(ctx context.Context, args []string, out, messages io.Writer) error {
	flags := flag.NewFlagSet("aiterservice", flag.ContinueOnError)
	flags.SetOutput(messages)
	arch := flags.String("arch", "gfx942,gfx950", "`targets` of the set, with commas")
	output := flags.String("output", "", "write a prebuilt set to the `folder`; without it, nothing is built")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; the program has flags only", flags.Arg(0))
	}
	findings, err := lookUp(ctx, needs(), messages)
	if err != nil {
		return err
	}
	modules, err := report(out, findings)
	if err != nil || *output == "" {
		return err
	}
	if len(modules) == 0 {
		return errors.New("nothing to build: the checkout has none of the operators")
	}
	s, err := build(ctx, modules, *arch, *output, messages)
	if err != nil {
		return err
	}
	return s.print(out)
}

// finding is the result of a lookup.
type finding struct {
	need
	module  string   // in the registry; "": missing
	vendors []string // of the GPUs that the module supports: hip
	reason  string   // if it is missing
}

// lookUp looks up the operators in a registry that has those of the checkout.
func lookUp(ctx context.Context, list []need, messages io.Writer) ([]finding, error) {
	modules, err := checkoutModules(ctx, messages)
	if err != nil {
		return nil, err
	}
	reg, err := registry.Open(ctx, registry.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { _ = reg.Close() }()
	var out []finding
	for _, n := range list {
		f := finding{need: n}
		if op, err := reg.Lookup(n.name()); err != nil {
			f.reason = missingReason(modules, n.function)
		} else if name := op.Module(); !slices.ContainsFunc(modules, func(m aiterModule) bool { return slices.Contains(m.Declared, name) }) {
			f.reason = "the checkout lacks the sources of " + name
		} else {
			m, err := reg.Manager().Config().Module(name)
			if err != nil {
				return nil, err
			}
			f.module, f.vendors = name, m.Targets
		}
		out = append(out, f)
	}
	return out, nil
}

// missingReason returns the reason why the registry has no operator for a function of AIter.
func missingReason(modules []aiterModule, function string) string {
	i := slices.IndexFunc(modules, func(m aiterModule) bool { return slices.Contains(m.Operators, function) })
	if i < 0 {
		return "no module of the checkout has " + function
	}
	m := modules[i]
	var kinds []string
	for _, r := range m.Reasons {
		if !slices.Contains(kinds, r.What) {
			kinds = append(kinds, r.What)
		}
	}
	switch {
	case len(kinds) > 0:
		return m.Name + ": " + strings.Join(kinds, ", ")
	case len(m.Declared) > 0:
		return m.Name + ": no adapter for the function"
	}
	return m.Name + ": no adapter, although its state is possible"
}

// report prints the findings and returns the modules to build.
func report(out io.Writer, findings []finding) ([]string, error) {
	var modules []string
	operators := 0
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SERVICE\tNEED\tOPERATOR\tMODULE\tVENDORS")
	for _, f := range findings {
		if f.module == "" {
			continue
		}
		operators++
		if !slices.Contains(modules, f.module) {
			modules = append(modules, f.module)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", f.service, f.what, f.name(), f.module, strings.Join(f.vendors, ","))
	}
	fmt.Fprintln(w, "\nSERVICE\tNEED\tMISSING\tREASON")
	for _, f := range findings {
		if f.module == "" {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", f.service, f.what, f.function, f.reason)
		}
	}
	fmt.Fprintf(w, "\noperators found: %d of %d, modules: %d\n", operators, len(findings), len(modules))
	return modules, w.Flush()
}
