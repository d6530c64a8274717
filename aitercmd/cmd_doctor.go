package aitercmd

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aiter-go/aiter/internal/spelling"
	"github.com/aiter-go/aiter/internal/term"
)

const doctorLong = `Check the variables, the caches, the configuration, the compilers and the devices of
this machine, and print commands that install what is missing. The command fails only if
this machine can neither build an operator nor load one from a prebuilt cache. Building
for the CPU needs neither a GPU nor a compiler for GPUs.`

// check is one check of doctor.
type check struct {
	Name   string `json:"name"`
	Status string `json:"status"` // ok, warning, missing or failed
	Detail string `json:"detail"`
	Hint   string `json:"hint"` // the command to type, "" for no hint

	err      error
	required bool // operators for the CPU need it
}

const (
	statusOK      = "ok"
	statusWarning = "warning" // it works, but not as requested
	statusMissing = "missing"
	statusFailed  = "failed"
)

func newDoctor(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check this machine, and print how to install what is missing",
		Long:  doctorLong,
		Args:  args(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return a.doctor(cmd.Context()) },
	}
}

func (a *app) doctor(ctx context.Context) error {
	var list []check
	for _, run := range []func(context.Context) []check{
		a.checkProgram, a.checkVariables, a.checkCache, a.checkReadOnlyCaches, a.checkRemote, a.checkConfig,
	} {
		list = append(list, run(ctx)...)
	}
	compilers := a.checkToolchains(ctx)
	usable := compilers[0].err == nil && !a.noCompile()
	list = append(append(list, compilers...), a.checkDevices(ctx)...)
	if verdict(list) == nil {
		list = append(list, a.checkHostBuild(ctx))
	}
	if verdict(list) == nil && !usable {
		list = append(list, a.checkPrebuilt(ctx, compilers[0]))
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	err := verdict(list)
	if a.json {
		return errors.Join(a.writeJSON(map[string]any{"ok": err == nil, "checks": list}), err)
	}
	a.printChecks(list)
	return err
}

// doctorError reports the required checks that fail. The checks have been printed.
type doctorError struct {
	names []string
	errs  []error
}

func (e *doctorError) Error() string {
	return "no operator can be built or loaded on this machine: " + strings.Join(e.names, ", ") + " failed"
}

func (e *doctorError) Unwrap() []error { return e.errs }

// verdict returns a [*doctorError] if a required check fails.
func verdict(list []check) error {
	e := new(doctorError)
	for _, c := range list {
		if c.required && c.err != nil {
			e.names, e.errs = append(e.names, c.Name), append(e.errs, c.err)
		}
	}
	if len(e.errs) == 0 {
		return nil
	}
	return e
}

// printChecks prints the checks as a table, then their hints.
func (a *app) printChecks(list []check) {
	rows := [][]string{}
	for _, c := range list {
		rows = append(rows, []string{c.Status, c.Name, a.detail(c)})
	}
	_ = a.table(rows) // outputWriter keeps the error
	heading := "\nto install what is missing, or fix it:\n"
	for _, c := range list {
		if c.Hint != "" {
			fmt.Fprintf(a.out, "%s  %s: %s\n", heading, c.Name, a.named(c.Hint))
			heading = ""
		}
	}
}

// maxDetail is the largest number of characters of a detail in the table.
const maxDetail = 120

// detail returns the details of a check, shortened unless --verbose.
func (a *app) detail(c check) string {
	if a.verbose {
		return strings.ReplaceAll(c.Detail, "\n", "; ")
	}
	line, _, _ := strings.Cut(c.Detail, "\n")
	return term.Truncate(line, maxDetail)
}

func (a *app) checkProgram(context.Context) []check {
	v := a.version()
	return []check{{
		Name: a.program.Name, Status: statusOK,
		Detail: fmt.Sprintf("%s, built with %s for %s/%s, %d processors", v.Version, v.Go, v.OS, v.Arch, runtime.NumCPU()),
	}}
}

func (a *app) checkConfig(context.Context) []check {
	c := check{Name: "configuration", Status: statusOK, required: true}
	cfg, err := a.loadConfig()
	if err != nil {
		c.fail(err)
		return []check{c}
	}
	ops := 0
	for _, m := range cfg.Modules {
		ops += len(m.Ops)
	}
	c.Detail = fmt.Sprintf("%s: %s, %s", strings.Join(configFiles(cfg.Joined()), ", "), spelling.Count(len(cfg.Modules), "module"),
		spelling.Count(ops, "operator"))
	return []check{c}
}

// fail records an error, with the hints of that error.
func (c *check) fail(err error) {
	c.Status, c.Detail, c.err = statusFailed, err.Error(), err
	c.Hint = strings.Join(hints(err), "; ")
}
