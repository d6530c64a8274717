package registry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/aiter-go/aiter/internal/ffi"
	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/watch"
	"github.com/aiter-go/aiter/jit"
)

// reloader puts new code in the place of old when files change.
type reloader struct {
	reg      *Registry
	watcher  *watch.Watcher
	config   func() (*opconfig.Config, error)
	observer jit.Observer
	cancel   context.CancelFunc
	done     chan struct{}

	mu   sync.Mutex       // for putting a generation in its place, too
	errs map[string]error // by module, "" for the configuration: what the last reload failed with
}

// ReloadError reports files that changed and could not be put to use. Calls
// run the code from before.
type ReloadError struct {
	Module string // "" for the configuration
	Err    error
}

func (e *ReloadError) Error() string {
	if e.Module == "" {
		return fmt.Sprintf("the configuration changed and cannot be used, so the one before stays: %v", e.Err)
	}
	return fmt.Sprintf("%s changed and cannot be used, so its code from before stays: %v", e.Module, e.Err)
}

// Unwrap returns what is wrong: a configuration error, a [*BuildError] or a
// [*LoadError].
func (e *ReloadError) Unwrap() error { return e.Err }

// ReloadErr returns what keeps the registry from running the files as they are:
// a [*ReloadError], or several joined; nil when there is nothing, or the
// registry does not reload.
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

// startReloading watches from now on, until stop.
func (r *Registry) startReloading(ctx context.Context, opts Options) {
	log := zerolog.Ctx(ctx)
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l := &reloader{
		reg: r, config: opts.config, observer: opts.Observer, cancel: cancel,
		done: make(chan struct{}), errs: map[string]error{},
	}
	l.watcher = watch.New(watch.Options{
		Memo:   r.Manager().Memo(),
		Report: func(err error) { log.Warn().Err(err).Msg("reload") },
	})
	l.watcher.Set(jit.Request{}, r.Manager().ConfigInputs())
	r.reload = l
	go l.run(ctx)
}

// stop ends the watching and any reload that is under way.
func (l *reloader) stop() {
	l.cancel()
	<-l.done
}

func (l *reloader) run(ctx context.Context) {
	defer close(l.done)
	for {
		changes, err := l.watcher.Next(ctx)
		if err != nil {
			_ = l.watcher.Close() // a descriptor that only gives hints
			return
		}
		l.reload(ctx, changes)
	}
}

// reload builds what the changes concern, each module for itself, so that one
// that is quick does not wait for one that is slow.
func (l *reloader) reload(ctx context.Context, changes []watch.Change) {
	start := time.Now()
	modules := map[string]bool{}
	for _, c := range changes {
		for _, r := range c.For {
			modules[r.Module] = true
			if v := l.reg.now.Load().versions[r.Module]; v != nil {
				v.builds.wait(ctx, r) // it is watched since it was built, and may not be loaded yet
			}
		}
	}
	if modules[""] {
		delete(modules, "")
		if l.reconfigure(ctx, start) {
			for name := range l.reg.now.Load().versions {
				modules[name] = true
			}
		}
	}
	var wg sync.WaitGroup
	for name := range modules {
		wg.Go(func() { l.module(ctx, name, start) })
	}
	wg.Wait()
}

// reconfigure puts a changed configuration in place. Modules that are loaded
// keep their code and operators until they are built from it.
func (l *reloader) reconfigure(ctx context.Context, start time.Time) bool {
	m, err := l.watcher.Reconfigure(l.reg.Manager(), l.config)
	if err != nil {
		if !l.isKnown(err) { // any edit of the tree brings it here again
			l.tell(ctx, "", start, err)
		}
		return false
	}
	l.swap(func(next *generation) {
		next.manager = m
		for _, v := range next.versions {
			mod, err := m.Config().Module(v.mod.Name)
			switch {
			case err != nil:
				next.remove(l.reg, v)
			case len(v.builds.results()) == 0:
				next.install(l.reg, newVersion(m, mod))
			}
		}
		for _, mod := range m.Config().Modules {
			if next.versions[mod.Name] == nil {
				next.install(l.reg, newVersion(m, mod))
			}
		}
	})
	l.tell(ctx, "", start, nil)
	return true
}

