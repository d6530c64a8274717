// Package registry finds GPU operators by name and calls them. The first call builds
// the operator's module for the device of the tensors, or takes it from the disk
// cache, and loads it.
//
//	reg, err := registry.Open(ctx, registry.Options{})
//	op, err := reg.Lookup("causal_conv1d_fwd")
//	err = op.Call(ctx, out, x, weight, bias, true)
package registry

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/internal/ffi"
	"github.com/aiter-go/aiter/internal/hostcall"
	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/settings"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/tensor"
	"github.com/aiter-go/aiter/trace"
)

// Registry is a set of operators. It is safe for concurrent use.
type Registry struct {
	current   atomic.Pointer[generation]
	devices   *device.Devices
	preferred []target.Target // from Options.Targets
	verify    bool            // from Options.Verify
	tune      bool            // from Options.Tune
	observer  jit.Observer    // from Options.Observer; may be nil
	tracer    CallTracer      // the observer that follows calls, nil if there is none
	reload    *reloader       // nil unless Options.Reload

	hostOptions HostOptions
	trace       *trace.Recorder                    // nil without one
	hosts       map[tensor.Device]*hostcall.Engine // guarded by mu

	buffers sync.Pool // *callBuffer
	calls   calls

	mu             sync.Mutex
	targets        map[tensor.Device]target.Target
	support        *ffi.Support // shared by all modules
	releaseSupport func() error // allows other processes to remove its artifact; nil until it is loaded
	known          sync.Map     // tensor.Device -> []target.Target of its calls; see [Registry.Ready]
	ready          sync.Map     // set of jit.Request: they are built, and loaded if this machine runs them
}

// Open reads the configuration and returns a registry of its operators. It compiles
// and loads nothing. Its errors are those of [opconfig.Load] and of the cache folder.
func Open(ctx context.Context, opts Options) (*Registry, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	opts, s, err := opts.resolve()
	if err != nil {
		return nil, err
	}
	manager, err := s.OpenManager(ctx)
	if err != nil {
		return nil, err
	}
	devices, err := device.Open(device.Options{Getenv: opts.Getenv, Trace: opts.Trace})
	if err != nil {
		return nil, err
	}
	r := &Registry{
		devices:   devices,
		preferred: opts.Targets,
		verify:    opts.Verify,
		tune:      opts.Tune,
		observer:  opts.Observer,
		tracer:    callTracerOf(opts.Observer),
		targets:   map[tensor.Device]target.Target{},

		hostOptions: opts.Host,
		trace:       opts.Trace,
		hosts:       map[tensor.Device]*hostcall.Engine{},
	}
	r.buffers.New = func() any { return &callBuffer{counter: r.calls.counter()} }
	r.calls.ended = make(chan struct{}, 1)
	r.current.Store(newGeneration(r, manager))
	if opts.Reload {
		r.startReloading(ctx, s)
	}
	return r, nil
}

// Manager returns the registry's build manager. A reload of the configuration replaces
// the manager.
func (r *Registry) Manager() *jit.Manager { return r.current.Load().manager }

// Devices returns the devices of this machine.
func (r *Registry) Devices() *device.Devices { return r.devices }

// UnknownOpError reports a name that the configuration does not declare. It lists the
// nearest names.
type UnknownOpError = opconfig.UnknownOpError

// Lookup returns an operator by name: a map read. Its errors are [*UnknownOpError] and
// [ErrClosed].
func (r *Registry) Lookup(name string) (*Op, error) {
	if r.calls.closed.Load() {
		return nil, ErrClosed
	}
	gen := r.current.Load()
	if op := gen.op(name); op != nil {
		return op, nil
	}
	if _, _, err := gen.manager.Config().Op(name); err != nil {
		return nil, err
	}
	return nil, &UnknownOpError{Name: name} // the new configuration declares it, and its module is not built yet
}

// Ops returns all operators, sorted by name.
func (r *Registry) Ops() []*Op {
	gen := r.current.Load()
	list := make([]*Op, 0, len(gen.ops))
	for name := range gen.ops {
		if op := gen.op(name); op != nil {
			list = append(list, op)
		}
	}
	slices.SortFunc(list, func(a, b *Op) int { return strings.Compare(a.Name(), b.Name()) })
	return list
}

// Warm builds and loads the whole modules of the named operators for calls on a device, in
// parallel. Without names it builds the modules of all operators. For the zero Device it
// builds for all GPUs of this machine, or for the CPU if the machine has no GPU. The error
// joins all failures. [jit.Manager.Build] builds for targets that this machine does not have.
func (r *Registry) Warm(ctx context.Context, dev tensor.Device, names ...string) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
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
	targets, err := r.targetsOf(dev, native)
	if err != nil {
		return err
	}
	if host := target.Host(); r.verify && !slices.Contains(targets, host) {
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

// modulesOf returns the modules of the named operators, each once.
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

// warm builds the requests and the support library, which all calls need.
func (r *Registry) warm(ctx context.Context, reqs []jit.Request, native []target.Target) error {
	gen := r.current.Load()
	support := settings.SupportRequest()
	results, err := gen.manager.Build(ctx, append(reqs, support)...)
	errs := []error{err}
	for _, res := range results {
		switch {
		case res.Err != nil:
		case res.Request == support || !runsHere(res.Target, native):
			r.ready.Store(res.Request, struct{}{})
		default:
			_, err := gen.modules[res.Module].load(ctx, r, res.Request) // load marks it as ready
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func runsHere(t target.Target, native []target.Target) bool {
	return t.Vendor() == target.CPU || slices.ContainsFunc(native, t.Runs)
}

// Ready reports whether this process has built and loaded all code that calls of the named
// operators on a device need, so that no call compiles. Without names it reports this for all
// operators. The zero Device has the meaning that it has in [Registry.Warm], which builds all
// of this code; calls build the parts that they need. With [Options.Verify] the code for the
// CPU counts too. Ready returns false for an unknown operator, and for a device that neither
// Warm nor a call has used. It never blocks and reads no file.
func (r *Registry) Ready(dev tensor.Device, names ...string) bool {
	if r.calls.closed.Load() {
		return false
	}
	if _, ok := r.ready.Load(settings.SupportRequest()); !ok {
		return false
	}
	targets := r.knownTargets(dev)
	if r.verify {
		targets = append(targets, target.Host())
	}
	gen := r.current.Load()
	if len(names) == 0 {
		names = slices.DeleteFunc(slices.Collect(maps.Keys(gen.ops)), func(name string) bool { return gen.op(name) == nil })
	}
	for _, name := range names {
		op := gen.op(name)
		if op == nil || slices.ContainsFunc(targets, func(t target.Target) bool { return !r.isReady(gen.versions[op.index], t) }) {
			return false
		}
	}
	return len(targets) > 0
}

// isReady reports whether the operator's module was built, or each part that calls of
// the operator may need.
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

// Close closes the registry. Later lookups and calls fail with [ErrClosed], and so do
// calls that wait for a build. Close waits for calls that run an operator, then frees
// the devices' memory. Loaded code stays in memory, because a device may still run it.
// A reload in progress ends without effect, and so do builds that no caller waits for.
// Close waits for the observers of their events; such an observer must not call Close.
func (r *Registry) Close() error {
	if r.calls.closed.Swap(true) {
		return nil
	}
	if r.reload != nil {
		r.reload.stop()
	}
	for _, v := range r.current.Load().modules {
		v.loads.waitAbandoned()
	}
	r.calls.wait()
	return errors.Join(r.closeHosts(), r.releaseSupportLibrary(), r.Manager().Close(), r.devices.Close())
}
