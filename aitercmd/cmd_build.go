package aitercmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/aiter-go/aiter/buildfarm"
	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/settings"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
)

const buildLong = `Build modules for targets, in parallel, and store them in the cache. A module that
is in the cache with identical inputs is not built again. A build for a GPU needs
its compiler, not the GPU.

A whole module is one library with every operator for every type, which serves
all calls. With --op, --dtype or --axis the command builds only those parts, each
as a library of its own. A first call of an operator builds the part for its type,
size and layout, if the cache does not have the whole module. If a
module does not build values separately for a target, as for the CPU, one part has all
of them. --axis takes a value, or a size in a range: aiterctl describe OP shows an
operator's axes.

The command also builds the support library, which all modules call.

--output DIR writes the built modules, and nothing else, to a prebuilt cache. It can
be moved, copied, mounted read-only and owned by any user; AITER_JIT_PATH names it.
Machines without a compiler can use it while their configuration and sources are
identical to those of the build. A build into a folder with other modules or targets
keeps them.

--executor ADDRESS runs compilers and linkers on a build farm, a server of the Bazel
Remote Execution API. Actions that the farm cannot run are run on this machine.`

const buildExample = `  aiterctl build module_causal_conv1d
  aiterctl build --all --arch gfx90a,gfx942,gfx950,cpu -j 8
  aiterctl build --all --arch native --json
  aiterctl build --op causal_conv1d_fwd --dtype bfloat16 --axis width=4 --arch gfx942
  aiterctl build --all --arch gfx942,gfx950 --output /opt/aiter
  aiterctl build --all --arch gfx942 --executor grpcs://farm.example:8980
  aiterctl build --all --dry-run --compile-commands compile_commands.json`

// buildFlags are the flags of build and watch.
type buildFlags struct {
	all     bool
	arch    string
	jobs    int
	timeout time.Duration
	wait    time.Duration
	parts   partFlags
}

func (f *buildFlags) add(a *app, cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.BoolVar(&f.all, "all", false, "every module, for the targets that it supports")
	fl.StringVar(&f.arch, "arch", "", archUsage)
	fl.IntVarP(&f.jobs, "jobs", "j", 0, "number of compilers that run at a time (default $MAX_JOBS, else by processors and memory)")
	fl.DurationVar(&f.timeout, "timeout", 0, "time limit of one compiler run (default: the module's, else 10m)")
	fl.DurationVar(&f.wait, "wait", 0,
		"time limit of the wait for a build of another process (default: three times the limit of one compiler run)")
	a.completeArch(cmd)
	f.parts.add(a, cmd)
}

// check refuses flags that contradict each other. verb is "build", "push" or "watch".
func (f *buildFlags) check(cmd *cobra.Command, verb string, names []string) error {
	switch {
	case f.all && len(names) > 0:
		return usagef("give modules or --all, not both")
	case f.all && len(f.parts.ops) > 0:
		return usagef("give --op or --all, not both")
	case !f.all && len(names)+len(f.parts.ops) == 0:
		return usagef("nothing to %s: name modules (aiterctl list modules), or give --op or --all", verb)
	case cmd.Flags().Changed("jobs") && f.jobs < 1:
		return usagef("--jobs %d: expected 1 or more", f.jobs)
	}
	return errors.Join(checkPositive(cmd, "timeout", f.timeout, "90s or 20m"), checkPositive(cmd, "wait", f.wait, "90s or 20m"))
}

// checkPositive refuses a flag with a duration of 0 or less. examples are correct values, for the message.
func checkPositive(cmd *cobra.Command, flag string, value time.Duration, examples string) error {
	if cmd.Flags().Changed(flag) && value <= 0 {
		return usagef("--%s %s: expected a time above 0, such as %s", flag, value, examples)
	}
	return nil
}

// openManager opens the manager that builds with these flags.
func (f *buildFlags) openManager(ctx context.Context, a *app, rebuild bool, observer jit.Observer) (*jit.Manager, error) {
	return a.openManager(ctx, func(s *settings.Settings) { f.set(s, rebuild, observer) })
}

func (f *buildFlags) set(s *settings.Settings, rebuild bool, observer jit.Observer) {
	s.Jobs, s.Rebuild, s.Timeout, s.LockTimeout, s.Observer = f.jobs, rebuild, f.timeout, f.wait, observer
}

// requests returns the part requests for the targets.
func (f *buildFlags) requests(cfg *opconfig.Config, names []string, targets []target.Target) ([]jit.Request, error) {
	return moduleSelection{names, f.all, &f.parts, targets}.requests(cfg)
}

// buildCommandFlags are the flags of build.
type buildCommandFlags struct {
	buildFlags
	force, dryRun           bool
	compileCommands, output string
	executor                string // address of a build farm
}

