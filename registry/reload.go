package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/aiter-go/aiter/internal/ffi"
	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/settings"
	"github.com/aiter-go/aiter/internal/watch"
	"github.com/aiter-go/aiter/jit"
)

// reloader watches the configuration and the inputs of loaded modules, and installs new
// generations.
type reloader struct {
	reg      *Registry
	watcher  *watch.Watcher
	config   func() (*opconfig.Config, error)
	observer jit.Observer
	log      *slog.Logger
	cancel   context.CancelFunc
	done     chan struct{}

	mu   sync.Mutex       // also held while a generation is replaced
	errs map[string]error // *ReloadError of the last reload, by module; "" is the configuration
}

// ReloadError reports changed files that could not be used. Calls run the previous
// code.
type ReloadError struct {
	Module string // "" for the configuration
	Err    error  // a configuration error, a [*BuildError] or a [*LoadError]
}

func (e *ReloadError) Error() string {
	if e.Module == "" {
		return fmt.Sprintf("the configuration changed and cannot be used, so the previous configuration stays in use: %v", e.Err)
	}
	return fmt.Sprintf("%s changed and cannot be used, so its previous code stays in use: %v", e.Module, e.Err)
}

// Unwrap returns the cause.
func (e *ReloadError) Unwrap() error { return e.Err }

// ReloadErr returns the errors of the last reload: a [*ReloadError], or several joined. It
// is nil if the code in use was built from the current files, or if the registry does not reload.
func (r *Registry) ReloadErr() error {
	if r.reload == nil {
		return nil
	}
	r.reload.mu.Lock()
	defer r.reload.mu.Unlock()
	var errs []error
	for _, module := range slices.Sorted(maps.Keys(r.reload.errs)) {
		errs = append(errs, r.reload.errs[module])
	}
	return errors.Join(errs...)
}

// startReloading starts the reloader, which runs until stop.
func (r *Registry) startReloading(ctx context.Context, s settings.Settings) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l := &reloader{
		reg: r, config: s.LoadConfig, observer: s.Observer, log: s.Logger, cancel: cancel,
		done: make(chan struct{}), errs: map[string]error{},
	}
	l.watcher = watch.New(watch.Options{
		Memo:   r.Manager().Memo(),
		Report: func(err error) { s.Logger.Warn("reload", "error", err) },
	})
	l.watcher.Set(jit.Request{}, r.Manager().ConfigInputs())
	r.reload = l
	go l.run(ctx)
}

// stop ends the watching and a reload in progress.
func (l *reloader) stop() {
	l.cancel()
	<-l.done
}

func (l *reloader) run(ctx context.Context) {
	defer close(l.done)
	for {
		changes, err := l.watcher.Next(ctx)
		if err != nil {
			_ = l.watcher.Close() // closes a file descriptor
			return
		}
		l.reload(ctx, changes)
	}
}

// reload builds the changed modules in parallel. Each is replaced when it is built.
func (l *reloader) reload(ctx context.Context, changes []watch.Change) {
	start := time.Now()
	modules := map[string]bool{}
	for _, c := range changes {
		for _, r := range c.For {
			modules[r.Module] = true
			if v := l.reg.current.Load().modules[r.Module]; v != nil {
				v.loads.wait(ctx, r) // a module is watched before it is loaded
			}
		}
	}
	if modules[""] {
		delete(modules, "")
		if l.reconfigure(start) {
			for name := range l.reg.current.Load().modules {
				modules[name] = true
			}
		}
	}
	var wg sync.WaitGroup
	for name := range modules {
		wg.Go(func() { l.reloadModule(ctx, name, start) })
	}
	wg.Wait()
}

// reconfigure applies a changed configuration and reports whether it is valid. Loaded modules keep
// their code and operators until they are built from the new configuration.
func (l *reloader) reconfigure(start time.Time) bool {
	m, err := l.watcher.Reconfigure(l.reg.Manager(), l.config)
	if err != nil {
		if !l.alreadyReported(err) { // each later edit of a file would report the error again
			l.report("", start, err)
		}
		return false
	}
	l.swap(func(next *generation) {
		next.manager = m
		for _, v := range next.modules {
			mod, err := m.Config().Module(v.decl.Name)
			switch {
			case err != nil:
				next.remove(l.reg, v)
			case len(v.loads.results()) == 0:
				next.install(l.reg, newModuleVersion(m, mod))
			}
		}
		for _, mod := range m.Config().Modules {
			if next.modules[mod.Name] == nil {
				next.install(l.reg, newModuleVersion(m, mod))
			}
		}
	})
	l.report("", start, nil)
	return true
}

// alreadyReported reports whether the last reload of the configuration failed with the
// same error.
func (l *reloader) alreadyReported(err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.errs[""]
	return before != nil && errors.Unwrap(before).Error() == err.Error()
}

