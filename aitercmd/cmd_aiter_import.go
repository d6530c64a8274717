package aitercmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aiter-go/aiter/internal/spelling"
	"github.com/aiter-go/aiter/internal/toolchain"
	"github.com/aiter-go/aiter/internal/upstream"
	"github.com/aiter-go/aiter/jit/target"
)

const aiterImportLong = `Write the interface of modules of a checkout of AMD's AIter as TOML: sources, flags, and functions with
their signatures, as schemas and as C++ types. Without --module the command writes the modules and functions that the
operators of this program use; the source tree has that result as csrc/upstream/` + upstream.InterfaceFile + `.

With --tree the command writes a source tree instead, for --root: opt_compiler.toml and a unit for each source of the modules.
Each operator has the name of AIter's function with the prefix aiter_. Correct the schemas by hand: AIter's types do not show
which tensors a function writes.

The command compiles the bindings of each module with hipcc for the host, about two seconds a module, and reads their types
and defaults from the object. It reads functions for ctypes from the C++ text. The command executes nothing of the checkout.`

func newAIterImport(a *app) *cobra.Command {
	var modules []string
	var output, tree string
	cmd := &cobra.Command{
		Use: "import [CHECKOUT]", Short: "Write the signatures of AIter's functions", Long: aiterImportLong,
		Example: "  aiterctl aiter import /src/aiter --output csrc/upstream/" + upstream.InterfaceFile +
			"\n  aiterctl aiter import /src/aiter --module module_cache,module_quant" +
			"\n  aiterctl aiter import /src/aiter --module module_mhc --tree mhc",
		Args: args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case cmd.Flags().Changed("tree") && (tree == "" || output != "" || a.json):
				return usagef("--tree needs a folder, and neither --output nor --json")
			case tree != "" && len(modules) == 0:
				return usagef("--tree needs --module: modules of AIter")
			}
			return a.aiterImport(cmd.Context(), args, modules, output, tree)
		},
	}
	cmd.Flags().StringSliceVar(&modules, "module", nil, "modules of AIter: `NAME,...`")
	cmd.Flags().StringVarP(&output, "output", "o", "", "write to a `FILE` (default: standard output)")
	cmd.Flags().StringVar(&tree, "tree", "", "write a source tree with operators to a new or empty `DIR`")
	return cmd
}

// aiterImport runs the command aiter import.
func (a *app) aiterImport(ctx context.Context, args, modules []string, output, tree string) error {
	c, d, err := a.openCheckout(args)
	if err != nil {
		return err
	}
	defer c.Close()
	cc, err := a.bindingsCompiler(ctx)
	if err != nil {
		return err
	}
	if tree != "" {
		return a.adaptModules(ctx, c, d, cc, modules, tree)
	}
	got, err := c.Import(ctx, d, cc, modules)
	if err != nil {
		return err
	}
	if a.json {
		return a.writeJSON(got)
	}
	if output == "" {
		_, err = fmt.Fprint(a.out, got.Format())
		return err
	}
	return writeFile(output, func(f *os.File) error {
		_, err := f.WriteString(got.Format())
		return err
	})
}

// adaptModules writes a source tree with operators of modules of AIter.
func (a *app) adaptModules(ctx context.Context, c *upstream.Checkout, d upstream.Declared, cc upstream.Compiler, modules []string,
	dir string) error {
	if entries, err := os.ReadDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return usagef("--tree: %w", err)
	} else if len(entries) > 0 {
		return usagef("--tree %s: the folder is not empty; give a new one", dir)
	}
	files, err := c.Adapt(ctx, d, cc, modules)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(files[name]), 0o644); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(a.out, "wrote %s in %s; use it with --root %s and AITER_CHECKOUT=%s\n",
		spelling.Count(len(files), "file"), dir, dir, c.Dir)
	return err
}

