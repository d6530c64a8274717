// Command fleetsim simulates the start of a fleet: nodes that need the same modules compile them, or get them from a server or from
// each other. It prints its assumptions, and for each scenario when the nodes are ready, the compiles and the bytes. Flags change the
// assumptions.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "fleetsim:", err)
		os.Exit(1)
	}
}

// run runs the scenarios that the arguments select, and prints a report to out. Help goes to messages.
func run(args []string, out, messages io.Writer) error {
	var c config
	list := c.assumptions()
	flags := flag.NewFlagSet("fleetsim", flag.ContinueOnError)
	flags.SetOutput(messages)
	asJSON := flags.Bool("json", false, "print JSON")
	only := flags.String("run", "", "run the scenarios whose name matches a `REGEXP`")
	for _, a := range list {
		flags.Var(a.value, a.name, a.meaning)
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; the program has flags only", flags.Arg(0))
	}
	match, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	var results []result
	for _, s := range scenarios() {
		if match.MatchString(s.name) {
			results = append(results, s.run(c))
		}
	}
	if results == nil {
		return fmt.Errorf("-run %q: no scenario has such a name", *only)
	}
	if *asJSON {
		return printJSON(out, list, results)
	}
	_, err = fmt.Fprintf(out, "%s\n%s", assumptionsTable(list), resultsTable(results))
	return err
}

func printJSON(out io.Writer, list []assumption, results []result) error {
	values := map[string]any{}
	for _, a := range list {
		values[a.name] = a.value.Get()
	}
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	return enc.Encode(map[string]any{"assumptions": values, "results": results})
}
