package registry

import (
	"context"
	"errors"
	"fmt"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/internal/ffi"
	"github.com/aiter-go/aiter/internal/hostcall"
	"github.com/aiter-go/aiter/jit/schema"
	"github.com/aiter-go/aiter/tensor"
)

// CallHost calls the operator on a device with tensors in host memory, and waits for the results. The arguments are those of
// Call. CallHost splits the call into pieces along sizes that the operator declares, such as its batch or its channels. Uploads,
// the operator and downloads of different pieces overlap. Tensors in pinned memory ([device.Devices.NewPinned]) are copied
// directly, others through pinned memory of the pool. Device memory comes from the registry's pool ([Registry.HostPool]). For the
// host's device CallHost does the same as Call.
//
// A tensor that the operator writes may be given for two arguments. Otherwise it must not share memory with another argument.
// CallHost first waits for the work on the stream of [device.WithStream].
//
// If ctx ends or the device fails, CallHost begins no further piece and waits for those that run. Some results may then be
// written. The errors are those of Call, [*HostTensorError], [*SharedMemoryError], [*device.PoolLimitError] and [*device.Error].
// With [Options.Verify] each piece is compared with the CPU's results before the next one begins.
func (o *Op) CallHost(ctx context.Context, dev tensor.Device, args ...any) error {
	if dev.IsHost() {
		return o.Call(ctx, args...)
	}
	return o.tracedHost(ctx, o.current(), dev, args, nil)
}

// CallHostReturning is [Op.CallHost] of an operator with a result, which it returns as [Op.CallReturning] does. The call is not
// split, because the operator computes its result from all elements. So all tensors need memory on the device at the same time.
func (o *Op) CallHostReturning(ctx context.Context, dev tensor.Device, args ...any) (any, error) {
	if dev.IsHost() {
		return o.CallReturning(ctx, args...)
	}
	v := o.current()
	return v.returning(func(result *ffi.Any) error { return o.tracedHost(ctx, v, dev, args, result) })
}

// tracedHost makes a call of CallHost, under the call tracer if there is one.
func (o *Op) tracedHost(ctx context.Context, v *opVersion, dev tensor.Device, args []any, result *ffi.Any) error {
	if o.reg.tracer != nil {
		return o.traced(ctx, func(ctx context.Context, m *measurement) error {
			return v.callHost(ctx, dev, args, m, o.params, result)
		})
	}
	return v.callHost(ctx, dev, args, nil, o.params, result)
}

// HostTensorError reports an argument of [Op.CallHost] that is not in host memory.
type HostTensorError struct {
	Op, Arg string
	Device  tensor.Device
}

func (e *HostTensorError) Error() string {
	return fmt.Sprintf("%s: argument %s is on %s, expected host memory; use Call for tensors on a device", e.Op, e.Arg, e.Device)
}

// SharedMemoryError reports a written argument of [Op.CallHost] that overlaps another argument and is not the same tensor, or that
// has elements that share memory. In the second case Arg and Other are equal.
type SharedMemoryError struct{ Op, Arg, Other string }

func (e *SharedMemoryError) Error() string {
	if e.Arg == e.Other {
		return fmt.Sprintf("%s: argument '%s': is an output, but its strides let elements share memory; "+
			"pass a tensor with memory for each element", e.Op, e.Arg) // the text of Call, from aiter/check.h
	}
	return fmt.Sprintf("%s: argument '%s' is written, but shares memory with '%s'; pass the same tensor for both, or copy one of them",
		e.Op, e.Arg, e.Other)
}

// HostPool returns the pool that [Op.CallHost] uses on a device. Its counters cover all calls of CallHost on the device. The
// registry closes the pool. The errors are [ErrClosed] and those of opening the device.
func (r *Registry) HostPool(dev tensor.Device) (*device.Pool, error) {
	e, err := r.hostEngine(dev)
	if err != nil {
		return nil, err
	}
	return e.Pool(), nil
}

