package registry

import (
	"context"
	"sync/atomic"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/internal/ffi"
	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/schema"
	"github.com/aiter-go/aiter/tensor"
)

// Op is an operator. It is safe for use by many goroutines. In a registry that
// reloads, whoever holds it calls the newest good version of its code, each call
// one version.
type Op struct {
	reg  *Registry
	name string
	slot int // its place in each generation's codes
}

// opVersion is one version of an operator: its declaration, and what was loaded of
// it. An operator that went from the configuration keeps the last one.
type opVersion struct {
	reg      *Registry
	module     *moduleVersion
	decl     *opconfig.Op
	axes     []keyAxis
	required int
	removed     error                     // a *RemovedError; nil while it is there
	bindings    atomic.Pointer[[]binding] // one a device and choice it was called with
}

// binding is the operator's code for one device and choice.
type binding struct {
	dev     tensor.Device
	key  partKey
	support *ffi.Support
	fn      ffi.Func
}

func newOpVersion(r *Registry, from *moduleVersion, decl *opconfig.Op) *opVersion {
	return &opVersion{reg: r, module: from, decl: decl, axes: keyAxes(from.decl, decl), required: decl.Schema.Required()}
}

// current returns the newest version.
func (o *Op) current() *opVersion { return o.reg.current.Load().versions[o.slot] }

// Name returns the operator's name.
func (o *Op) Name() string { return o.name }

// Module returns the name of the module that holds the operator.
func (o *Op) Module() string { return o.current().module.decl.Name }

// Doc returns what the configuration says about the operator.
func (o *Op) Doc() string { return o.current().decl.Doc }

// Schema returns the operator's arguments.
func (o *Op) Schema() schema.Schema { return o.current().decl.Schema }

// Call calls the operator with arguments in the schema's order; trailing ones
// that have defaults may be left out. A Tensor is given as *tensor.Tensor, an
// optional one may be nil, an int as any Go integer, a float as float64 or
// float32, a bool as bool. All tensors lie on one device; the code for it, and for
// the element types and sizes by which the module's axes choose, is built on first use.
//
// The work is queued on the stream of [device.WithStream], else on the
// device's default stream, and Call returns; on the CPU it is done then.
//
// Wrong arguments give [*ArityError], [*TypeError], [*MixedDevicesError] or,
// when the operator itself refuses them, [*OperatorError]; a module that
// cannot be built or loaded [*BuildError] or [*LoadError]; a closed registry
// [ErrClosed]; an operator that a reload took away [*RemovedError].
//
// Where [Options.Verify] asks for it, the call is checked against the CPU and
// has happened when Call returns; a difference is a [*VerifyError].
func (o *Op) Call(ctx context.Context, args ...any) error {
	c := o.current()
	if o.reg.verify {
		return c.callVerified(ctx, args)
	}
	return c.call(ctx, args)
}

// Name returns the operator's name.
func (o *opVersion) Name() string { return o.decl.Name }

// usable says why the operator cannot be called at all.
func (o *opVersion) usable() error {
	if o.reg.calls.closed.Load() {
		return ErrClosed
	}
	return o.removed
}

func (o *opVersion) call(ctx context.Context, args []any) error {
	if err := o.usable(); err != nil {
		return err
	}
	space := o.reg.buffers.Get().(*callBuffer)
	defer o.reg.buffers.Put(space)
	packed, dev, err := o.pack(space.args[:0], args)
	if err != nil {
		return err
	}
	choice := o.key(args)
	b := o.findBinding(dev, choice)
	if b == nil {
		bound, err := o.bind(ctx, dev, choice)
		if err != nil {
			return err
		}
		b = &bound
		// That may have taken minutes, and what was checked before it may be freed.
		if err := o.usable(); err != nil {
			return err
		}
		if packed, _, err = o.pack(space.args[:0], args); err != nil {
			return err
		}
	}
	stream, err := o.stream(ctx, dev)
	if err != nil {
		return err
	}
	if !o.reg.calls.enter(space.counter) {
		return ErrClosed
	}
	err = o.run(b, stream, packed, args)
	o.reg.calls.leave(space.counter)
	return err
}

// run calls the operator with arguments that were packed, in a call that Close waits for.
func (o *opVersion) run(b *binding, stream ffi.Stream, packed []ffi.Any, args []any) error {
	err := b.support.Call(b.fn, stream, packed)
	keepAlive(args)
	if err != nil {
		return o.operatorError(err)
	}
	return nil
}

// binding returns the code for the device and choice, building it on first use.
func (o *opVersion) binding(ctx context.Context, dev tensor.Device, c partKey) (binding, error) {
	if b := o.findBinding(dev, c); b != nil {
		return *b, nil
	}
	return o.bind(ctx, dev, c)
}

// findBinding returns the code for the device and choice, nil if it was not called before.
func (o *opVersion) findBinding(dev tensor.Device, c partKey) *binding {
	if list := o.bindings.Load(); list != nil {
		for i := range *list {
			if b := &(*list)[i]; b.dev == dev && b.key == c {
				return b
			}
		}
	}
	return nil
}

func (o *opVersion) bind(ctx context.Context, dev tensor.Device, c partKey) (binding, error) {
	t, err := o.reg.Target(dev)
	if err != nil {
		return binding{}, err
	}
	req, err := o.request(t, c)
	if err != nil {
		return binding{}, err
	}
	mod, err := o.load(ctx, req)
	if err != nil {
		return binding{}, err
	}
	fn, err := mod.lib.Func(o.Name())
	if err != nil {
		return binding{}, &LoadError{Request: req, Path: mod.lib.Path(), Err: err}
	}
	b := binding{dev, c, mod.support, fn}
	o.addBinding(b)
	return b, nil
}

// load returns the module that a call needs: the whole, where this process has
// it, else what was asked for.
func (o *opVersion) load(ctx context.Context, req jit.Request) (*loadedModule, error) {
	if mod, ok := o.module.builds.result(o.whole(req.Target)); ok {
		return mod, nil
	}
	return o.module.load(ctx, o.reg, req)
}

// addBinding adds b to the bindings, unless another goroutine has done so.
func (o *opVersion) addBinding(b binding) {
	for {
		old := o.bindings.Load()
		var list []binding
		if old != nil {
			list = append(list, *old...)
		}
		for _, have := range list {
			if have.dev == b.dev && have.key == b.key {
				return
			}
		}
		list = append(list, b)
		if o.bindings.CompareAndSwap(old, &list) {
			return
		}
	}
}

// stream is the stream to queue the work on.
func (o *opVersion) stream(ctx context.Context, dev tensor.Device) (ffi.Stream, error) {
	s := ffi.Stream{DeviceType: int32(dev.Type), DeviceID: dev.ID}
	given, ok := device.StreamFrom(ctx)
	if !ok {
		return s, nil
	}
	if given.Device != dev {
		return s, &StreamDeviceError{Op: o.Name(), Stream: given.Device, Tensors: dev}
	}
	s.Handle, s.Set = given.Handle, true
	return s, nil
}
