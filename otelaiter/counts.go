package otelaiter

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/registry"
)

// counts are the instruments. Their attributes have few values each.
type counts struct {
	builds, compiles, links, waits, reloads, device metric.Float64Histogram
	lookups, calls, quarantined, trimmed            metric.Int64Counter
}

func newCounts(m metric.Meter) (counts, error) {
	var errs []error
	seconds := func(name, text string) metric.Float64Histogram {
		h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(text),
			metric.WithExplicitBucketBoundaries(0.001, 0.004, 0.016, 0.064, 0.25, 1, 4, 16, 64, 256))
		errs = append(errs, err)
		return h
	}
	count := func(name, unit, text string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(text))
		errs = append(errs, err)
		return c
	}
	c := counts{
		builds:      seconds("aiter.build.duration", "Time to get a module for a target, compiled or from the cache."),
		compiles:    seconds("aiter.compile.duration", "Time of one compiler run."),
		links:       seconds("aiter.link.duration", "Time of one link."),
		waits:       seconds("aiter.lock_wait.duration", "Time spent waiting for another process that runs the same compile or link."),
		reloads:     seconds("aiter.reload.duration", "Time from a changed file until calls run the new code, or until the reload failed."),
		lookups:     count("aiter.unit.lookups", "{unit}", "Lookups of translation units in the cache, by result and cause of a miss."),
		calls:       count("aiter.calls", "{call}", "Calls of operators."),
		quarantined: count("aiter.cache.quarantined", "{file}", "Damaged files of the cache that were moved to quarantine."),
		trimmed:     count("aiter.cache.trimmed", "{artifact}", "Libraries that were removed to keep the limits of the cache."),
	}
	var err error
	c.device, err = m.Float64Histogram("aiter.call.device_duration", metric.WithUnit("s"),
		metric.WithDescription("Time of calls on the device."),
		metric.WithExplicitBucketBoundaries(1e-6, 4e-6, 16e-6, 64e-6, 256e-6, 1e-3, 4e-3, 16e-3, 64e-3, 0.25, 1))
	return c, errors.Join(append(errs, err)...)
}

// observe counts an event of a build.
func (c *counts) observe(e jit.Event) {
	ctx := context.Background() // an event has no context; spans have the caller's
	with := func(fields ...field) metric.MeasurementOption {
		return metric.WithAttributes(strings(append(fields, field{"module", e.Module}, field{"arch", e.Target})...)...)
	}
	result := field{"result", resultOf(e.Err)}
	switch e.Step {
	case jit.ModuleFinished:
		if e.Err == nil && e.Status == jit.Hit {
			result.value = "hit"
		}
		c.builds.Record(ctx, e.Seconds, with(result))
	case jit.UnitHit:
		c.lookups.Add(ctx, 1, with(field{"result", "hit"}))
	case jit.UnitStarted:
		c.lookups.Add(ctx, 1, with(field{"result", "miss"}, field{"cause", string(e.Miss.Cause)}))
	case jit.UnitFinished:
		c.compiles.Record(ctx, e.Seconds, with(result))
	case jit.LinkFinished:
		c.links.Record(ctx, e.Seconds, with(result))
	case jit.Waited:
		c.waits.Record(ctx, e.Seconds, with(result))
	case jit.Reloaded:
		c.reloads.Record(ctx, e.Seconds, with(result))
	case jit.Quarantined:
		c.quarantined.Add(ctx, 1)
	case jit.Trimmed:
		c.trimmed.Add(ctx, int64(e.Units))
	}
}

// call counts a call of an operator.
func (c *counts) call(op string, r registry.CallResult) {
	ctx := context.Background()
	names := metric.WithAttributes(strings(field{"op", op}, field{"device", deviceName(r)}, field{"result", resultOf(r.Err)})...)
	c.calls.Add(ctx, 1, names)
	if r.DeviceTime > 0 {
		c.device.Record(ctx, r.DeviceTime.Seconds(), metric.WithAttributes(
			attribute.String("aiter.op", op), attribute.String("aiter.device", deviceName(r))))
	}
}

func resultOf(err error) string {
	if err != nil {
		return "failed"
	}
	return "ok"
}