// hostEngine returns the engine of a device, which it makes on first use.
func (r *Registry) hostEngine(dev tensor.Device) (*hostcall.Engine, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.calls.closed.Load() {
		return nil, ErrClosed
	}
	if e := r.hosts[dev]; e != nil {
		return e, nil
	}
	drv, err := r.devices.Driver(dev.Type)
	if err != nil {
		return nil, err
	}
	pool, err := drv.NewPool(int(dev.ID), r.hostOptions.Pool)
	if err != nil {
		return nil, err
	}
	opts := hostcall.Options{Piece: r.hostOptions.Piece, Buffers: r.hostOptions.Buffers, Calls: r.hostOptions.Calls, Trace: r.trace}
	e := hostcall.New(drv, pool, opts)
	r.hosts[dev] = e
	return e, nil
}

// closeHosts closes the engines and their pools. No call is running.
func (r *Registry) closeHosts() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, e := range r.hosts {
		errs = append(errs, e.Close(), e.Pool().Close())
	}
	clear(r.hosts)
	return errors.Join(errs...)
}

// callHost builds the code for the device and makes the call in pieces, or in one if the caller needs its result.
func (o *opVersion) callHost(
	ctx context.Context, dev tensor.Device, args []any, m *measurement, params *ffi.Params, result *ffi.Any,
) error {
	if err := o.usable(ctx); err != nil {
		return err
	}
	if err := o.checkHostArgs(args); err != nil {
		return err
	}
	if _, err := o.binding(ctx, dev, o.key(args)); err != nil {
		return err
	}
	if err := o.checkHostArgs(args); err != nil { // the build may have taken minutes, and the tensors may be freed
		return err
	}
	engine, err := o.reg.hostEngine(dev)
	if err != nil {
		return err
	}
	counter := o.reg.calls.counter()
	if !o.reg.calls.enter(counter) {
		return ErrClosed
	}
	defer o.reg.calls.leave(counter)
	if err := o.awaitStream(ctx, dev); err != nil {
		return err
	}
	call := o.hostCall(args, result == nil)
	call.Launch = func(ctx context.Context, tensors []*tensor.Tensor) error {
		return o.callOrVerify(ctx, replaceTensors(args, tensors), m, params, result)
	}
	return engine.Run(ctx, call)
}

// awaitStream waits for the work on the stream of the context, which may write the arguments.
func (o *opVersion) awaitStream(ctx context.Context, dev tensor.Device) error {
	s, ok := device.StreamFrom(ctx)
	if !ok {
		return nil
	}
	if _, err := o.stream(ctx, dev); err != nil {
		return err
	}
	drv, err := o.reg.devices.Driver(dev.Type)
	if err != nil {
		return err
	}
	return drv.Synchronize(s)
}

// checkHostArgs checks the arguments as Call does. It also checks that all tensors are in host memory, and that no written tensor
// shares memory with another argument or has elements that share memory.
func (o *opVersion) checkHostArgs(args []any) error {
	tensors := tensorsOf(args)
	for i, t := range tensors {
		if t != nil && !t.Device().IsHost() && i < len(o.decl.Schema.Args) {
			return &HostTensorError{Op: o.Name(), Arg: o.decl.Schema.Args[i].Name, Device: t.Device()}
		}
	}
	buffer := o.reg.buffers.Get().(*callBuffer)
	defer o.reg.buffers.Put(buffer)
	if _, err := o.pack(buffer, args); err != nil {
		return err
	}
	for i, a := range tensors {
		if a == nil || !o.isWritten(i) {
			continue
		}
		if tensor.OverlapsItself(a) {
			return o.sharedMemory(i, i)
		}
		for k, b := range tensors {
			if b != nil && k != i && tensor.Overlaps(a, b) && !o.sameArgument(i, k, a, b) {
				return o.sharedMemory(i, k)
			}
		}
	}
	return nil
}

func (o *opVersion) isWritten(i int) bool {
	a := o.decl.Schema.Args[i]
	return a.Type.Kind == schema.Tensor && a.Type.Mutable
}

func (o *opVersion) sharedMemory(i, k int) error {
	return &SharedMemoryError{Op: o.Name(), Arg: o.decl.Schema.Args[i].Name, Other: o.decl.Schema.Args[k].Name}
}

// sameArgument reports whether two arguments have the same elements and are declared with the same shape.
func (o *opVersion) sameArgument(i, k int, a, b *tensor.Tensor) bool {
	declared := func(i int) string { return o.decl.Args[o.decl.Schema.Args[i].Name].Shape.String() }
	return hostcall.Equal(a, b) && declared(i) == declared(k)
}