func newBuild(a *app) *cobra.Command {
	f := new(buildCommandFlags)
	cmd := &cobra.Command{
		Use:               "build [MODULE|OPERATOR...]",
		Short:             "Build modules into the cache",
		Long:              buildLong,
		Example:           buildExample,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: a.allNames,
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := f.check(cmd, names); err != nil {
				return err
			}
			return a.build(cmd.Context(), f, names)
		},
	}
	fl := cmd.Flags()
	f.buildFlags.add(a, cmd)
	fl.BoolVar(&f.force, "force", false, "compile everything again")
	fl.BoolVar(&f.dryRun, "dry-run", false, "print the units that would be compiled, and the commands; build nothing")
	fl.StringVar(&f.compileCommands, "compile-commands", "", "write a compilation database for editors to `FILE`")
	fl.StringVar(&f.output, "output", "", "write the modules to a prebuilt cache in `DIR`, for AITER_JIT_PATH on machines without a compiler")
	fl.StringVar(&f.executor, "executor", "",
		"compile on the build farm at `ADDRESS`: grpcs://HOST:PORT/INSTANCE (default $AITER_JIT_EXECUTOR)")
	return cmd
}

// check refuses flags that contradict each other.
func (f *buildCommandFlags) check(cmd *cobra.Command, names []string) error {
	switch {
	case cmd.Flags().Changed("output") && f.output == "":
		return usagef("--output is empty: expected a folder; if a variable names it, the variable is not set")
	case cmd.Flags().Changed("executor") && f.executor == "":
		return usagef("--executor is empty: expected an address; if a variable names it, the variable is not set")
	case f.output != "" && f.dryRun:
		return usagef("--output and --dry-run exclude each other")
	}
	return f.buildFlags.check(cmd, "build", names)
}

// build runs the command build for the named modules.
func (a *app) build(ctx context.Context, f *buildCommandFlags, names []string) error {
	if f.output != "" {
		if err := a.checkOutput(f.output); err != nil {
			return err
		}
	}
	p := a.newProgress()
	defer p.close()
	m, err := a.openManager(ctx, func(s *settings.Settings) {
		f.set(s, f.force, p)
		s.Executor, s.ExecutorAddress = buildfarm.Open, f.executor
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
	reqs, err := f.requests(cfg, names, targets)
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
	run := &buildRun{app: a, manager: m, requested: reqs, support: supportRequest(cfg), output: f.output}
	if f.dryRun || f.compileCommands != "" {
		if err := run.commands(ctx, f); err != nil || f.dryRun {
			return err
		}
	}
	return run.build(ctx, p)
}

// buildRun is one run of build.
type buildRun struct {
	app       *app
	manager   *jit.Manager
	requested []jit.Request
	support   []jit.Request // that of the support library, or none
	output    string        // folder of a prebuilt cache; "" for none
}

// requests returns all part requests, each once.
func (b *buildRun) requests() []jit.Request {
	all := slices.Clone(b.requested)
	for _, r := range b.support {
		if !slices.Contains(all, r) {
			all = append(all, r)
		}
	}
	return all
}

// build builds the requests, writes the prebuilt cache and prints the report. p shows the
// progress.
func (b *buildRun) build(ctx context.Context, p *progress) error {
	results, err := b.manager.Build(ctx, b.requests()...)
	p.close()
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
		_, err = fmt.Fprintf(b.app.out, "\nwrote %s; to use it: export AITER_JIT_PATH=%s\n", b.output, b.output)
	}
	return err
}

// buildReport is the output of build --json. The names are part of the interface.
type buildReport struct {
	Modules []moduleReport `json:"modules"`
	Output  string         `json:"output"`  // folder of the prebuilt cache, "" for none
	Support *moduleReport  `json:"support"` // null if it was requested by name, or the configuration has none
}

// moduleReport is the result of one part request.
type moduleReport struct {
	Module   string           `json:"module"`
	Target   string           `json:"target"`
	Part     string           `json:"part"`     // the requested part of the module, "" for the whole
	Whole    bool             `json:"whole"`    // the artifact is the whole module
	Artifact string           `json:"artifact"` // path of the library, "" if the build failed
	Digest   string           `json:"digest"`
	Seconds  float64          `json:"seconds"`
	Units    []jit.UnitResult `json:"units"`
	Error    *string          `json:"error"`

	linked bool // the link ran
}

func (b *buildRun) report(results []jit.Result) buildReport {
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
	m := moduleReport{
		Module: r.Module, Target: r.Target.String(), Part: r.Part.String(), Seconds: r.Seconds, Units: []jit.UnitResult{},
		linked: r.Status == jit.Compiled,
	}
	for _, u := range r.Units {
		if u.Status != "" { // "": the build failed before this unit
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

// rows returns the report as a table.
func (rep buildReport) rows() [][]string {
	rows := [][]string{{"MODULE", "TARGET", "RESULT", "SECONDS", "ARTIFACT"}}
	all := rep.Modules
	if rep.Support != nil {
		all = append(slices.Clone(all), *rep.Support)
	}
	for _, m := range all {
		rows = append(rows, []string{partName(m.Module, m.Part), m.Target, m.result(), fmt.Sprintf("%.2f", m.Seconds), cmp.Or(m.Artifact, "-")})
	}
	return rows
}

// result returns "hit", "hit: the whole module", "linked", "compiled 1 of 2" or "failed".
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
