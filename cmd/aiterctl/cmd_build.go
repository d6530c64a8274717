package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aiter-go/aiter/internal/settings"
	"github.com/aiter-go/aiter/jit"
)

const buildLong = `Build modules for targets, side by side, and keep them in the cache. What is in
the cache and would come out the same is not built again. Building for a GPU
needs its compiler, not the GPU.

A module is built as one library with every operator for every type, which
serves all calls. With --op, --dtype or --axis only those parts are built, each
a library of its own: what a first call of that operator in that type and with
sizes in that range builds, where the cache does not have the whole module. Where
types and ranges are not built apart (on the CPU) a part has all of them.
--axis takes a range or a size in it: aiterctl describe OP shows an operator's axes.

The support library that all modules call back into is built along.

--output DIR writes what was built, and nothing else, into a cache of its own: to
be moved or copied anywhere, owned by anyone, mounted read-only, and named by
AITER_JIT_PATH. It serves a machine without any compiler too, as long as the
configuration and the sources are those it was made from. Building into a folder
that has other modules or targets adds to it.`

const buildExample = `  aiterctl build module_causal_conv1d
  aiterctl build --all --arch gfx90a,gfx942,gfx950,cpu -j 8
  aiterctl build --all --arch native --json
  aiterctl build --op causal_conv1d_fwd --dtype bfloat16 --axis width=4 --arch gfx942
  aiterctl build --all --arch gfx942,gfx950 --output /opt/aiter
  aiterctl build --all --dry-run --compile-commands compile_commands.json`

type buildFlags struct {
	all, force, dryRun    bool
	arch, compileCommands string
	output                string
	jobs                  int
	timeout               time.Duration
	wait                  time.Duration
	parts                 partFlags
}

func newBuild(a *app) *cobra.Command {
	f := new(buildFlags)
	cmd := &cobra.Command{
		Use:               "build [MODULE...]",
		Short:             "Build modules into the cache",
		Long:              buildLong,
		Example:           buildExample,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: a.moduleNames,
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := f.check(cmd, names); err != nil {
				return err
			}
			return a.build(cmd.Context(), f, names)
		},
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.all, "all", false, "every module, for the targets it supports")
	fl.StringVar(&f.arch, "arch", "", archUsage)
	fl.IntVarP(&f.jobs, "jobs", "j", 0, "compilers at a time (default $MAX_JOBS, else by processors and memory)")
	fl.BoolVar(&f.force, "force", false, "compile everything once more")
	fl.BoolVar(&f.dryRun, "dry-run", false, "say what would be compiled, and how")
	fl.StringVar(&f.compileCommands, "compile-commands", "", "write a compilation database for editors to `FILE`")
	fl.StringVar(&f.output, "output", "", "make a cache of the modules in `DIR`, to be read by AITER_JIT_PATH, that needs no compiler")
	fl.DurationVar(&f.timeout, "timeout", 0, "for one compiler run (default: the module's own, else 10m)")
	fl.DurationVar(&f.wait, "wait", 0, "for what another process builds (default: three times that of one compiler run)")
	a.completeArch(cmd)
	f.parts.add(a, cmd)
	return cmd
}

func (f *buildFlags) check(cmd *cobra.Command, names []string) error {
	switch {
	case f.all && len(names) > 0:
		return usagef("give modules or --all, not both")
	case f.all && len(f.parts.ops) > 0:
		return usagef("give --op or --all, not both")
	case !f.all && len(names)+len(f.parts.ops) == 0:
		return usagef("nothing to build: name modules (aiterctl list modules), or give --op or --all")
	case cmd.Flags().Changed("output") && f.output == "":
		return usagef("--output is empty: expected a folder; if a variable names it, it is not set")
	case f.output != "" && f.dryRun:
		return usagef("--output and --dry-run exclude each other")
	case cmd.Flags().Changed("jobs") && f.jobs < 1:
		return usagef("--jobs %d: expected 1 or more", f.jobs)
	case cmd.Flags().Changed("timeout") && f.timeout <= 0:
		return usagef("--timeout %s: expected a time above 0, such as 90s or 20m", f.timeout)
	case cmd.Flags().Changed("wait") && f.wait <= 0:
		return usagef("--wait %s: expected a time above 0, such as 90s or 20m", f.wait)
	}
	return nil
}

func (a *app) build(ctx context.Context, f *buildFlags, names []string) error {
	if f.output != "" {
		if err := a.checkOutput(f.output); err != nil {
			return err
		}
	}
	p := a.newProgress()
	defer p.close()
	m, err := a.openManager(ctx, func(s *settings.Settings) {
		s.Jobs, s.Rebuild, s.Timeout, s.Wait, s.Observer = f.jobs, f.force, f.timeout, f.wait, p
	})
	if err != nil {
		return err
	}
	defer m.Close()
	targets, err := a.targets(ctx, f.arch)
	if err != nil {
		return err
	}
	cfg := m.Config()
	reqs, err := buildRequest{names, f.all, &f.parts, targets}.resolve(cfg)
	if err != nil {
		return err
	}
	if len(reqs) == 0 {
		return usagef("nothing to build: no module supports %s", join(targets))
	}
	if f.output != "" {
		if err := checkTargetsUsed(reqs, targets); err != nil {
			return err
		}
	}
	plan := &buildPlan{app: a, manager: m, requested: reqs, support: supportRequest(cfg), output: f.output}
	if f.dryRun || f.compileCommands != "" {
		if err := plan.commands(ctx, f); err != nil || f.dryRun {
			return err
		}
	}
	return plan.build(ctx, p)
}

