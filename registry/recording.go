package registry

import (
	"context"

	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/trace"
)

// recording is the observer that records the timeline of [Options.Trace]. It passes everything on to [Options.Observer].
type recording struct {
	rec   *trace.Recorder
	inner jit.Observer // Options.Observer, nil for none
	calls CallTracer   // the call tracer of inner, nil for none
}

var _ CallTracer = (*recording)(nil)

// withTrace returns an observer that records a timeline and passes everything on to o. Without a recorder it returns o.
func withTrace(o jit.Observer, rec *trace.Recorder) jit.Observer {
	if rec == nil {
		return o
	}
	return &recording{rec: rec, inner: o}
}

// Observe implements [jit.Observer].
func (r *recording) Observe(e jit.Event) {
	if r.inner != nil {
		r.inner.Observe(e)
	}
}

type callKey struct{}

// callOf returns the number of the call that a context belongs to, 0 for none.
func callOf(ctx context.Context) uint64 {
	n, _ := ctx.Value(callKey{}).(uint64)
	return n
}

// Begin implements [jit.Tracer].
func (r *recording) Begin(ctx context.Context, op jit.Operation, e jit.Event) (context.Context, func(jit.Event)) {
	endInner := func(jit.Event) {}
	if t, ok := r.inner.(jit.Tracer); ok {
		ctx, endInner = t.Begin(ctx, op, e)
	}
	span := r.rec.Begin(kindOf(op), operationName(e))
	span.Call = callOf(ctx)
	return ctx, func(e jit.Event) {
		span.Detail = e.Target
		if e.Status != "" {
			span.Detail += ", " + string(e.Status)
		}
		if op == jit.LookingUp {
			span.Detail += lookupResult(e)
		}
		span.End(e.Err)
		endInner(e)
	}
}

// kindOf returns the kind of the span of an operation.
func kindOf(op jit.Operation) trace.Kind {
	switch op {
	case jit.Building:
		return trace.Build
	case jit.LookingUp:
		return trace.Lookup
	case jit.Compiling:
		return trace.Compile
	case jit.Linking:
		return trace.Link
	case jit.Loading:
		return trace.Load
	}
	return trace.Host
}

// operationName returns the unit of an operation with its axis values, else the part or the module.
func operationName(e jit.Event) string {
	switch {
	case e.Source != "" && e.Values != "":
		return e.Unit() + " " + e.Values
	case e.Source != "":
		return e.Unit()
	case e.Part != "":
		return e.Part
	}
	return e.Module
}

func lookupResult(e jit.Event) string {
	if e.Miss.IsHit() {
		return ", hit"
	}
	return ", " + e.Miss.String()
}

// BeginCall implements [CallTracer].
func (r *recording) BeginCall(ctx context.Context, op *Op) (context.Context, func(CallResult)) {
	endInner := func(CallResult) {}
	if r.calls != nil {
		ctx, endInner = r.calls.BeginCall(ctx, op)
	}
	if !r.rec.Recording() {
		return ctx, endInner
	}
	span := r.rec.Begin(trace.Call, op.Name())
	span.Call = r.rec.NewID()
	return context.WithValue(ctx, callKey{}, span.Call), func(result CallResult) {
		if result.Device.Type != 0 {
			span.Device = result.Device.String()
		}
		span.End(result.Err)
		endInner(result)
	}
}

// DeviceTime implements [CallTracer].
func (r *recording) DeviceTime() bool { return r.calls != nil && r.calls.DeviceTime() }

// workOf describes the kernels of a call.
func workOf(ctx context.Context, op string) trace.Span {
	return trace.Span{Kind: trace.Kernel, Name: op, Call: callOf(ctx)}
}
