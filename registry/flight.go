package registry

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// flightGroup does a piece of work once for all who ask for it, and remembers what
// came out well. The work goes on while at least one of those who asked still
// waits; when all have given up its context ends.
type flightGroup[K comparable, V any] struct {
	mu      sync.Mutex
	inFlight  map[K]*flight[V]
	abandoned    map[*flight[V]]struct{} // those that everybody gave up, and that have not ended yet
	finished map[K]V
}

type flight[V any] struct {
	done    chan struct{}
	cancel  context.CancelFunc
	waiting int
	value   V
	err     error
}

// do returns the value for key, working it out if nobody has.
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

// result returns the value for key, if it was worked out.
func (f *flightGroup[K, V]) result(key K) (V, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v, ok := f.finished[key]
	return v, ok
}

// start begins the work; f.mu is held.
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

// abandon is called by one who gives up.
func (f *flightGroup[K, V]) abandon(key K, fl *flight[V]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl.waiting--; fl.waiting > 0 {
		return
	}
	fl.cancel()
	if f.inFlight[key] == fl {
		delete(f.inFlight, key) // who comes now starts afresh
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

// waitAbandoned waits for the end of what everybody gave up.
func (f *flightGroup[K, V]) waitAbandoned() {
	f.mu.Lock()
	left := slices.Collect(maps.Keys(f.abandoned))
	f.mu.Unlock()
	for _, fl := range left {
		<-fl.done
	}
}

// results returns what came out well so far.
func (f *flightGroup[K, V]) results() map[K]V {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.finished)
}

// store says what came out for a key.
func (f *flightGroup[K, V]) store(key K, value V) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.finished == nil {
		f.inFlight, f.finished = map[K]*flight[V]{}, map[K]V{}
	}
	f.finished[key] = value
}

// wait waits until nobody works on the value for key.
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