func join[T fmt.Stringer](list []T) string {
	var words []string
	for _, x := range list {
		words = append(words, x.String())
	}
	return strings.Join(words, ", ")
}

// buildPlan is what one call of build is about.
type buildPlan struct {
	app       *app
	manager   *jit.Manager
	requested []jit.Request
	support   []jit.Request // one or none
	output    string        // folder of a cache to make; "" for none
}

// requests is everything to build, each once.
func (b *buildPlan) requests() []jit.Request {
	all := slices.Clone(b.requested)
	for _, r := range b.support {
		if !slices.Contains(all, r) {
			all = append(all, r)
		}
	}
	return all
}

func (b *buildPlan) build(ctx context.Context, p *progress) error {
	results, err := b.manager.Build(ctx, b.requests()...)
	p.close()
	if err != nil && ctx.Err() == nil {
		err = failures(results)
	}
	if err == nil && b.output != "" {
		err = b.export(ctx, results)
	}
	if err != nil {
		b.output = ""
	}
	rep := b.report(results)
	if b.app.json {
		return errors.Join(b.app.writeJSON(rep), err)
	}
	if ctx.Err() != nil {
		return err
	}
	if err = errors.Join(b.app.table(rep.rows()), err); err == nil && b.output != "" {
		_, err = fmt.Fprintf(b.app.out, "\nmade %s; to use it: export AITER_JIT_PATH=%s\n", b.output, b.output)
	}
	return err
}

// failures joins what went wrong, the same text only once: a missing compiler
// fails every module alike.
func failures(results []jit.Result) error {
	var errs []error
	seen := map[string]bool{}
	for _, r := range results {
		if r.Err == nil || seen[r.Err.Error()] {
			continue
		}
		seen[r.Err.Error()] = true
		errs = append(errs, fmt.Errorf("build of %s: %w", r.Request, r.Err))
	}
	return errors.Join(errs...)
}

// buildReport is what build --json prints. The names stay.
type buildReport struct {
	Modules []moduleReport `json:"modules"`
	Output  string         `json:"output"`  // folder of the cache that was made, "" for none
	Support *moduleReport  `json:"support"` // null when it was asked for by name, or there is none
}

type moduleReport struct {
	Module   string           `json:"module"`
	Target   string           `json:"target"`
	Part     string           `json:"part"`     // the part of the module that was asked for, "" for the whole
	Whole    bool             `json:"whole"`    // the artifact is the whole module
	Artifact string           `json:"artifact"` // path of the library, "" when the build failed
	Digest   string           `json:"digest"`
	Seconds  float64          `json:"seconds"`
	Units    []jit.UnitResult `json:"units"`
	Error    *string          `json:"error"`

	linked bool
}

func (b *buildPlan) report(results []jit.Result) buildReport {
	rep := buildReport{Modules: []moduleReport{}, Output: b.output}
	for _, r := range results {
		m := newModuleReport(r)
		if slices.Contains(b.requested, r.Request) {
			rep.Modules = append(rep.Modules, m)
		} else {
			rep.Support = &m
		}
	}
	return rep
}

func newModuleReport(r jit.Result) moduleReport {
	m := moduleReport{Module: r.Module, Target: r.Target.String(), Part: r.Part.String(), Seconds: r.Seconds, Units: []jit.UnitResult{}, linked: r.Status == jit.Compiled}
	for _, u := range r.Units {
		if u.Status != "" { // else a failure elsewhere came before its turn
			m.Units = append(m.Units, u)
		}
	}
	if r.Err != nil {
		text := r.Err.Error()
		m.Error = &text
		return m
	}
	m.Artifact, m.Digest, m.Whole = r.Artifact.Path, r.Artifact.Digest, r.Artifact.Part == ""
	return m
}

// rows is the report as a table.
func (rep buildReport) rows() [][]string {
	rows := [][]string{{"MODULE", "TARGET", "RESULT", "SECONDS", "ARTIFACT"}}
	all := rep.Modules
	if rep.Support != nil {
		all = append(slices.Clone(all), *rep.Support)
	}
	for _, m := range all {
		rows = append(rows, []string{partName(m.Module, m.Part), m.Target, m.result(), fmt.Sprintf("%.2f", m.Seconds), firstOf(m.Artifact, "-")})
	}
	return rows
}

// result is "hit", "hit: the whole module", "linked", "compiled 1 of 2" or "failed".
func (m moduleReport) result() string {
	compiled := 0
	for _, u := range m.Units {
		if u.Status == jit.Compiled {
			compiled++
		}
	}
	switch {
	case m.Error != nil:
		return "failed"
	case compiled == 0 && m.linked:
		return "linked"
	case compiled == 0 && m.Whole && m.Part != "":
		return "hit: the whole module"
	case compiled == 0:
		return "hit"
	}
	return fmt.Sprintf("compiled %d of %d", compiled, len(m.Units))
}
