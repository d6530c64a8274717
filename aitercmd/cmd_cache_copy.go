package aitercmd

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/settings"
	"github.com/aiter-go/aiter/internal/spelling"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
)

const cacheExportLong = `Copy artifacts of the cache and of the read-only caches to a folder for AITER_JIT_PATH:
all, those of the named modules, or those for the targets of --arch, and the support
library. The command compiles nothing. It skips artifacts that are out of date; build
--output makes them again.`

const cacheImportLong = `Copy the artifacts of a prebuilt cache, which build --output or cache export wrote, to
the cache of this user. The command checks all digests. It skips artifacts that are out
of date, and those that the cache has already.`

// cacheCopy copies artifacts between caches.
type cacheCopy struct {
	app   *app
	names []string // modules; none: all
	arch  string
}

func newCacheExport(a *app) *cobra.Command {
	return newCacheCopy(a, (*cacheCopy).export, cobra.Command{
		Use: "export DIR [MODULE...]", Short: "Copy artifacts to a folder for AITER_JIT_PATH", Long: cacheExportLong,
		Example: "  aiterctl cache export kernels\n  aiterctl cache export kernels module_rms_norm --arch gfx942",
	})
}

func newCacheImport(a *app) *cobra.Command {
	return newCacheCopy(a, (*cacheCopy).importFrom, cobra.Command{
		Use: "import DIR [MODULE...]", Short: "Copy the artifacts of a prebuilt cache to the cache", Long: cacheImportLong,
		Example: "  aiterctl cache import /mnt/kernels --arch native",
	})
}

// newCacheCopy completes a command that copies artifacts to or from a folder.
func newCacheCopy(a *app, run func(c *cacheCopy, ctx context.Context, dir string) error, cmd cobra.Command) *cobra.Command {
	c := &cacheCopy{app: a}
	cmd.Args = args(cobra.MinimumNArgs(1))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c.names = args[1:]
		return run(c, cmd.Context(), args[0])
	}
	cmd.Flags().StringVar(&c.arch, "arch", "", "only these targets: gfx942,sm_90,cpu or native")
	a.completeArch(&cmd)
	return &cmd
}

func (c *cacheCopy) export(ctx context.Context, dir string) error {
	if err := c.app.checkOutput(dir); err != nil {
		return err
	}
	m, err := c.openManager(ctx, nil)
	if err != nil {
		return err
	}
	defer m.Close()
	store, err := c.app.openCache()
	if err != nil {
		return err
	}
	found, err := c.find(ctx, m, withReadOnly(store))
	if err != nil {
		return err
	}
	to, err := c.open(dir)
	if err != nil {
		return newOutputError(err)
	}
	if err := errors.Join(m.Export(to, found), to.MakeReadable()); err != nil {
		return newOutputError(err)
	}
	return c.report("copied", found, fmt.Sprintf("to use %s: export AITER_JIT_PATH=%s", to.Path(), to.Path()))
}

func (c *cacheCopy) importFrom(ctx context.Context, dir string) error {
	o, err := c.app.cacheOptions()
	if err != nil {
		return err
	}
	from, err := cache.OpenReadOnly(dir, cache.Options{TrustForeign: o.Trust})
	if err != nil {
		return err
	}
	o.Path = nil // an artifact in AITER_JIT_PATH is not yet in the cache
	store, err := settings.OpenCache(o)
	if err != nil {
		return err
	}
	if err := store.Writable(); err != nil {
		return err
	}
	m, err := c.openManager(ctx, []string{dir})
	if err != nil {
		return err
	}
	defer m.Close()
	found, err := c.find(ctx, m, []*cache.Dir{from})
	if err != nil {
		return err
	}
	found = slices.DeleteFunc(found, func(r jit.Result) bool { return r.Artifact.ReadOnly == "" })
	if err := m.Export(store, found); err != nil {
		return err
	}
	return c.report("imported", found, "")
}

