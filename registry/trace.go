package registry

import (
	"context"
	"time"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/tensor"
	"github.com/aiter-go/aiter/trace"
)

// CallTracer is an [Options.Observer] that also follows calls of operators. Without one, calls have no extra cost.
type CallTracer interface {
	jit.Observer
	// BeginCall is called at the beginning of a call. The call uses the returned context, also for builds and loads. At its
	// end it calls the returned function.
	BeginCall(ctx context.Context, op *Op) (context.Context, func(CallResult))
	// DeviceTime reports whether calls measure their time on the device. Each such call waits until its work is complete, and
	// cannot be captured in a graph. With [Options.Verify] no time is measured.
	DeviceTime() bool
}

// CallResult describes a call that has ended.
type CallResult struct {
	Device     tensor.Device // of the tensors; the zero Device if the arguments are wrong
	DeviceTime time.Duration // 0 if it was not measured
	Err        error
}

// callTracerOf returns the call tracer among the observers, nil if there is none. The recording of [Options.Trace] comes first; of
// several others callTracerOf returns the first.
func callTracerOf(o jit.Observer) CallTracer {
	switch t := o.(type) {
	case *recording:
		t.calls = callTracerOf(t.inner)
		return t
	case CallTracer:
		return t
	case interface{ Observers() []jit.Observer }:
		for _, o := range t.Observers() {
			if found := callTracerOf(o); found != nil {
				return found
			}
		}
	}
	return nil
}

// traced runs a call under the call tracer.
func (o *Op) traced(ctx context.Context, call func(context.Context, *measurement) error) error {
	ctx, end := o.reg.tracer.BeginCall(ctx, o)
	m := &measurement{reg: o.reg, work: workOf(ctx, o.name), timed: o.reg.tracer.DeviceTime()}
	result := CallResult{Err: call(ctx, m)}
	result.Device, result.DeviceTime = m.dev, m.took
	end(result)
	return result.Err
}

// measurement holds the device of a call and its time on the device. For a call in pieces the time is the sum of those of the
// pieces.
type measurement struct {
	reg   *Registry
	work  trace.Span // of the kernels, for the timeline of Options.Trace
	timed bool
	dev   tensor.Device
	took  time.Duration
}

// around runs the operator on a stream and measures its time.
func (m *measurement) around(s device.Stream, run func() error) error {
	m.dev = s.Device
	if !m.timed {
		return m.reg.devices.Launch(s, m.work, run)
	}
	drv, err := m.reg.devices.Driver(s.Device.Type)
	if err != nil {
		return err
	}
	from, to, err := eventPair(drv, int(s.Device.ID))
	if err != nil {
		return err
	}
	defer func() { _, _ = from.Close(), to.Close() }() // an error here would come from an earlier kernel
	if err := drv.Record(from, s); err != nil {
		return err
	}
	if err := m.reg.devices.Launch(s, m.work, run); err != nil {
		return err
	}
	if err := drv.Record(to, s); err != nil {
		return err
	}
	took, err := drv.Elapsed(from, to)
	m.took += took
	return err
}

func eventPair(drv device.Driver, dev int) (from, to *device.Event, err error) {
	if from, err = drv.NewEvent(dev); err != nil {
		return nil, nil, err
	}
	if to, err = drv.NewEvent(dev); err != nil {
		_ = from.Close() // the error of NewEvent is reported
		return nil, nil, err
	}
	return from, to, nil
}

// beginLoad reports the beginning of a load to a [jit.Tracer].
func (r *Registry) beginLoad(ctx context.Context, req jit.Request) func(error) {
	t, ok := r.observer.(jit.Tracer)
	if !ok {
		return func(error) {}
	}
	e := jit.Event{Module: req.Module, Target: req.Target.String(), Part: req.Part.String()}
	_, end := t.Begin(ctx, jit.Loading, e)
	return func(err error) {
		e.Err = err
		end(e)
	}
}
