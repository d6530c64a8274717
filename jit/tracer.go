package jit

import "context"

// Operation is a part of a build, or a load, that a [Tracer] follows.
type Operation string

// The operations of builds and loads. Builds contain the others, except loads.
const (
	Building  Operation = "build"   // of a request
	LookingUp Operation = "lookup"  // of a unit or a link in the cache; the last event has the Miss
	Compiling Operation = "compile" // of a unit
	Linking   Operation = "link"
	Loading   Operation = "load" // of a library, by a registry
)

// Tracer is an [Observer] that follows operations in their contexts, for spans. Goroutines share a build, so that its
// context is that of the caller that began it.
type Tracer interface {
	Observer
	// Begin is called at the beginning of an operation. The operation goes on with the returned context, and calls the
	// returned function at its end. Both events name the module, the target, the part and the unit.
	Begin(ctx context.Context, op Operation, e Event) (context.Context, func(Event))
}

// Join returns an observer that sends the events to all observers. It is a [Tracer] that follows operations for those of
// them that are tracers.
func Join(observers ...Observer) Observer { return joined(observers) }

type joined []Observer

// Observe implements [Observer].
func (j joined) Observe(e Event) {
	for _, o := range j {
		o.Observe(e)
	}
}

// Begin implements [Tracer].
func (j joined) Begin(ctx context.Context, op Operation, e Event) (context.Context, func(Event)) {
	var ends []func(Event)
	for _, o := range j {
		if t, ok := o.(Tracer); ok {
			next, end := t.Begin(ctx, op, e)
			ctx, ends = next, append(ends, end)
		}
	}
	return ctx, func(e Event) {
		for _, end := range ends {
			end(e)
		}
	}
}

// Observers returns the joined observers.
func (j joined) Observers() []Observer { return j }

// begin reports the beginning of an operation to the tracer. Without a tracer it does nothing.
func (m *Manager) begin(ctx context.Context, op Operation, e Event) (context.Context, func(Event)) {
	if t, ok := m.opts.Observer.(Tracer); ok {
		return t.Begin(ctx, op, e)
	}
	return ctx, func(Event) {}
}

// requestEvent returns the event fields of a request.
func requestEvent(r Request, e Event) Event {
	e.Module, e.Target, e.Part = r.Module, r.Target.String(), r.Part.String()
	return e
}
