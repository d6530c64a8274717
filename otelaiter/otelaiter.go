// Package otelaiter follows builds, loads and calls with OpenTelemetry.
//
//	observer, err := otelaiter.New(otelaiter.Options{Calls: true})
//	...
//	reg, err := registry.Open(ctx, registry.Options{Observer: observer})
//
// Spans are children of the span in the context of the call or build: aiter.call, and inside it for the first call
// aiter.build (with aiter.lookup, aiter.compile and aiter.link) and aiter.load. Goroutines that need the same build share it:
// its spans belong to the caller that began it. The package is a module of its own, so that programs without OpenTelemetry do
// not depend on it.
package otelaiter

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/registry"
)

// Scope is the name of the tracer and of the meter.
const Scope = "github.com/aiter-go/aiter/otelaiter"

// Options of [New]. The zero value follows builds and loads with the global providers.
type Options struct {
	TracerProvider trace.TracerProvider // nil: [otel.GetTracerProvider]
	MeterProvider  metric.MeterProvider // nil: [otel.GetMeterProvider]

	// Calls follows calls of operators too: a span and a count for each. A call without it has no extra cost.
	Calls bool
	// DeviceTime measures the time of each call on the device, with events on the call's stream. Each call then waits for
	// its end, and cannot be captured in a graph. It needs Calls.
	DeviceTime bool
}

// Observer makes spans and counts. It is safe for concurrent use, and several registries may share one.
type Observer struct {
	tracer trace.Tracer
	counts counts
}

var _ jit.Tracer = (*Observer)(nil)

// New returns an observer for [registry.Options]. With Calls it is a [registry.CallTracer]. The error is that of the meter.
func New(o Options) (jit.Observer, error) {
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	if o.MeterProvider == nil {
		o.MeterProvider = otel.GetMeterProvider()
	}
	counts, err := newCounts(o.MeterProvider.Meter(Scope))
	if err != nil {
		return nil, err
	}
	observer := &Observer{tracer: o.TracerProvider.Tracer(Scope), counts: counts}
	if o.Calls {
		return &callObserver{observer, o.DeviceTime}, nil
	}
	return observer, nil
}

// Observe implements [jit.Observer].
func (o *Observer) Observe(e jit.Event) { o.counts.observe(e) }

// Begin implements [jit.Tracer].
func (o *Observer) Begin(ctx context.Context, op jit.Operation, e jit.Event) (context.Context, func(jit.Event)) {
	ctx, span := o.tracer.Start(ctx, "aiter."+string(op), trace.WithAttributes(attributes(e)...))
	return ctx, func(e jit.Event) {
		if span.IsRecording() {
			span.SetAttributes(results(op, e)...)
		}
		finish(span, e.Err)
	}
}

// attributes returns the attributes of an operation that begins.
func attributes(e jit.Event) []attribute.KeyValue {
	return strings(field{"module", e.Module}, field{"arch", e.Target}, field{"part", e.Part}, field{"unit", e.Unit()},
		field{"values", e.Values})
}

// results returns the attributes of an operation that ended.
func results(op jit.Operation, e jit.Event) []attribute.KeyValue {
	status := string(e.Status)
	if op == jit.LookingUp {
		status = lookupResult(e.Miss)
	}
	return strings(field{"status", status}, field{"cause", string(e.Miss.Cause)}, field{"reason", e.Reason})
}

func lookupResult(m jit.Miss) string {
	if m.IsHit() {
		return "hit"
	}
	return "miss"
}

type field struct{ name, value string }

// strings returns the attributes that are not empty, with the prefix "aiter.".
func strings(fields ...field) []attribute.KeyValue {
	var list []attribute.KeyValue
	for _, f := range fields {
		if f.value != "" {
			list = append(list, attribute.String("aiter."+f.name, f.value))
		}
	}
	return list
}

func finish(span trace.Span, err error) {
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// callObserver follows calls too.
type callObserver struct {
	*Observer
	deviceTime bool
}

var _ registry.CallTracer = (*callObserver)(nil)

// BeginCall implements [registry.CallTracer].
func (o *callObserver) BeginCall(ctx context.Context, op *registry.Op) (context.Context, func(registry.CallResult)) {
	names := strings(field{"op", op.Name()}, field{"module", op.Module()})
	ctx, span := o.tracer.Start(ctx, "aiter.call", trace.WithAttributes(names...))
	return ctx, func(r registry.CallResult) {
		o.counts.call(op.Name(), r)
		span.SetAttributes(strings(field{"device", deviceName(r)})...)
		if o.deviceTime && r.Err == nil {
			span.SetAttributes(attribute.Float64("aiter.device_seconds", r.DeviceTime.Seconds()))
		}
		finish(span, r.Err)
	}
}

// DeviceTime implements [registry.CallTracer].
func (o *callObserver) DeviceTime() bool { return o.deviceTime }

// deviceName returns "" for a call whose arguments are on no device.
func deviceName(r registry.CallResult) string {
	if r.Device.Type == 0 {
		return ""
	}
	return r.Device.String()
}
