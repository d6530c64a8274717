package registry

import (
	"context"
	"errors"
	"fmt"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/internal/ffi"
	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/verify"
	"github.com/aiter-go/aiter/jit/schema"
	"github.com/aiter-go/aiter/tensor"
)

// VerifyError reports that an operator wrote different results on the device of its
// arguments and on the CPU, or other results than its reference. The arguments hold the device's results.
type VerifyError struct {
	Op, Arg   string
	Device    tensor.Device // computed Got
	Reference bool          // Want is of the operator's reference, else of the CPU
	verify.Difference
	Tolerance verify.Tolerance
}

func (e *VerifyError) Error() string {
	other := "the CPU"
	switch {
	case e.Reference:
		other = "the reference"
	case e.Device.IsHost():
		other = "a second run"
	}
	return fmt.Sprintf("%s: verification: argument %s: element %v on %s is %g, expected %g from %s (allowed error %s); "+
		"%d of %d elements are wrong, by up to %.3g",
		e.Op, e.Arg, e.Index, e.Device, e.Got, e.Want, other, e.Tolerance, e.Mismatches, e.Elements, e.MaxError)
}

// UnverifiedError reports a call that could not be verified: its arguments could not
// be copied to the host, or the operator has no reference and its CPU build is missing or fails.
type UnverifiedError struct {
	Op     string
	Called bool // the operator has run, and its arguments hold the results
	Err    error
}

func (e *UnverifiedError) Error() string {
	state := "the operator was not called"
	if e.Called {
		state = "the operator was called, and its arguments hold the results"
	}
	return fmt.Sprintf("%s: this call cannot be verified (%s): %v; unset AITER_VERIFY (Options.Verify) to call it without "+
		"verification", e.Op, state, e.Err)
}

// Unwrap returns the cause.
func (e *UnverifiedError) Unwrap() error { return e.Err }

// callVerified calls the operator, then its reference or CPU build on copies of the original
// arguments, and compares all arguments that the schema marks as written: outputs,
// states and in-place arguments. With the CPU build it compares the results too.
func (o *opVersion) callVerified(ctx context.Context, args []any, params *ffi.Params, result *ffi.Any) error {
	if err := o.usable(ctx); err != nil {
		return err
	}
	buffer := new(callBuffer)
	dev, err := o.pack(buffer, args)
	if err != nil {
		return err
	}
	dev = o.callDevice(ctx, dev)
	stream, err := o.stream(ctx, dev)
	if err != nil {
		return err
	}
	var onHost binding
	if !o.reg.hasReference(o.Name()) {
		onHost, err = o.binding(ctx, tensor.Host(), o.key(args))
		var unsupported *opconfig.UnsupportedTargetError
		if errors.As(err, &unsupported) {
			err = fmt.Errorf("the module has no code for the CPU, and Options.References has no reference of the operator: %w", unsupported)
		}
		if err != nil {
			return &UnverifiedError{Op: o.Name(), Err: err}
		}
	}
	onDevice, err := o.binding(ctx, dev, o.key(args))
	if err != nil {
		return err
	}
	// A build may have taken minutes, as in call. From here on Close waits.
	if err := o.usable(ctx); err != nil {
		return err
	}
	counter := o.reg.calls.counter()
	if !o.reg.calls.enter(counter) {
		return ErrClosed
	}
	defer o.reg.calls.leave(counter)
	if _, err := o.pack(buffer, args); err != nil {
		return err
	}
	queue := device.Stream{Device: dev, Handle: stream.Handle}
	before, err := o.snapshot(queue, tensorsOf(args))
	if err != nil {
		return &UnverifiedError{Op: o.Name(), Err: err}
	}
	var returned ffi.Any
	run := func() error { return o.run(&onDevice, stream, buffer, args, params, &returned) }
	if err := o.reg.devices.Launch(queue, workOf(ctx, o.Name()), run); err != nil {
		return err
	}
	if result != nil {
		*result = returned
	}
	if ref, ok := o.reg.references[o.Name()]; ok {
		return o.compareWithReference(ref, queue, args, before)
	}
	return o.compareWithCPU(onHost, queue, args, before, returned)
}

// compareWithCPU runs the CPU build on before, the copies of the tensors from before the call, which it
// overwrites. Then it compares the results of the call with those of the CPU.
func (o *opVersion) compareWithCPU(
	onHost binding, queue device.Stream, args []any, before []*tensor.Tensor, returned ffi.Any,
) error {
	got, err := o.snapshot(queue, o.writtenTensors(tensorsOf(args)))
	if err != nil {
		return &UnverifiedError{Op: o.Name(), Called: true, Err: err}
	}
	copies := replaceTensors(args, before)
	buffer := new(callBuffer)
	var want ffi.Any
	if _, err = o.pack(buffer, copies); err == nil {
		host := ffi.Stream{DeviceType: int32(tensor.CPU), Set: true}
		err = o.run(&onHost, host, buffer, copies, nil, &want)
	}
	if err != nil {
		return &UnverifiedError{Op: o.Name(), Called: true, Err: err}
	}
	return errors.Join(o.compare(queue.Device, got, before), o.compareResults(returned, want))
}

// snapshot waits for the call's stream, then copies tensors to the host.
func (o *opVersion) snapshot(queue device.Stream, tensors []*tensor.Tensor) ([]*tensor.Tensor, error) {
	drv, err := o.reg.devices.Driver(queue.Device.Type)
	if err != nil {
		return nil, err
	}
	if err := drv.Synchronize(queue); err != nil {
		return nil, err
	}
	return verify.Copy(o.reg.devices, tensors)
}

// writtenTensors returns the tensors that the schema marks as written, and nil in place of
// the others.
func (o *opVersion) writtenTensors(tensors []*tensor.Tensor) []*tensor.Tensor {
	out := make([]*tensor.Tensor, len(tensors))
	for i, a := range o.decl.Schema.Args[:len(tensors)] {
		if a.Type.Kind == schema.Tensor && a.Type.Mutable {
			out[i] = tensors[i]
		}
	}
	return out
}

// compare compares the device's results with the CPU's.
func (o *opVersion) compare(dev tensor.Device, got, want []*tensor.Tensor) error {
	return o.compareEach(dev, false, got, func(i int, arg string, g *tensor.Tensor) (*verify.Difference, verify.Tolerance, error) {
		tol := o.tolerance(arg, g.DType())
		d, err := verify.Compare(g, want[i], tol)
		return d, tol, err
	})
}

// tolerance returns the argument's tolerance in the configuration, else that of the
// element type.
func (o *opVersion) tolerance(arg string, dt tensor.DType) verify.Tolerance {
	declared, ok := o.decl.Tolerance[arg]
	switch {
	case !ok:
		return verify.Default(dt)
	case declared.Exact:
		return verify.Tolerance{}
	}
	return verify.Tolerance{Rel: declared.Rel, Abs: declared.Abs}.Rounded(dt)
}

// tensorsOf returns the tensors among args at their positions, nil elsewhere.
func tensorsOf(args []any) []*tensor.Tensor {
	out := make([]*tensor.Tensor, len(args))
	for i, a := range args {
		out[i], _ = a.(*tensor.Tensor)
	}
	return out
}

// replaceTensors returns a copy of args in which tensors[i], unless it is nil, replaces argument i.
func replaceTensors(args []any, tensors []*tensor.Tensor) []any {
	out := make([]any, len(args))
	for i, a := range args {
		if out[i] = a; tensors[i] != nil {
			out[i] = tensors[i]
		}
	}
	return out
}