// openManager opens a manager that compiles nothing. path replaces AITER_JIT_PATH unless it is nil.
func (c *cacheCopy) openManager(ctx context.Context, path []string) (*jit.Manager, error) {
	return c.app.openManager(ctx, func(s *settings.Settings) {
		s.NoCompile = true
		s.Remote = func(jit.SourceOptions) (jit.Source, error) { return nil, nil } // no pulls: only artifacts on this machine are copied
		if path != nil {
			s.Path = path
		}
	})
}

func (c *cacheCopy) open(dir string) (*cache.Dir, error) {
	o, err := c.app.cacheOptions()
	if err != nil {
		return nil, err
	}
	return cache.Open(dir, cache.Options{TrustForeign: o.Trust})
}

// find looks up the selected artifacts of caches. It prints those that are out of date.
func (c *cacheCopy) find(ctx context.Context, m *jit.Manager, caches []*cache.Dir) ([]jit.Result, error) {
	targets, err := c.app.cleanTargets(ctx, c.arch)
	if err != nil {
		return nil, err
	}
	reqs, err := storedRequests(m.Config(), caches, newMatcher(c.names, targets, partFilter{}))
	if err != nil {
		return nil, err
	}
	if err := c.checkFound(m.Config(), reqs, targets); err != nil {
		return nil, err
	}
	// Libraries cannot be called without the support library, whichever modules and targets are selected.
	support, err := storedRequests(m.Config(), caches, newMatcher([]string{settings.SupportModule}, nil, partFilter{}))
	if err != nil {
		return nil, err
	}
	for _, r := range support {
		if !slices.Contains(reqs, r) {
			reqs = append(reqs, r)
		}
	}
	results, err := m.Build(ctx, reqs...)
	if ctx.Err() != nil {
		return nil, err
	}
	var found []jit.Result
	for _, r := range results {
		if r.Err == nil {
			found = append(found, r)
			continue
		}
		fmt.Fprintf(c.app.err, "skipped %s: %v\n", r.Request, r.Err)
	}
	if len(found) == 0 {
		return nil, err // the errors of all artifacts
	}
	return found, nil
}

// checkFound refuses a module or a target without artifacts.
func (c *cacheCopy) checkFound(cfg *opconfig.Config, reqs []jit.Request, targets []target.Target) error {
	for _, name := range c.names {
		if !slices.ContainsFunc(reqs, func(r jit.Request) bool { return r.Module == name }) {
			if module, _, err := cfg.Op(name); err == nil {
				return usagef("%s is an operator of %s; give the module", name, module.Name)
			}
			what := name
			if len(targets) > 0 {
				what += " for " + join(targets)
			}
			return usagef("the caches have no artifact of %s; aiterctl cache list shows their artifacts", what)
		}
	}
	if len(reqs) == 0 && len(targets) > 0 {
		return usagef("the caches have no artifact for %s; aiterctl cache list shows their artifacts", join(targets))
	}
	if len(reqs) == 0 {
		return usagef("the caches have no artifacts; aiterctl build makes them")
	}
	return nil
}

// report prints the copied artifacts.
func (c *cacheCopy) report(verb string, results []jit.Result, last string) error {
	type item struct {
		Module string `json:"module"`
		Target string `json:"target"`
		Part   string `json:"part"`
		Digest string `json:"digest"`
	}
	list := []item{}
	for _, r := range results {
		list = append(list, item{r.Module, r.Target.String(), r.Part.String(), r.Artifact.Digest})
	}
	if c.app.json {
		return c.app.writeJSON(map[string]any{"artifacts": list})
	}
	for _, x := range list {
		fmt.Fprintf(c.app.out, "%s %s for %s\n", verb, partName(x.Module, x.Part), x.Target)
	}
	fmt.Fprintf(c.app.out, "%s %s\n", verb, spelling.Count(len(list), "artifact"))
	if last != "" {
		fmt.Fprintln(c.app.out, last)
	}
	return nil
}
