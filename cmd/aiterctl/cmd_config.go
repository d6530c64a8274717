package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/aiter-go/aiter/internal/opconfig"
)

func newConfig(a *app) *cobra.Command {
	cmd := group(&cobra.Command{Use: "config", Short: "Check the configuration"})
	cmd.AddCommand(newConfigValidate(a))
	return cmd
}

const validateLong = `Read the configuration as a build does, and list every mistake with file, line
and column.

Paths in FILE are relative to the source tree: --root, else the parent of FILE's
folder if that folder is called config, else FILE's folder.`

func newConfigValidate(a *app) *cobra.Command {
	return &cobra.Command{
		Use:        "validate [FILE]",
		SuggestFor: []string{"check", "lint", "verify", "test"},
		Short:      "List the mistakes in the configuration",
		Long:       validateLong,
		Example:    "  aiterctl config validate\n  aiterctl config validate config/opt_compiler.toml --json",
		Args:       args(cobra.MaximumNArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				if err := a.useConfigFile(args[0]); err != nil {
					return err
				}
			}
			return a.validate()
		},
	}
}

// useConfigFile selects a configuration by its path on disk.
func (a *app) useConfigFile(file string) error {
	abs, err := filepath.Abs(file)
	if err != nil {
		return usagef("%s: %w", file, err)
	}
	if info, err := os.Stat(abs); err != nil {
		return usagef("configuration: %w", err)
	} else if !info.Mode().IsRegular() {
		return usagef("configuration: %s is not a regular file (%s); give a TOML file", file, info.Mode())
	}
	if a.sourceRoot() == "" {
		a.root = filepath.Dir(file)
		if filepath.Base(filepath.Dir(abs)) == "config" {
			a.root = filepath.Join(a.root, "..")
		}
	}
	root, err := filepath.Abs(a.sourceRoot())
	if err != nil {
		return usagef("%s: %w", a.sourceRoot(), err)
	}
	rel, err := filepath.Rel(root, abs)
	if err != nil || !filepath.IsLocal(rel) {
		return usagef("%s is not inside the source tree %s; give --root", file, root)
	}
	a.config = filepath.ToSlash(rel)
	return nil
}

// validation is the output of config validate --json.
type validation struct {
	OK      bool       `json:"ok"`
	Root    string     `json:"root"` // "" for the sources in the program
	Files   []string   `json:"files"`
	Modules int        `json:"modules"`
	Ops     int        `json:"ops"`
	Errors  []position `json:"errors"`
}

// position is one mistake.
type position struct {
	File       string `json:"file"`
	Line       int    `json:"line"`
	Column     int    `json:"column"`
	Message    string `json:"message"`
	Suggestion string `json:"suggestion"`
}

// validate runs the command config validate.
func (a *app) validate() error {
	v := validation{Root: a.sourceRoot(), Files: []string{}, Errors: []position{}}
	cfg, err := a.loadConfig()
	if err != nil && !as[*opconfig.Error](err) {
		return err
	}
	if err != nil {
		v.Errors = positions(err)
	} else {
		v.OK, v.Files, v.Modules = true, cfg.Files, len(cfg.Modules)
		for _, m := range cfg.Modules {
			v.Ops += len(m.Ops)
		}
	}
	switch {
	case a.json:
		err = errors.Join(a.writeJSON(v), err)
	case err != nil:
		a.printMistakes(v)
	default:
		_, err = fmt.Fprintf(a.out, "%s: ok, %s, %s in %s\n",
			a.settings().ConfigPath(), plural(v.Modules, "module"), plural(v.Ops, "operator"), plural(len(v.Files), "file"))
	}
	if as[*opconfig.Error](err) {
		return &configInvalidError{len(v.Errors), err}
	}
	return err
}

// printMistakes prints mistakes in the format of compilers, with paths that editors
// can open.
func (a *app) printMistakes(v validation) {
	for _, e := range v.Errors {
		mistake := opconfig.Error{File: filepath.Join(v.Root, e.File), Line: e.Line, Col: e.Column, Msg: e.Message, Suggestion: e.Suggestion}
		fmt.Fprintln(a.err, mistake.Error())
	}
}

// configInvalidError reports the number of mistakes, which have been listed.
type configInvalidError struct {
	mistakes int
	err      error
}

func (e *configInvalidError) Error() string {
	return "the configuration is not valid: " + plural(e.mistakes, "mistake")
}

func (e *configInvalidError) Unwrap() error { return e.err }

// positions returns the mistakes of joined errors.
func positions(err error) []position {
	var list []position
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range many.Unwrap() {
			list = append(list, positions(e)...)
		}
		return list
	}
	if e, ok := errors.AsType[*opconfig.Error](err); ok {
		list = append(list, position{e.File, e.Line, e.Col, e.Msg, e.Suggestion})
	}
	return list
}
