package jit

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// logEvent writes a step of a build to the log, with its fields.
func logEvent(log *slog.Logger, e Event) {
	level := slog.LevelDebug
	if e.Step == Waiting {
		level = slog.LevelInfo
	}
	if log.Enabled(context.Background(), level) {
		log.LogAttrs(context.Background(), level, string(e.Step), eventAttrs(e)...)
	}
}

// eventAttrs returns the fields of an event that are not empty.
func eventAttrs(e Event) []slog.Attr {
	var attrs []slog.Attr
	for _, f := range []struct{ name, value string }{
		{"module", e.Module}, {"target", e.Target}, {"part", e.Part}, {"source", e.Source}, {"pass", string(e.Pass)},
		{"values", e.Values}, {"status", string(e.Status)}, {"cause", string(e.Miss.Cause)}, {"reason", e.Reason},
		{"key", e.Key.Short()}, {"digest", e.Digest},
	} {
		if f.value != "" {
			attrs = append(attrs, slog.String(f.name, f.value))
		}
	}
	if e.Units > 0 {
		attrs = append(attrs, slog.Int("units", e.Units))
	}
	if e.Seconds > 0 {
		attrs = append(attrs, slog.Float64("seconds", e.Seconds))
	}
	if e.Holder.PID > 0 {
		attrs = append(attrs, slog.Int("holder", e.Holder.PID), slog.String("host", e.Holder.Host),
			slog.String("what", e.Holder.What), slog.Time("since", e.Holder.Since))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.Any("error", e.Err))
	}
	return attrs
}

// compileLog logs the compiles of one request: their number as soon as every unit was looked up, and their time. It logs
// nothing if the cache has all units.
type compileLog struct {
	log     *slog.Logger
	request Request
	started time.Time

	mu        sync.Mutex
	pending   int // units that were not looked up yet
	missed    int
	announced bool
}

func newCompileLog(log *slog.Logger, r Request) *compileLog {
	return &compileLog{log: log, request: r, started: time.Now()}
}

// expect sets the number of units that will be looked up.
func (a *compileLog) expect(units int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pending = units
}

// lookedUp counts a unit that was looked up.
func (a *compileLog) lookedUp(missed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pending--; missed {
		a.missed++
	}
	if a.pending == 0 && a.missed > 0 && !a.announced {
		a.announced = true
		a.log.Info("compiling "+a.what(), a.attrs()...)
	}
}

// finish logs the end of the build.
func (a *compileLog) finish(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.announced {
		return
	}
	message := "compiled " + a.what()
	if err != nil { // the caller reports the error
		message = fmt.Sprintf("the build of %s for %s failed", a.request.Module, a.request.Target)
	}
	a.log.Info(message, append(a.attrs(), "seconds", float64(time.Since(a.started).Milliseconds())/1000)...)
}

// what describes the compiles: "3 units of module_x for gfx942".
func (a *compileLog) what() string {
	units := "units"
	if a.missed == 1 {
		units = "unit"
	}
	return fmt.Sprintf("%d %s of %s for %s", a.missed, units, a.request.Module, a.request.Target)
}

func (a *compileLog) attrs() []any {
	if a.request.Part.Whole() {
		return nil
	}
	return []any{"part", a.request.Part.String()}
}
