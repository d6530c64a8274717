package registry

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/internal/ffi"
	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/schema"
	"github.com/aiter-go/aiter/tensor"
)

// Op is an operator. It is safe for concurrent use. In a registry that reloads, each
// call uses the newest version whose build succeeded.
type Op struct {
	reg   *Registry
	name  string
	index int // in generation.versions

	params *ffi.Params // of [Op.WithParams], else nil
}

// opVersion is one declaration of an operator with its loaded code. A removed operator
// keeps its last version.
type opVersion struct {
	reg      *Registry
	module   *moduleVersion
	decl     *opconfig.Op
	axes     []keyAxis
	required int                       // number of arguments without a default
	tensors  bool                      // some argument is a tensor
	defaults *callBuffer               // of the arguments that are not required
	checks   *argChecks                // of the arguments that the configuration describes, nil for none
	removed  error                     // a *RemovedError, else nil
	bindings atomic.Pointer[[]binding] // one for each device and part key of a call
}

// binding is the operator's code for one device and part key.
type binding struct {
	dev     tensor.Device
	key     partKey
	support *ffi.Support
	fn      ffi.Func
	library string     // digest of the artifact
	tuned   tunedCalls // nil without Options.Tune
}

func newOpVersion(r *Registry, mod *moduleVersion, decl *opconfig.Op) *opVersion {
	return &opVersion{
		reg: r, module: mod, decl: decl, axes: keyAxes(mod.decl, decl),
		required: decl.Schema.Required(), defaults: packDefaults(decl.Schema), checks: newArgChecks(decl),
		tensors: slices.ContainsFunc(decl.Schema.Args, func(a schema.Arg) bool { return a.Type.Kind == schema.Tensor }),
	}
}

// current returns the newest version.
func (o *Op) current() *opVersion { return o.reg.current.Load().versions[o.index] }

// Name returns the operator's name.
func (o *Op) Name() string { return o.name }

// Module returns the name of the operator's module.
func (o *Op) Module() string { return o.current().module.decl.Name }

// Doc returns the operator's description in the configuration.
func (o *Op) Doc() string { return o.current().decl.Doc }

// Schema returns the operator's arguments.
func (o *Op) Schema() schema.Schema { return o.current().decl.Schema }

// Call calls the operator with arguments in the schema's order. Trailing arguments
// with defaults may be left out. A Tensor is given as *tensor.Tensor (nil for an
// absent optional tensor), an int as any Go integer type, a float as float64 or
// float32, a bool as bool, a str as string without NUL bytes, an int[] as []int64, []int or []int32. A list
// and a str of more than 7 bytes cost one or two allocations. All tensors must be on one
// device. Call builds the code for the device, the element types and the sizes on first use.
// An operator whose schema has no tensor runs on the device of [device.WithStream], else on the CPU.
//
// Call queues the work on the stream of [device.WithStream], else on the device's
// default stream, and returns. On the CPU the work is done when Call returns.
//
// Wrong arguments give [*ArityError], [*TypeError], [*TensorError], [*MixedDevicesError] or
// [*ArgumentError]; a stream of another device gives [*StreamDeviceError]; arguments that the operator
// refuses give [*OperatorError]; a module that cannot be built or loaded gives [*BuildError] or
// [*LoadError]; a closed registry gives [ErrClosed]; an operator that a reload removed gives
// [*RemovedError]. If ctx has ended, or ends while the code is being built, Call queues nothing and
// returns the cause.
//
// With [Options.Verify] Call waits for the result and compares it with the CPU's; a
// difference is a [*VerifyError].
func (o *Op) Call(ctx context.Context, args ...any) error {
	v := o.current()
	if o.reg.tracer != nil {
		return o.traced(ctx, func(ctx context.Context, m *measurement) error { return v.callOrVerify(ctx, args, m, o.params, nil) })
	}
	return v.callOrVerify(ctx, args, nil, o.params, nil)
}

// CallReturning is [Op.Call] of an operator with a result. It returns the result as int64, bool or float64, depending on the
// schema. The result is complete when CallReturning returns; the work on tensors may still be queued. The errors are those of
// Call, and [*ResultError].
func (o *Op) CallReturning(ctx context.Context, args ...any) (any, error) {
	v := o.current()
	return v.returning(func(result *ffi.Any) error {
		if o.reg.tracer != nil {
			return o.traced(ctx, func(ctx context.Context, m *measurement) error {
				return v.callOrVerify(ctx, args, m, o.params, result)
			})
		}
		return v.callOrVerify(ctx, args, nil, o.params, result)
	})
}

// callOrVerify calls the operator, and verifies the call if [Options.Verify] is set. params are the launch parameters of
// [Op.WithParams]; nil: those that the registry has loaded for the call.
func (o *opVersion) callOrVerify(ctx context.Context, args []any, m *measurement, params *ffi.Params, result *ffi.Any) error {
	if o.reg.verify {
		return o.callVerified(ctx, args, params, result)
	}
	return o.call(ctx, args, m, params, result)
}

// Name returns the operator's name.
func (o *opVersion) Name() string { return o.decl.Name }

