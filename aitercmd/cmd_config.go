package aitercmd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/settings"
	"github.com/aiter-go/aiter/internal/spelling"
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
	if len(a.sourceRoots()) == 0 {
		a.roots = []string{filepath.Dir(file)}
		if filepath.Base(filepath.Dir(abs)) == "config" {
			a.roots[0] = filepath.Join(a.roots[0], "..")
		}
	}
	if len(a.sourceRoots()) > 1 {
		return &usageError{&settings.ConfigPathError{Path: file, Roots: a.sourceRoots()}}
	}
	root, err := filepath.Abs(a.sourceRoots()[0])
	if err != nil {
		return usagef("%s: %w", a.sourceRoots()[0], err)
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
	Root    string     `json:"root"` // "" for the sources in the program; several are separated by colons
	Files   []string   `json:"files"`
	Modules int        `json:"modules"`
	Ops     int        `json:"ops"`
	Errors  []position `json:"errors"`
}

// position is one mistake.
type position struct {
	Root       string `json:"root"` // "" for the sources in the program
	File       string `json:"file"` // relative to the root
	Line       int    `json:"line"`
	Column     int    `json:"column"`
	Message    string `json:"message"`
	Suggestion string `json:"suggestion"`
}

// validate runs the command config validate.
func (a *app) validate() error {
	v := validation{Root: strings.Join(a.sourceRoots(), string(filepath.ListSeparator)), Files: []string{}, Errors: []position{}}
	cfg, err := a.loadConfig()
	if err != nil && !as[*opconfig.Error](err) {
		return err
	}
	if err != nil {
		v.Errors = positions(err)
	} else {
		v.OK = true
		for _, c := range validated(cfg) {
			v.Files, v.Modules = append(v.Files, c.Files...), v.Modules+len(c.Modules)
			for _, m := range c.Modules {
				v.Ops += len(m.Ops)
			}
		}
	}
	switch {
	case a.json:
		err = errors.Join(a.writeJSON(v), err)
	case err != nil:
		a.printMistakes(v)
	default:
		_, err = fmt.Fprintf(a.out, "%s: ok, %s, %s in %s\n",
			strings.Join(configFiles(validated(cfg)), ", "), spelling.Count(v.Modules, "module"), spelling.Count(v.Ops, "operator"),
			spelling.Count(len(v.Files), "file"))
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
		mistake := opconfig.Error{Source: e.Root, File: e.File, Line: e.Line, Col: e.Column, Msg: e.Message, Suggestion: e.Suggestion}
		fmt.Fprintln(a.err, mistake.Error())
	}
}

// validated returns the configurations to report on: those of the source folders, or without folders the one in the program.
func validated(cfg *opconfig.Config) []*opconfig.Config {
	all := cfg.Joined()
	if len(all) > 1 {
		all = slices.DeleteFunc(slices.Clone(all), func(c *opconfig.Config) bool { return c.Source == "" })
	}
	return all
}

// configFiles returns the main files of configurations.
func configFiles(list []*opconfig.Config) []string {
	var files []string
	for _, c := range list {
		name := filepath.Join(c.Source, c.Files[0])
		if c.Source == "" {
			name += " (in this program)"
		}
		files = append(files, name)
	}
	return files
}

// configInvalidError reports the number of mistakes, which have been listed.
type configInvalidError struct {
	mistakes int
	err      error
}

func (e *configInvalidError) Error() string {
	return "the configuration is not valid: " + spelling.Count(e.mistakes, "mistake")
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
		list = append(list, position{e.Source, e.File, e.Line, e.Col, e.Msg, e.Suggestion})
	}
	return list
}
