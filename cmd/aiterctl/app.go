package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/aiter-go/aiter"
	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/registry"
)

// app is one run of the program: where it writes, and the flags that all
// commands share.
type app struct {
	out    io.Writer // results
	err    *screen   // everything else
	getenv func(string) string

	root, config, cacheDir string
	cachePath, maxSize     string // as AITER_JIT_PATH, AITER_JIT_MAX_SIZE
	json, verbose, quiet   bool
	logLevel, color        string
}

func newApp(out, err *os.File, getenv func(string) string) *app {
	return &app{out: out, err: newScreen(err), getenv: getenv}
}

// defaultConfig is where a source tree has its configuration.
const defaultConfig = "config/opt_compiler.toml"

// sourceRoot is the checkout to work on, "" for the sources in the program.
func (a *app) sourceRoot() string { return firstOf(a.root, a.getenv("AITER_META_DIR")) }

// configPath is the configuration's path in the source tree. One that is given
// as an absolute path inside a checkout is made relative to it.
func (a *app) configPath() string {
	path := firstOf(a.config, a.getenv("AITER_CONFIG"), defaultConfig)
	root, err := filepath.Abs(a.sourceRoot())
	if a.sourceRoot() == "" || err != nil || !filepath.IsAbs(path) {
		return filepath.ToSlash(path)
	}
	if rel, err := filepath.Rel(root, path); err == nil && filepath.IsLocal(rel) {
		return filepath.ToSlash(rel)
	}
	return filepath.ToSlash(path)
}

// sources are the files that the configuration speaks of.
func (a *app) sources() (fs.FS, error) {
	root := a.sourceRoot()
	if root == "" {
		return aiter.Sources, nil
	}
	if info, err := os.Stat(root); err != nil {
		return nil, usagef("source folder: %w", err)
	} else if !info.IsDir() {
		return nil, usagef("source folder %s is not a folder; give the checkout that holds config/ and csrc/", root)
	}
	return os.DirFS(root), nil
}

// loadConfig reads the configuration alone, for commands that need no cache.
func (a *app) loadConfig() (*opconfig.Config, error) {
	files, err := a.sources()
	if err != nil {
		return nil, err
	}
	return opconfig.Load(files, a.configPath(), opconfig.Options{Env: a.lookupEnv})
}

func (a *app) lookupEnv(name string) (string, bool) {
	v := a.getenv(name)
	return v, v != ""
}

// cacheFolder is the folder that is asked for, whether or not it can be used.
func (a *app) cacheFolder() (string, error) { return registry.CacheDir(a.cacheDir, a.getenv) }

// openCache opens the cache that builds use, and those below it, without reading
// any configuration.
func (a *app) openCache(ctx context.Context) (*cache.Dir, error) {
	o, err := a.cacheOptions()
	if err != nil {
		return nil, err
	}
	return registry.OpenCache(ctx, o)
}

// cacheOptions are those with which builds open the cache.
func (a *app) cacheOptions() (registry.CacheOptions, error) {
	limits, err := a.limits()
	if err != nil {
		return registry.CacheOptions{}, err
	}
	trust, err := a.trust()
	return registry.CacheOptions{
		Dir: a.cacheDir, Path: a.tiers(), Limits: limits, Build: true, Trust: trust, Getenv: a.getenv,
	}, err
}

// trust reports whether caches that other users can change may be used.
func (a *app) trust() (bool, error) { return registry.Switch("AITER_TRUST_JIT_DIR", a.getenv) }

// tiers are the folders of the caches to read.
func (a *app) tiers() []string {
	return registry.SplitPath(firstOf(a.cachePath, a.getenv("AITER_JIT_PATH")))
}

// limits are those of --cache-max-size, the environment, and else the default.
func (a *app) limits() (cache.Limits, error) {
	var given cache.Limits
	if a.maxSize != "" {
		n, err := parseSize(a.maxSize)
		if err != nil {
			return given, err
		}
		given.Size = n
	}
	return registry.Limits(given, a.getenv)
}

// openRegistry opens the registry with the shared flags added to opts. Without
// opts.Targets it prefers none: only run calls operators.
func (a *app) openRegistry(ctx context.Context, opts registry.Options) (*registry.Registry, error) {
	if _, err := a.sources(); err != nil {
		return nil, err
	}
	limits, err := a.limits()
	if err != nil {
		return nil, err
	}
	opts.Root, opts.Config, opts.CacheDir, opts.Path = a.sourceRoot(), a.configPath(), a.cacheDir, a.tiers()
	opts.Limits, opts.Getenv = limits, a.withoutReload
	if opts.Targets == nil {
		opts.Targets = []target.Target{}
	}
	return registry.Open(ctx, opts)
}

// withoutReload is the environment with AITER_RELOAD unset: that is for
// programs that stay, and watch looks at the files itself.
func (a *app) withoutReload(name string) string {
	if name == "AITER_RELOAD" {
		return ""
	}
	return a.getenv(name)
}

// openDevices opens the machine's devices alone.
func (a *app) openDevices() (*device.Devices, error) {
	return device.Open(device.Options{Env: a.getenv})
}

// writeJSON prints v, the only thing a command prints to stdout with --json.
func (a *app) writeJSON(v any) error {
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("print JSON: %w", err)
	}
	return nil
}

// table prints rows in aligned columns; the first is the heading.
func (a *app) table(rows [][]string) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			end := "\t"
			if i == len(row)-1 {
				end = "\n"
			}
			fmt.Fprint(w, oneLine(cell), end)
		}
	}
	return w.Flush()
}

// moduleNames completes the names of modules.
func (a *app) moduleNames(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return a.names(true, false), cobra.ShellCompDirectiveNoFileComp
}

// opNames completes the names of operators.
func (a *app) opNames(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return a.names(false, true), cobra.ShellCompDirectiveNoFileComp
}

// allNames completes the names of both.
func (a *app) allNames(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return a.names(true, true), cobra.ShellCompDirectiveNoFileComp
}

func (a *app) names(modules, ops bool) []cobra.Completion {
	cfg, err := a.loadConfig()
	if err != nil {
		return nil
	}
	var names []cobra.Completion
	for _, m := range cfg.Modules {
		if modules {
			names = append(names, cobra.CompletionWithDesc(m.Name, m.Doc))
		}
		for _, op := range m.Ops {
			if ops {
				names = append(names, cobra.CompletionWithDesc(op.Name, op.Doc))
			}
		}
	}
	return names
}

// axisValues completes the values of axes: "dtype=float16".
func (a *app) axisValues(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	cfg, err := a.loadConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var words []cobra.Completion
	for _, m := range cfg.Modules {
		for _, axis := range m.Axes {
			for _, v := range axis.Values {
				if word := axis.Name + "=" + v; !slices.Contains(words, word) {
					words = append(words, word)
				}
			}
		}
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}

func firstOf(words ...string) string {
	for _, w := range words {
		if w != "" {
			return w
		}
	}
	return ""
}

// completeArch completes --arch.
func (a *app) completeArch(cmd *cobra.Command) {
	a.completeFlag(cmd, "arch", append([]string{native}, target.Known()...)...)
}

// completeFlag completes a flag from a list of words.
func (a *app) completeFlag(cmd *cobra.Command, flag string, words ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		fmt.Fprintf(a.err, "aiterctl: completion of --%s: %v\n", flag, err)
	}
}
