package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aiter-go/aiter/internal/term"
)

const doctorLong = `Look at what this machine has, in the order in which a build needs it, and say
what is missing and what to type. It fails only when code for the CPU cannot be
built and loaded; compilers for GPUs and GPUs are not needed for that.`

// check is one thing that doctor looked at.
type check struct {
	Name   string `json:"name"`
	Status string `json:"status"` // ok, warning, missing or failed
	Detail string `json:"detail"`
	Hint   string `json:"hint"` // what to type, "" for nothing

	err      error
	required bool // without it nothing works
}

const (
	statusOK      = "ok"
	statusWarning = "warning" // it works, and not as was asked for
	statusMissing = "missing"
	statusFailed  = "failed"
)

func newDoctor(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Say what is found, what is missing, and what to type",
		Long:  doctorLong,
		Args:  args(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return a.doctor(cmd.Context()) },
	}
}

func (a *app) doctor(ctx context.Context) error {
	var list []check
	for _, look := range []func(context.Context) []check{
		a.checkProgram, a.checkCache, a.checkReadOnlyCaches, a.checkConfig, a.checkToolchains, a.checkDevices,
	} {
		list = append(list, look(ctx)...)
	}
	if verdict(list) == nil {
		list = append(list, a.checkHostPath(ctx))
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

// doctorError says which of the required things fail. The checks have been
// printed with all details.
type doctorError struct {
	names []string
	errs  []error
}

func (e *doctorError) Error() string {
	return "operators cannot be built and loaded for the cpu here: " + strings.Join(e.names, ", ") + " failed"
}

func (e *doctorError) Unwrap() []error { return e.errs }

// verdict is a [*doctorError] when something required fails.
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

func (a *app) printChecks(list []check) {
	rows := [][]string{}
	for _, c := range list {
		rows = append(rows, []string{c.Status, c.Name, a.detail(c)})
	}
	// stdout that is gone is noticed by whoever closed it
	_ = a.table(rows)
	heading := "\nto add what is missing, or mend it:\n"
	for _, c := range list {
		if c.Hint != "" {
			fmt.Fprintf(a.out, "%s  %s: %s\n", heading, c.Name, c.Hint)
			heading = ""
		}
	}
}

// maxDetail is how many characters of a detail fit into the table.
const maxDetail = 120

// detail is cut to fit, unless --verbose.
func (a *app) detail(c check) string {
	if a.verbose {
		return strings.ReplaceAll(c.Detail, "\n", "; ")
	}
	line, _, _ := strings.Cut(c.Detail, "\n")
	return term.Truncate(line, maxDetail)
}

func (a *app) checkProgram(context.Context) []check {
	v := thisVersion()
	return []check{{
		Name: "aiterctl", Status: statusOK,
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
	from := firstOf(a.sourceRoot(), "in this program")
	c.Detail = fmt.Sprintf("%s (%s): %d modules, %d operators", a.settings().ConfigPath(), from, len(cfg.Modules), ops)
	return []check{c}
}

// fail notes an error, with the hint that the error itself would get.
func (c *check) fail(err error) {
	c.Status, c.Detail, c.err = statusFailed, err.Error(), err
	c.Hint = strings.Join(hints(err), "; ")
}
