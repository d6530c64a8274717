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
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/internal/ffi"
	"github.com/aiter-go/aiter/internal/hostcall"
	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/tensor"
	"github.com/aiter-go/aiter/trace"
)

// Registry is a set of operators. It is safe for concurrent use.
type Registry struct {
	current    atomic.Pointer[generation]
	devices    *device.Devices
	preferred  []target.Target      // from Options.Targets
	verify     bool                 // from Options.Verify
	tune       bool                 // from Options.Tune
	observer   jit.Observer         // from Options.Observer; may be nil
	tracer     CallTracer           // the observer that follows calls, nil if there is none
	reload     *reloader            // nil unless Options.Reload
	references map[string]Reference // from Options.References

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
	ready          sync.Map     // set of jit.Request whose code is built, and loaded if this machine runs it
}

// Open reads the configuration and returns a registry of its operators. It compiles and loads
// nothing. The errors are [*EnvironmentError], [ErrNoCheckout], those of the configuration, such as
// [*ClashError], those of opening the cache folder, and those of [device.Open].
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
		devices:    devices,
		preferred:  opts.Targets,
		verify:     opts.Verify,
		references: opts.References,
		tune:       opts.Tune,
		observer:   opts.Observer,
		tracer:     callTracerOf(opts.Observer),
		targets:    map[tensor.Device]target.Target{},

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

// Lookup returns an operator by name. It only reads a map. The errors are [*UnknownOpError] and
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
