package registry

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// flightGroup shares one run of a function among all callers of a key, and keeps
// successful results. The context of a run ends when no caller waits for it.
type flightGroup[K comparable, V any] struct {
	mu        sync.Mutex
	inFlight  map[K]*flight[V]
	abandoned map[*flight[V]]struct{} // those whose function runs without callers
	finished  map[K]V
}

// flight is one run of a function.
type flight[V any] struct {
	done    chan struct{}
	cancel  context.CancelFunc
	waiting int // number of callers
	value   V
	err     error
}

// do returns the value for key. If there is none, it runs work, or waits for the run in flight. If ctx
// ends first, it returns the cause.
func (f *flightGroup[K, V]) do(ctx context.Context, key K, work func(context.Context) (V, error)) (V, error) {
	f.mu.Lock()
	if v, ok := f.finished[key]; ok {
		f.mu.Unlock()
		return v, nil
	}
	fl := f.inFlight[key]
	if fl == nil {
		fl = f.start(ctx, key, work)
	}
	fl.waiting++
	f.mu.Unlock()
	select {
	case <-fl.done:
		return fl.value, fl.err
	case <-ctx.Done():
		f.abandon(key, fl)
		var zero V
		return zero, context.Cause(ctx)
	}
}

// result returns the value for key, if there is one.
func (f *flightGroup[K, V]) result(key K) (V, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v, ok := f.finished[key]
	return v, ok
}

// start starts the work; f.mu is held.
func (f *flightGroup[K, V]) start(ctx context.Context, key K, work func(context.Context) (V, error)) *flight[V] {
	if f.inFlight == nil {
		f.inFlight, f.finished = map[K]*flight[V]{}, map[K]V{}
	}
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	fl := &flight[V]{done: make(chan struct{}), cancel: cancel}
	f.inFlight[key] = fl
	go func() {
		defer cancel()
		fl.value, fl.err = work(own)
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.inFlight[key] == fl {
			delete(f.inFlight, key)
		}
		if fl.err == nil {
			f.finished[key] = fl.value
		}
		delete(f.abandoned, fl)
		close(fl.done)
	}()
	return fl
}

// abandon removes one caller from a flight. It cancels the flight if no caller is left.
func (f *flightGroup[K, V]) abandon(key K, fl *flight[V]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl.waiting--; fl.waiting > 0 {
		return
	}
	fl.cancel()
	if f.inFlight[key] == fl {
		delete(f.inFlight, key) // the next caller starts a new flight
	}
	select {
	case <-fl.done:
	default:
		if f.abandoned == nil {
			f.abandoned = map[*flight[V]]struct{}{}
		}
		f.abandoned[fl] = struct{}{}
	}
}

// waitAbandoned waits for the functions that run without callers.
func (f *flightGroup[K, V]) waitAbandoned() {
	f.mu.Lock()
	left := slices.Collect(maps.Keys(f.abandoned))
	f.mu.Unlock()
	for _, fl := range left {
		<-fl.done
	}
}

// results returns all successful results.
func (f *flightGroup[K, V]) results() map[K]V {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.finished)
}

// store sets the value for a key.
func (f *flightGroup[K, V]) store(key K, value V) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.finished == nil {
		f.inFlight, f.finished = map[K]*flight[V]{}, map[K]V{}
	}
	f.finished[key] = value
}

// wait waits for the function that runs for key, if any.
func (f *flightGroup[K, V]) wait(ctx context.Context, key K) {
	f.mu.Lock()
	fl := f.inFlight[key]
	f.mu.Unlock()
	if fl == nil {
		return
	}
	select {
	case <-fl.done:
	case <-ctx.Done():
	}
}