// swap changes a copy of the generation and makes it the current one.
func (l *reloader) swap(change func(next *generation)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := l.reg.current.Load().next()
	change(next)
	l.reg.current.Store(next)
}

// reloadModule builds and loads a module again for all targets for which it is loaded.
func (l *reloader) reloadModule(ctx context.Context, name string, start time.Time) {
	gen := l.reg.current.Load()
	old := gen.modules[name]
	if old == nil {
		return
	}
	loaded := old.loads.results()
	if len(loaded) == 0 {
		return // the next call builds it from the current files
	}
	v, err := l.rebuild(ctx, gen.manager, old, loaded)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil || v == nil:
		l.reportChange(name, start, err)
		return
	}
	l.swap(func(next *generation) { next.install(l.reg, v) })
	l.report(name, start, nil)
	releaseAll(loaded)
}

// rebuild returns the module's next version, nil if it equals the current one.
func (l *reloader) rebuild(
	ctx context.Context, m *jit.Manager, old *moduleVersion, loaded map[jit.Request]*loadedModule,
) (*moduleVersion, error) {
	mod, err := m.Config().Module(old.decl.Name)
	if err != nil {
		return nil, err
	}
	reqs := slices.DeleteFunc(slices.Collect(maps.Keys(loaded)), func(r jit.Request) bool { return !stillRequested(mod, r) })
	results, err := l.reg.build(ctx, m, reqs...)
	if err != nil {
		return nil, &BuildError{Request: firstFailed(results), Err: err}
	}
	if sameOps(old.decl, mod) && sameCode(loaded, results) {
		return nil, nil
	}
	v := newModuleVersion(m, mod)
	for _, res := range results {
		fresh, err := l.open(loaded[res.Request].support, res)
		if err != nil {
			releaseAll(v.loads.results())
			return nil, err
		}
		v.loads.store(res.Request, fresh)
	}
	return v, nil
}

// stillRequested reports whether calls may need the loaded part: a change may have
// replaced the parts of a module.
func stillRequested(mod *opconfig.Module, r jit.Request) bool {
	parts, err := mod.Parts(r.Target, opconfig.Selection{})
	return r.Part.Whole() || err == nil && slices.Contains(parts, r.Part)
}

// firstFailed returns the first request that failed.
func firstFailed(results []jit.Result) jit.Request {
	i := slices.IndexFunc(results, func(r jit.Result) bool { return r.Err != nil })
	return results[max(i, 0)].Request
}

// releaseAll allows other processes to remove artifacts. The code stays in memory:
// calls may still run it, and so may a device.
func releaseAll(loaded map[jit.Request]*loadedModule) {
	for _, mod := range loaded {
		_ = mod.release() // closes a lock file
	}
}

// open loads a library and checks that it defines all operators that its artifact lists.
func (l *reloader) open(sup *ffi.Support, res jit.Result) (*loadedModule, error) {
	mod, err := l.reg.open(sup, res)
	if err != nil {
		return nil, err
	}
	for _, op := range res.Artifact.Ops {
		if _, err := mod.lib.Func(op); err != nil {
			return nil, &LoadError{Request: res.Request, Path: mod.lib.Path(), Err: errors.Join(err, mod.release())}
		}
	}
	return mod, nil
}

// sameCode reports whether the libraries of a build are those that are loaded.
func sameCode(loaded map[jit.Request]*loadedModule, results []jit.Result) bool {
	for _, res := range results {
		if loaded[res.Request].digest != res.Artifact.Digest {
			return false
		}
	}
	return true
}

// sameOps reports whether two versions declare the same operators and parts. It ignores positions
// in the file.
func sameOps(a, b *opconfig.Module) bool {
	return reflect.DeepEqual(a.Axes, b.Axes) && slices.EqualFunc(a.Ops, b.Ops, func(x, y opconfig.Op) bool {
		x.Pos, y.Pos = opconfig.Position{}, opconfig.Position{}
		return reflect.DeepEqual(x, y)
	})
}

// reportChange reports a failure, or a success after a failure.
func (l *reloader) reportChange(module string, start time.Time, err error) {
	l.mu.Lock()
	failed := l.errs[module] != nil
	l.mu.Unlock()
	if err != nil || failed {
		l.report(module, start, err)
	}
}

// report records the result of a reload, and reports it to the observer and in the log.
func (l *reloader) report(module string, start time.Time, err error) {
	if err != nil {
		err = &ReloadError{Module: module, Err: err}
	}
	l.mu.Lock()
	delete(l.errs, module)
	if err != nil {
		l.errs[module] = err
	}
	l.mu.Unlock()
	if l.observer != nil {
		l.observer.Observe(jit.Event{Step: jit.Reloaded, Module: module, Seconds: time.Since(start).Seconds(), Err: err})
	}
	if err != nil {
		l.log.Warn("reload", "module", module, "error", err)
		return
	}
	l.log.Info("reload", "module", module)
}
