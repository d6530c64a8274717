package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/settings"
	"github.com/aiter-go/aiter/internal/term"
	"github.com/aiter-go/aiter/internal/watch"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

const watchLong = `Build modules, then again whenever a file changes that they are made from: the
configuration, sources, headers that the compiler read, a new file that would be
read in place of one. It says which file changed, what was compiled, and what
the compiler says. What was wrong is built again when it is mended; a mistake in
the configuration leaves the one before in use. Ctrl-C ends it.

Contents decide: a file that was only touched starts nothing. With --test the
operators of what was built are compared with the reference in their small
configurations, on this machine; the Enter key does that for all of them.

With --json each line on stdout is an object whose "event" is "watching",
"changed", "built", "config", "tested" or "warning".`

const watchExample = `  aiterctl watch module_causal_conv1d --root . --arch cpu
  aiterctl watch --all --root . --arch gfx942,gfx950,cpu
  aiterctl watch --op causal_conv1d_fwd --dtype bfloat16 --root . --test
  aiterctl watch --all --root . --json | jq -r 'select(.event == "built") | .build.module + " " + .result'`

type watchFlags struct {
	all, test bool
	arch      string
	jobs      int
	timeout   time.Duration
	wait      time.Duration
	poll      time.Duration
	parts     partFlags
}

func newWatch(a *app) *cobra.Command {
	f := new(watchFlags)
	cmd := &cobra.Command{
		Use:               "watch [MODULE...]",
		Short:             "Build modules whenever their files change",
		Long:              watchLong,
		Example:           watchExample,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: a.moduleNames,
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := f.check(a, cmd, names); err != nil {
				return err
			}
			return a.watch(cmd.Context(), f, names)
		},
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.all, "all", false, "every module, for the targets it supports")
	fl.BoolVar(&f.test, "test", false, "test the operators after each build that changed something")
	fl.StringVar(&f.arch, "arch", "", archUsage)
	fl.IntVarP(&f.jobs, "jobs", "j", 0, "compilers at a time (default $MAX_JOBS, else by processors and memory)")
	fl.DurationVar(&f.timeout, "timeout", 0, "for one compiler run (default: the module's own, else 10m)")
	fl.DurationVar(&f.wait, "wait", 0, "for what another process builds (default: three times that of one compiler run)")
	fl.DurationVar(&f.poll, "poll", 0, "look that often instead of waiting for the kernel to tell (for network filesystems)")
	a.completeArch(cmd)
	f.parts.add(a, cmd)
	return cmd
}

func (f *watchFlags) check(a *app, cmd *cobra.Command, names []string) error {
	switch {
	case a.sourceRoot() == "":
		return usagef("nothing to watch: the sources inside this program do not change; name a checkout with --root DIR or AITER_META_DIR")
	case f.all && len(names) > 0:
		return usagef("give modules or --all, not both")
	case f.all && len(f.parts.ops) > 0:
		return usagef("give --op or --all, not both")
	case !f.all && len(names)+len(f.parts.ops) == 0:
		return usagef("nothing to watch: name modules (aiterctl list modules), or give --op or --all")
	case cmd.Flags().Changed("jobs") && f.jobs < 1:
		return usagef("--jobs %d: expected 1 or more", f.jobs)
	case cmd.Flags().Changed("timeout") && f.timeout <= 0:
		return usagef("--timeout %s: expected a time above 0, such as 90s or 20m", f.timeout)
	case cmd.Flags().Changed("wait") && f.wait <= 0:
		return usagef("--wait %s: expected a time above 0, such as 90s or 20m", f.wait)
	case cmd.Flags().Changed("poll") && f.poll <= 0:
		return usagef("--poll %s: expected a time above 0, such as 500ms or 2s", f.poll)
	}
	return nil
}

// watchRun is one run of watch.
type watchRun struct {
	app         *app
	flags       *watchFlags
	names       []string
	targets     []target.Target
	manager     *jit.Manager
	watcher     *watch.Watcher
	report      watchReporter
	digests     map[jit.Request]string // of the artifacts that are built
	configError string                 // what is wrong with the configuration, and was said
	progress    *progress
}

func (a *app) watch(ctx context.Context, f *watchFlags, names []string) (err error) {
	w := &watchRun{app: a, flags: f, names: names, report: a.newWatchReporter(), digests: map[jit.Request]string{}, progress: a.newProgress()}
	defer w.progress.close()
	w.manager, err = a.openManager(ctx, func(s *settings.Settings) {
		s.Jobs, s.Timeout, s.Wait, s.Observer = f.jobs, f.timeout, f.wait, w.progress
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.manager.Close()) }()
	if w.targets, err = a.targets(ctx, f.arch); err != nil {
		return err
	}
	w.watcher = watch.New(watch.Options{Memo: w.manager.Memo(), Poll: f.poll, Report: w.report.warning})
	w.watcher.Set(jit.Request{}, w.manager.ConfigInputs())
	if err := w.start(ctx); err != nil {
		return err
	}
	err = w.loop(ctx)
	return errors.Join(err, w.watcher.Close())
}

// start builds everything once.
func (w *watchRun) start(ctx context.Context) error {
	reqs, err := w.requests()
	if err != nil {
		return err
	}
	if len(reqs) == 0 {
		return usagef("nothing to watch: no module supports %s", join(w.targets))
	}
	w.build(ctx, reqs)
	return nil
}