// bindingsCompiler returns the compiler that reads bindings. The host pass is the same for all targets.
func (a *app) bindingsCompiler(ctx context.Context) (upstream.Compiler, error) {
	t, err := target.Parse("gfx942")
	if err != nil {
		return upstream.Compiler{}, err
	}
	tc, err := (&toolchain.Finder{Env: a.getenv}).Find(ctx, t)
	return upstream.Compiler{Toolchain: tc, Target: t}, err
}

const aiterCheckLong = `Compare a checkout of AMD's AIter with the interface that the operators of this program were written for:
sources, flags, and functions with their arguments, types and defaults. Each difference names the module of AIter, the
modules of this program that use it, and the function. A module without differences works with the checkout.

The exit code is 1 if there are differences.`

func newAIterCheck(a *app) *cobra.Command {
	var modules []string
	cmd := &cobra.Command{
		Use: "check [CHECKOUT]", SuggestFor: []string{"diff", "verify", "compare"}, Short: "Compare a checkout of AIter with the operators here",
		Long: aiterCheckLong, Example: "  aiterctl aiter check /src/aiter\n  aiterctl aiter check --module module_rmsnorm --json",
		Args: args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error { return a.aiterCheck(cmd.Context(), args, modules) },
	}
	cmd.Flags().StringSliceVar(&modules, "module", nil, "only these modules of AIter: `NAME,...`")
	return cmd
}

// aiterCheckReport is the output of aiter check --json.
type aiterCheckReport struct {
	OK          bool              `json:"ok"`
	Commit      string            `json:"commit"`   // of the checkout, "" if unknown
	MadeFor     string            `json:"made_for"` // the commit of the interface
	Modules     []string          `json:"modules"`  // of AIter that were compared
	Differences []aiterDifference `json:"differences"`
}

type aiterDifference struct {
	Module   string   `json:"module"`
	Declared []string `json:"declared"`
	Function string   `json:"function"` // "" for the module
	Message  string   `json:"message"`
}

// aiterCheck runs the command aiter check.
func (a *app) aiterCheck(ctx context.Context, args, modules []string) error {
	c, d, err := a.openCheckout(args)
	if err != nil {
		return err
	}
	defer c.Close()
	cc, err := a.bindingsCompiler(ctx)
	if err != nil {
		return err
	}
	text, err := fs.ReadFile(d.Files, upstream.InterfaceFile)
	if err != nil {
		return err
	}
	want, err := upstream.ParseInterface(string(text))
	if err != nil {
		return err
	}
	differences, compared, err := c.Check(ctx, d, cc, want, modules)
	if err != nil {
		return err
	}
	if a.json {
		r := aiterCheckReport{OK: len(differences) == 0, Commit: c.Commit, MadeFor: want.Commit, Modules: nonNil(compared),
			Differences: []aiterDifference{}}
		for _, x := range differences {
			r.Differences = append(r.Differences, aiterDifference{x.Module, nonNil(x.Declared), x.Function, x.Msg})
		}
		if err := a.writeJSON(r); err != nil {
			return err
		}
	}
	if len(differences) > 0 {
		if !a.json {
			for _, x := range differences {
				fmt.Fprintln(a.out, x)
			}
		}
		return fmt.Errorf("the checkout%s differs from %s: %s", ofCommit(c.Commit), recordedInterface(want.Commit),
			spelling.Count(len(differences), "difference"))
	}
	if !a.json {
		_, err = fmt.Fprintf(a.out, "%s%s: no differences from %s in %s: %s\n", c.Dir, ofCommit(c.Commit), recordedInterface(want.Commit),
			spelling.Count(len(compared), "module"), strings.Join(slices.Sorted(slices.Values(compared)), ", "))
	}
	return err
}

func ofCommit(commit string) string {
	if commit == "" {
		return ""
	}
	return " of commit " + short(commit)
}

// recordedInterface names the interface that a checkout is compared with; an interface made from a folder without Git data has no commit.
func recordedInterface(commit string) string {
	if commit == "" {
		return "the recorded interface"
	}
	return "AIter's commit " + short(commit)
}

func short(commit string) string { return commit[:min(len(commit), 8)] }