// usable returns the error of a context that has ended, a closed registry or a removed operator.
func (o *opVersion) usable(ctx context.Context) error {
	switch {
	case o.reg.calls.closed.Load():
		return ErrClosed
	case ctx.Err() != nil:
		return fmt.Errorf("%s: not called: %w", o.Name(), context.Cause(ctx))
	}
	return o.removed
}

// call packs the arguments, finds or builds the code for them, and runs it. m is nil without a call tracer. result is nil if the
// caller needs no result.
func (o *opVersion) call(ctx context.Context, args []any, m *measurement, params *ffi.Params, result *ffi.Any) error {
	if err := o.usable(ctx); err != nil {
		return err
	}
	buffer := o.reg.buffers.Get().(*callBuffer)
	defer o.reg.buffers.Put(buffer)
	dev, err := o.pack(buffer, args)
	if err != nil {
		return err
	}
	dev = o.callDevice(ctx, dev)
	key := o.key(args)
	b := o.findBinding(dev, key)
	if b == nil {
		bound, err := o.bind(ctx, dev, key)
		if err != nil {
			return err
		}
		b = &bound
		// The build may have taken minutes, and the checked tensors may be freed.
		if err := o.usable(ctx); err != nil {
			return err
		}
		if _, err = o.pack(buffer, args); err != nil {
			return err
		}
	}
	stream, err := o.stream(ctx, dev)
	if err != nil {
		return err
	}
	if !o.reg.calls.enter(buffer.counter) {
		return ErrClosed
	}
	if m == nil {
		err = o.run(b, stream, buffer, args, params, result)
	} else {
		err = m.around(device.Stream{Device: dev, Handle: stream.Handle}, func() error { return o.run(b, stream, buffer, args, params, result) })
	}
	o.reg.calls.leave(buffer.counter)
	return err
}

// run calls the operator with the arguments that are packed in the buffer. The caller has entered the call, so that Close waits
// for it.
func (o *opVersion) run(b *binding, stream ffi.Stream, buffer *callBuffer, args []any, params *ffi.Params, result *ffi.Any) error {
	if params == nil && b.tuned != nil {
		params = b.tuned.of(buffer.packed, args)
	}
	returned, err := b.support.CallReturning(b.fn.With(params), stream, buffer.packed)
	keepAlive(o, buffer, args)
	if err != nil {
		return o.operatorError(err)
	}
	if result != nil {
		*result = returned
	}
	return nil
}

// binding returns the code for the device and part key, and builds it on first use.
func (o *opVersion) binding(ctx context.Context, dev tensor.Device, key partKey) (binding, error) {
	if b := o.findBinding(dev, key); b != nil {
		return *b, nil
	}
	return o.bind(ctx, dev, key)
}

// findBinding returns the code for the device and part key, nil before the first call.
func (o *opVersion) findBinding(dev tensor.Device, key partKey) *binding {
	if list := o.bindings.Load(); list != nil {
		for i := range *list {
			if b := &(*list)[i]; b.dev == dev && b.key == key {
				return b
			}
		}
	}
	return nil
}

// bind builds and loads the part for the device and part key, and adds a binding of its
// function.
func (o *opVersion) bind(ctx context.Context, dev tensor.Device, key partKey) (binding, error) {
	t, err := o.reg.Target(dev)
	if err != nil {
		return binding{}, err
	}
	req, err := o.request(t, key)
	if err != nil {
		return binding{}, err
	}
	if err := o.module.decl.CheckTarget(t); err != nil {
		err = &BuildError{Request: req, Err: err}
		if !o.tensors {
			return binding{}, fmt.Errorf("%s: the operator has no tensors, and the call is for %s; name a device that the module supports "+
				"with device.WithStream: %w", o.Name(), dev, err)
		}
		return binding{}, fmt.Errorf("%s: the tensors are on %s; copy them to a device that the module supports: %w", o.Name(), dev, err)
	}
	mod, err := o.load(ctx, req)
	if err != nil {
		return binding{}, err
	}
	fn, err := mod.lib.Func(o.Name())
	if err != nil {
		return binding{}, &LoadError{Request: req, Path: mod.lib.Path(), Err: err}
	}
	b := binding{dev: dev, key: key, support: mod.support, fn: fn, library: mod.digest}
	if o.reg.tune {
		if b.tuned, err = o.loadTuned(dev, mod); err != nil {
			return binding{}, err
		}
	}
	o.addBinding(b)
	return b, nil
}

// load returns the whole module if this process has loaded it, else the requested
// part.
func (o *opVersion) load(ctx context.Context, req jit.Request) (*loadedModule, error) {
	if mod, ok := o.module.loads.result(o.whole(req.Target)); ok {
		return mod, nil
	}
	return o.module.load(ctx, o.reg, req)
}

// addBinding adds b to the bindings, unless another goroutine has added it.
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

// callDevice returns the device on which a call runs, given the device dev of its tensors. For an operator without tensors it is that
// of the stream of the context, if there is one.
func (o *opVersion) callDevice(ctx context.Context, dev tensor.Device) tensor.Device {
	if o.tensors {
		return dev
	}
	if given, ok := device.StreamFrom(ctx); ok {
		return given.Device
	}
	return dev
}

// stream returns the stream of [device.WithStream], else the device's default stream. The
// error is a [*StreamDeviceError].
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