// requests is what to build, by the configuration as it is now.
func (w *watchRun) requests() ([]jit.Request, error) {
	reqs, err := buildRequest{w.names, w.flags.all, &w.flags.parts, w.targets}.resolve(w.manager.Config())
	for _, r := range supportRequest(w.manager.Config()) {
		if len(reqs) > 0 && !slices.Contains(reqs, r) {
			reqs = append(reqs, r)
		}
	}
	return reqs, err
}

// loop goes on until the context ends, which is how a watch should end.
func (w *watchRun) loop(ctx context.Context) error {
	enter := term.EnterKey(ctx)
	for ctx.Err() == nil {
		w.report.waiting(w.app.sourceRoot(), enter != nil)
		changes, pressed, err := w.next(ctx, enter)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case pressed:
			w.test(ctx, w.modules())
			continue
		}
		w.report.changed(changes)
		w.react(ctx, changes)
	}
	return nil
}

// next waits for changes, or for the Enter key.
func (w *watchRun) next(ctx context.Context, enter <-chan struct{}) (changes []watch.Change, pressed bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		changes, err = w.watcher.Next(ctx)
	}()
	select {
	case <-enter:
		cancel()
		<-done
		if err == nil {
			return changes, false, nil // a change came first
		}
		return nil, true, nil
	case <-done:
		return changes, false, err
	}
}

// react builds what the changes concern.
func (w *watchRun) react(ctx context.Context, changes []watch.Change) {
	var reqs []jit.Request
	for _, c := range changes {
		for _, r := range c.For {
			if !slices.Contains(reqs, r) {
				reqs = append(reqs, r)
			}
		}
	}
	if slices.Contains(reqs, jit.Request{}) {
		reqs = w.reconfigure(reqs)
	}
	if len(reqs) > 0 {
		w.build(ctx, reqs)
	}
}

// reconfigure reads the configuration again and returns what to build: all, or,
// when it cannot be used, what other changes concern.
func (w *watchRun) reconfigure(reqs []jit.Request) []jit.Request {
	rest := slices.DeleteFunc(reqs, func(r jit.Request) bool { return r == jit.Request{} })
	m, err := w.watcher.Reconfigure(w.manager, w.app.loadConfig)
	if err == nil {
		w.manager = m
		if reqs, err = w.requests(); err == nil {
			rest = reqs
		}
		w.forgetRemoved(rest)
	}
	if text := errorText(err); text != w.configError {
		w.configError = text
		w.report.config(err)
	}
	return rest
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// forgetRemoved stops watching for what is not built any more.
func (w *watchRun) forgetRemoved(reqs []jit.Request) {
	for r := range w.digests {
		if !slices.Contains(reqs, r) {
			w.watcher.Forget(r)
			delete(w.digests, r)
		}
	}
}

// build builds and tells how it went; what came out new is tested.
func (w *watchRun) build(ctx context.Context, reqs []jit.Request) {
	results, _ := w.watcher.Build(ctx, w.manager, reqs...)
	if ctx.Err() != nil {
		return
	}
	w.app.err.SetStatus("")
	var fresh []string
	failed := false
	for _, r := range results {
		w.report.built(r)
		failed = failed || r.Err != nil
		if r.Err == nil && w.digests[r.Request] != r.Artifact.Digest && !slices.Contains(fresh, r.Module) {
			fresh = append(fresh, r.Module)
		}
		w.digests[r.Request] = r.Artifact.Digest
	}
	if w.flags.test && !failed {
		w.test(ctx, fresh)
	}
}

// modules are the names of all that is built.
func (w *watchRun) modules() []string {
	var names []string
	for r := range w.digests {
		if !slices.Contains(names, r.Module) {
			names = append(names, r.Module)
		}
	}
	slices.Sort(names)
	return names
}

// ops are the operators of modules.
func (w *watchRun) ops(modules []string) []opconfig.Op {
	var ops []opconfig.Op
	for _, name := range modules {
		if mod, err := w.manager.Config().Module(name); err == nil {
			ops = append(ops, mod.Ops...)
		}
	}
	if only := w.flags.parts.ops; len(only) > 0 {
		ops = slices.DeleteFunc(ops, func(op opconfig.Op) bool { return !slices.Contains(only, op.Name) })
	}
	return ops
}

// watchTestLimit is how many elements a configuration may have that is tried
// after each edit.
const watchTestLimit = 64 << 10

// test compares the operators of modules with the reference.
func (w *watchRun) test(ctx context.Context, modules []string) {
	for _, op := range w.ops(modules) {
		if ctx.Err() != nil {
			return
		}
		f := &testFlags{accuracy: true}
		f.dtype, f.layout = w.flags.parts.dtype, allLayouts()
		if len(f.dtype) == 0 {
			f.dtype = allDTypes()
		}
		f.arch = w.testArch()
		small := func(name string, _ tensor.Device) ([]optests.Config, error) {
			named, err := optests.Configs(name)
			if err != nil {
				return nil, err
			}
			return f.expand(name, withoutLarger(watchTestLimit, tensor.Host(), named), optests.ForComparison)
		}
		if _, err := small(op.Name, tensor.Host()); as[*optests.UnknownOpError](err) {
			continue // nobody has written its reference
		}
		quiet := *w.app
		quiet.quiet = true // it is built
		rep, err := quiet.runCases(ctx, f, op.Name, small)
		if ctx.Err() == nil {
			w.report.tested(op.Name, rep, err)
		}
	}
}

// testArch is the target to test: the only one, else what the machine has.
func (w *watchRun) testArch() string {
	if len(w.targets) == 1 {
		return w.targets[0].String()
	}
	return native
}
