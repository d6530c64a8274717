package aitercmd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/aiter-go/aiter/internal/settings"
)

const envLong = `Print each setting with its value, and whether a flag, a variable or the default
supplies it. The shared flags of this command line count too. The command also lists
variables with the prefix AITER_ that nothing reads, because they are probably misspelled.`

// envReport is the output of env --json.
type envReport struct {
	Variables []envItem         `json:"variables"`
	Unknown   []unknownVariable `json:"unknown"`
}

// envItem is a setting with its value.
type envItem struct {
	Name  string `json:"name"`
	Value string `json:"value"` // of a flag or variable, else of the default
	From  string `json:"from"`  // "flag", "variable" or "default"
	Flag  string `json:"flag"`  // the flag that wins over the variable, or ""
	Usage string `json:"usage"`
}

func newEnv(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "env",
		Short:   "Print the settings and their sources",
		Long:    envLong,
		Example: "  aiterctl env\n  aiterctl env --cache-dir /data/kernels --json",
		Args:    args(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.printEnv(cmd) },
	}
}

func (a *app) printEnv(cmd *cobra.Command) error {
	r := envReport{Unknown: nonNil(unknownVariables(os.Environ(), a.configVariables()))}
	for _, v := range variables() {
		r.Variables = append(r.Variables, a.envItem(cmd, v))
	}
	if a.json {
		return a.writeJSON(r)
	}
	rows := [][]string{{"VARIABLE", "FROM", "VALUE"}}
	for _, x := range r.Variables {
		from := x.From
		if from == fromFlag {
			from = "--" + x.Flag
		}
		rows = append(rows, []string{x.Name, from, x.Value})
	}
	if err := a.table(rows); err != nil {
		return err
	}
	if len(r.Unknown) > 0 {
		fmt.Fprintln(a.out)
	}
	for _, u := range r.Unknown {
		fmt.Fprintf(a.out, "warning: %s\n", u)
	}
	return nil
}

const (
	fromFlag     = "flag"
	fromVariable = "variable"
	fromDefault  = "default"
)

// envItem returns the value of a variable, and its source.
func (a *app) envItem(cmd *cobra.Command, v variable) envItem {
	x := envItem{Name: v.name, Usage: v.usage, Flag: v.flag, From: fromDefault, Value: v.preset}
	if f := cmd.Flag(v.flag); v.flag != "" && f != nil && f.Changed {
		x.From, x.Value = fromFlag, f.Value.String()
		if list, ok := f.Value.(pflag.SliceValue); ok {
			x.Value = strings.Join(list.GetSlice(), string(filepath.ListSeparator))
		}
	} else if value := a.getenv(v.name); value != "" {
		x.From, x.Value = fromVariable, value
	}
	if v.name == "AITER_JIT_DIR" && x.From == fromDefault {
		if dir, err := settings.CacheDir("", a.getenv); err == nil {
			x.Value = dir
		}
	}
	return x
}

// configVariables returns the variables that the configurations name; none if they cannot be read.
func (a *app) configVariables() []string {
	cfg, err := a.settings().LoadConfig()
	if err != nil {
		return nil // other checks report it
	}
	var names []string
	for _, c := range cfg.Joined() {
		names = append(names, c.Variables...)
	}
	return names
}

// checkVariables checks that all AITER_ variables exist and that the values of settings are
// valid.
func (a *app) checkVariables(context.Context) []check {
	c := check{Name: "variables", Status: statusOK, Detail: "aiterctl env prints the settings"}
	if unknown := unknownVariables(os.Environ(), a.configVariables()); len(unknown) > 0 {
		c.Status, c.Detail, c.Hint = statusWarning, "", "correct or unset it; aiterctl env lists the variables"
		var words []string
		for _, u := range unknown {
			words = append(words, u.String())
		}
		c.Detail = strings.Join(words, "; ")
	}
	if _, err := a.settings().Resolve(); err != nil {
		c.required = true
		c.fail(err)
	}
	return []check{c}
}
