package aitercmd

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/term"
	"github.com/aiter-go/aiter/internal/watch"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

const watchLong = `Build modules, and build them again whenever one of their inputs changes: the
configuration, a source, a header that the compiler read, or a new file that the
compiler would read instead of one of these. The command prints the changed file, the
compiled units, and the compiler's messages. After a failed build it builds again when
a file changes. After a mistake in the configuration it uses the previous configuration.
Ctrl-C ends it.

Only changes of content count: a file with a new modification time and the same content
starts no build. With --test the command compares the operators of built modules with the
reference, in small configurations, on this machine. The Enter key tests all operators.

With --json each line on stdout is an object whose "event" is "watching",
"changed", "built", "config", "tested" or "warning".`

const watchExample = `  aiterctl watch module_causal_conv1d --root . --arch cpu
  aiterctl watch --all --root . --arch gfx942,gfx950,cpu
  aiterctl watch --op causal_conv1d_fwd --dtype bfloat16 --root . --test
  aiterctl watch --all --root . --json | jq -r 'select(.event == "built") | .build.module + " " + .result'`

type watchFlags struct {
	buildFlags
	test bool
	poll time.Duration
}

func newWatch(a *app) *cobra.Command {
	f := new(watchFlags)
	cmd := &cobra.Command{
		Use:               "watch [MODULE|OPERATOR...]",
		Short:             "Build modules whenever their files change",
		Long:              watchLong,
		Example:           watchExample,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: a.allNames,
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := f.check(a, cmd, names); err != nil {
				return err
			}
			return a.watch(cmd.Context(), f, names)
		},
	}
	f.buildFlags.add(a, cmd)
	cmd.Flags().BoolVar(&f.test, "test", false, "test the operators after each build that changed a module")
	cmd.Flags().DurationVar(&f.poll, "poll", 0,
		"compare the files at this interval instead of waiting for notifications (for network filesystems)")
	return cmd
}

func (f *watchFlags) check(a *app, cmd *cobra.Command, names []string) error {
	if !a.settings().HasFolder() {
		return usagef("nothing to watch: the sources inside this program do not change; name a folder with --root DIR or AITER_META_DIR")
	}
	if err := f.buildFlags.check(cmd, "watch", names); err != nil {
		return err
	}
	return checkPositive(cmd, "poll", f.poll, "500ms or 2s")
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
	digests     map[jit.Request]string // of the built artifacts
	configError string                 // the last reported error of the configuration
	progress    *progress
}

func (a *app) watch(ctx context.Context, f *watchFlags, names []string) (err error) {
	w := &watchRun{
		app: a, flags: f, names: names, report: a.newWatchReporter(), digests: map[jit.Request]string{}, progress: a.newProgress(),
	}
	defer w.progress.close()
	w.manager, err = f.openManager(ctx, a, false, w.progress)
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

// start builds all requests once.
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

// requests returns the part requests of the current configuration.
func (w *watchRun) requests() ([]jit.Request, error) {
	reqs, err := w.flags.requests(w.manager.Config(), w.names, w.targets)
	for _, r := range supportRequest(w.manager.Config()) {
		if len(reqs) > 0 && !slices.Contains(reqs, r) {
			reqs = append(reqs, r)
		}
	}
	return reqs, err
}

// loop reacts to changes and to the Enter key until the context ends. The end of the
// context is not an error.
func (w *watchRun) loop(ctx context.Context) error {
	enter := term.EnterKey(ctx, w.app.in)
	for ctx.Err() == nil {
		w.report.waiting(strings.Join(w.app.settings().Folders(), ", "), enter != nil)
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

// next waits for changes or for the Enter key. pressed reports whether the key was pressed.
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
			return changes, false, nil // a change came before the key
		}
		return nil, true, nil
	case <-done:
		return changes, false, err
	}
}

// react builds the requests that the changes affect.
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

// reconfigure reads the configuration again and returns the requests to build: all
// requests, or, if the configuration is not valid, those that other changes affect.
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

// forgetRemoved stops watching for requests that the configuration has removed.
func (w *watchRun) forgetRemoved(reqs []jit.Request) {
	for r := range w.digests {
		if !slices.Contains(reqs, r) {
			w.watcher.Forget(r)
			delete(w.digests, r)
		}
	}
}

// build builds, reports the results, and tests changed modules.
func (w *watchRun) build(ctx context.Context, reqs []jit.Request) {
	results, _ := w.watcher.Build(ctx, w.manager, reqs...)
	if ctx.Err() != nil {
		return
	}
	w.app.err.SetStatus("")
	var changed []string // modules with a new artifact
	failed := false
	for _, r := range results {
		w.report.built(r)
		failed = failed || r.Err != nil
		if r.Err == nil && w.digests[r.Request] != r.Artifact.Digest && !slices.Contains(changed, r.Module) {
			changed = append(changed, r.Module)
		}
		w.digests[r.Request] = r.Artifact.Digest
	}
	if w.flags.test && !failed {
		w.test(ctx, changed)
	}
}

// modules returns the names of all built modules.
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

// ops returns the operators of modules.
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

// watchTestLimit is the largest number of elements of a configuration that is tested
// after each edit.
const watchTestLimit = 64 << 10

// test compares the operators of modules with the reference.
func (w *watchRun) test(ctx context.Context, modules []string) {
	for _, op := range w.ops(modules) {
		if ctx.Err() != nil {
			return
		}
		decl, err := w.app.declaration(op.Name)
		if as[*optests.UnknownOpError](err) {
			continue // the operator has no reference
		}
		if err != nil {
			w.report.tested(op.Name, nil, err)
			continue
		}
		f := &testFlags{accuracy: true}
		f.params = settable(decl)
		if len(w.flags.parts.dtype) > 0 {
			f.dtype = w.flags.parts.dtype
		}
		f.arch = w.testArch()
		small := func(decl optests.Declaration, _ tensor.Device) ([]optests.Config, error) {
			return f.expand(decl, smaller(watchTestLimit, decl.Configs()), optests.ForComparison)
		}
		quiet := *w.app
		quiet.quiet = true // no progress: the module is built
		rep, err := quiet.runCases(ctx, f, decl, small)
		if ctx.Err() == nil {
			w.report.tested(op.Name, rep, err)
		}
	}
}

// smaller drops cases with more elements than limit, except the smallest one.
func smaller(limit int64, list []optests.Config) []optests.Config {
	if len(list) > 0 {
		limit = max(limit, slices.MinFunc(list,
			func(a, b optests.Config) int { return cmp.Compare(a.Case.Elements(), b.Case.Elements()) }).Case.Elements())
	}
	return slices.DeleteFunc(slices.Clone(list), func(c optests.Config) bool { return c.Case.Elements() > limit })
}

// testArch returns the target to test: the only one, else the machine's.
func (w *watchRun) testArch() string {
	if len(w.targets) == 1 {
		return w.targets[0].String()
	}
	return native
}