// isKnown says whether the configuration failed with the same before.
func (l *reloader) isKnown(err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.errs[""]
	return before != nil && errors.Unwrap(before).Error() == err.Error()
}

// swap changes a copy of the generation and puts it in place, unless the
// registry was closed.
func (l *reloader) swap(change func(next *generation)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := l.reg.now.Load().next()
	change(next)
	l.reg.now.Store(next)
}

// module builds and loads a module anew for all targets it is loaded for.
func (l *reloader) module(ctx context.Context, name string, start time.Time) {
	now := l.reg.now.Load()
	old := now.versions[name]
	if old == nil {
		return
	}
	loaded := old.builds.results()
	if len(loaded) == 0 {
		return // a call builds it from the files as they are then
	}
	v, err := l.renew(ctx, now.manager, old, loaded)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil || v == nil:
		l.settle(ctx, name, start, err)
		return
	}
	l.swap(func(next *generation) { next.install(l.reg, v) })
	l.tell(ctx, name, start, nil)
	release(loaded)
}

// renew returns the module's next version, nil when it would be the same.
func (l *reloader) renew(ctx context.Context, m *jit.Manager, old *version, loaded map[jit.Request]*module) (*version, error) {
	mod, err := m.Config().Module(old.mod.Name)
	if err != nil {
		return nil, err
	}
	reqs := slices.DeleteFunc(slices.Collect(maps.Keys(loaded)), func(r jit.Request) bool { return !stillAsked(mod, r) })
	results, err := l.reg.build(ctx, m, reqs...)
	if err != nil {
		return nil, &BuildError{Request: firstFailed(results), Err: err}
	}
	if sameOps(old.mod, mod) && sameCode(loaded, results) {
		return nil, nil
	}
	v := newVersion(m, mod)
	for _, res := range results {
		fresh, err := l.open(loaded[res.Request].support, res)
		if err != nil {
			release(v.builds.results())
			return nil, err
		}
		v.builds.put(res.Request, fresh)
	}
	return v, nil
}

// stillAsked says whether calls may need what was loaded: the parts of a module
// may be others than they were.
func stillAsked(mod *opconfig.Module, r jit.Request) bool {
	specs, err := mod.Parts(r.Target, opconfig.Selection{})
	return r.Part.Whole() || err == nil && slices.Contains(specs, r.Part)
}

func firstFailed(results []jit.Result) jit.Request {
	i := slices.IndexFunc(results, func(r jit.Result) bool { return r.Err != nil })
	return results[max(i, 0)].Request
}

// release lets others clean artifacts away. The code stays in memory: calls
// may still be inside, and a device may still run kernels of it.
func release(loaded map[jit.Request]*module) {
	for _, mod := range loaded {
		_ = mod.release() // closes a file that was only locked
	}
}

// open loads a library, and looks whether all its operators are in it.
func (l *reloader) open(sup *ffi.Support, res jit.Result) (*module, error) {
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

func sameCode(loaded map[jit.Request]*module, results []jit.Result) bool {
	for _, res := range results {
		if loaded[res.Request].artifact != res.Artifact.Digest {
			return false
		}
	}
	return true
}

// sameOps says whether operators, and the parts that calls need, are declared
// alike, wherever in the file.
func sameOps(a, b *opconfig.Module) bool {
	return reflect.DeepEqual(a.Axes, b.Axes) && slices.EqualFunc(a.Ops, b.Ops, func(x, y opconfig.Op) bool {
		x.Pos, y.Pos = opconfig.Position{}, opconfig.Position{}
		return reflect.DeepEqual(x, y)
	})
}

// settle tells of a failure, or that the files are again what is loaded.
func (l *reloader) settle(ctx context.Context, module string, start time.Time, err error) {
	l.mu.Lock()
	failed := l.errs[module] != nil
	l.mu.Unlock()
	if err != nil || failed {
		l.tell(ctx, module, start, err)
	}
}

// tell notes how a reload went.
func (l *reloader) tell(ctx context.Context, module string, start time.Time, err error) {
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
	log := zerolog.Ctx(ctx).Info()
	if err != nil {
		log = zerolog.Ctx(ctx).Warn().Err(err)
	}
	log.Str("module", module).Msg("reload")
}
