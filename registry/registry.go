// Package registry finds GPU operators by name and calls them. The module that
// holds an operator is compiled for exactly the device of the tensors on first
// use, cached on disk, loaded and kept.
//
//	reg, err := registry.Open(ctx, registry.Options{})
//	op, err := reg.Lookup("causal_conv1d_fwd")
//	err = op.Call(ctx, out, x, weight, bias, true)
package registry

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/internal/ffi"
	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/settings"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/tensor"
)

// Registry is a set of operators. It is safe for use by many goroutines.
type Registry struct {
	current     atomic.Pointer[generation]
	devices *device.Devices
	preferred  []target.Target // from Options.Targets
	verify  bool            // from Options.Verify
	reload  *reloader       // nil unless Options.Reload

	buffers sync.Pool // *space, for packing calls
	calls  calls

	mu         sync.Mutex
	targets    map[tensor.Device]target.Target
	support    *ffi.Support // as first loaded; all modules share it
	releaseSupport func() error // lets others clean its artifact away; nil until it is loaded
	ready      sync.Map     // jit.Request -> struct{}: built, and loaded where it runs: a call would not compile
}

// Open reads the configuration and returns a registry of its operators.
// Nothing is compiled or loaded yet. Open fails with the errors of
// [opconfig.Load] and of the cache folder.
func Open(ctx context.Context, opts Options) (*Registry, error) {
	opts, set, err := opts.resolve()
	if err != nil {
		return nil, err
	}
	manager, err := set.OpenManager(ctx)
	if err != nil {
		return nil, err
	}
	devices, err := device.Open(device.Options{Env: opts.Getenv})
	if err != nil {
		return nil, err
	}
	r := &Registry{
		devices: devices,
		preferred:  opts.Targets,
		verify:  opts.Verify,
		targets: map[tensor.Device]target.Target{},
	}
	r.buffers.New = func() any { return &callBuffer{counter: r.calls.counter()} }
	r.calls.ended = make(chan struct{}, 1)
	r.current.Store(newGeneration(r, manager))
	if opts.Reload {
		r.startReloading(ctx, set)
	}
	return r, nil
}

// Manager returns the build manager below the registry; after a reload of the
// configuration that is another one.
func (r *Registry) Manager() *jit.Manager { return r.current.Load().manager }

// Devices returns the devices of this machine.
func (r *Registry) Devices() *device.Devices { return r.devices }

// UnknownOpError reports a name that no module of the configuration has. It
// lists the nearest names.
type UnknownOpError = opconfig.UnknownOpError

// Lookup returns the operator of that name: a map read. It fails with
// [*UnknownOpError] and [ErrClosed].
func (r *Registry) Lookup(name string) (*Op, error) {
	if r.calls.closed.Load() {
		return nil, ErrClosed
	}
	now := r.current.Load()
	if op := now.op(name); op != nil {
		return op, nil
	}
	if _, _, err := now.manager.Config().Op(name); err != nil {
		return nil, err
	}
	return nil, &UnknownOpError{Name: name} // declared a moment ago, and its module is being built
}

// Ops returns all operators, sorted by name.
func (r *Registry) Ops() []*Op {
	now := r.current.Load()
	list := make([]*Op, 0, len(now.ops))
	for name := range now.ops {
		if op := now.op(name); op != nil {
			list = append(list, op)
		}
	}
	slices.SortFunc(list, func(a, b *Op) int { return compareStrings(a.Name(), b.Name()) })
	return list
}

func compareStrings(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// Warm builds the modules of the named operators (all, when none is named) for
// the targets side by side, whole: every operator for every type. When no target
// is given it takes those that calls on this machine's GPUs ask for, as
// [Registry.Target] says, and cpu where there is no GPU. It loads those that this
// machine can run. The error joins all failures.
func (r *Registry) Warm(ctx context.Context, targets []target.Target, names ...string) error {
	if r.calls.closed.Load() {
		return ErrClosed
	}
	mods, err := r.modulesOf(names)
	if err != nil {
		return err
	}
	native, err := r.native(ctx)
	if err != nil {
		return err
	}
	if len(targets) == 0 {
		if targets, err = r.requestedTargets(native); err != nil {
			return err
		}
	}
	if host := settings.HostTarget(); r.verify && !slices.Contains(targets, host) {
		targets = append(slices.Clone(targets), host)
	}
	var reqs []jit.Request
	for _, mod := range mods {
		for _, t := range targets {
			reqs = append(reqs, jit.Request{Module: mod, Target: t})
		}
	}
	return r.warm(ctx, reqs, native)
}

// modulesOf returns the modules that hold the named operators, each once.
func (r *Registry) modulesOf(names []string) ([]string, error) {
	if len(names) == 0 {
		for _, op := range r.Ops() {
			names = append(names, op.Name())
		}
	}
	var mods []string
	for _, name := range names {
		op, err := r.Lookup(name)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(mods, op.Module()) {
			mods = append(mods, op.Module())
		}
	}
	return mods, nil
}

// warm builds them, and the support library, without which no call runs.
func (r *Registry) warm(ctx context.Context, reqs []jit.Request, native []target.Target) error {
	now := r.current.Load()
	support := settings.SupportRequest()
	results, err := now.manager.Build(ctx, append(reqs, support)...)
	errs := []error{err}
	for _, res := range results {
		switch {
		case res.Err != nil:
		case res.Request == support || !runsHere(res.Target, native):
			r.ready.Store(res.Request, struct{}{})
		default:
			_, err := now.modules[res.Module].load(ctx, r, res.Request) // and it is ready
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func runsHere(t target.Target, native []target.Target) bool {
	return t.Vendor() == target.CPU || slices.ContainsFunc(native, t.Runs)
}

// Ready says whether any call of the operator on the target would start without
// compiling, whatever its tensors' types, as far as this process knows: it was
// built by [Registry.Warm] or by calls with each type; for the CPU too, if
// calls are verified. The target is that of a device: what [Registry.Target]
// returns for it, or the device's own. It never blocks and touches no file.
func (r *Registry) Ready(name string, t target.Target) bool {
	op := r.current.Load().op(name)
	if op == nil || r.calls.closed.Load() {
		return false
	}
	t, err := r.targetOf(t)
	if err != nil {
		return false
	}
	if _, ok := r.ready.Load(settings.SupportRequest()); !ok {
		return false
	}
	return r.isReady(op.current(), t) && (!r.verify || r.isReady(op.current(), settings.HostTarget()))
}

// isReady says whether the operator's module was built, or each part that calls
// of the operator may need.
func (r *Registry) isReady(op *opVersion, t target.Target) bool {
	if _, ok := r.ready.Load(op.whole(t)); ok {
		return true
	}
	reqs := op.parts(t)
	return len(reqs) > 0 && !slices.ContainsFunc(reqs, func(req jit.Request) bool {
		_, ok := r.ready.Load(req)
		return !ok
	})
}

// Close closes the registry: later lookups and calls fail with [ErrClosed], and
// so do calls that still wait for a build. Calls that run the operator already
// finish, and Close waits for them before it frees the devices' memory. Code that
// was loaded stays in memory, since a device may still run it. A reload that is
// under way ends without effect, and so do builds that nobody waits for any more;
// an observer that is told of one of these must leave Close to another goroutine.
func (r *Registry) Close() error {
	if r.calls.closed.Swap(true) {
		return nil
	}
	if r.reload != nil {
		r.reload.stop()
	}
	for _, v := range r.current.Load().modules {
		v.builds.waitAbandoned()
	}
	r.calls.wait()
	return errors.Join(r.releaseSupportLibrary(), r.Manager().Close(), r.devices.Close())
}
