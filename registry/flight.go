package registry

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// flights does a piece of work once for all who ask for it, and remembers what
// came out well. The work goes on while at least one of those who asked still
// waits; when all have given up its context ends.
type flights[K comparable, V any] struct {
	mu      sync.Mutex
	flying  map[K]*flight[V]
	left    map[*flight[V]]struct{} // those that everybody gave up, and that have not ended yet
	arrived map[K]V
}

type flight[V any] struct {
	done    chan struct{}
	cancel  context.CancelFunc
	waiting int
	value   V
	err     error
}

// do returns the value for key, working it out if nobody has.
func (f *flights[K, V]) do(ctx context.Context, key K, work func(context.Context) (V, error)) (V, error) {
	f.mu.Lock()
	if v, ok := f.arrived[key]; ok {
		f.mu.Unlock()
		return v, nil
	}
	fl := f.flying[key]
	if fl == nil {
		fl = f.start(ctx, key, work)
	}
	fl.waiting++
	f.mu.Unlock()
	select {
	case <-fl.done:
		return fl.value, fl.err
	case <-ctx.Done():
		f.leave(key, fl)
		var zero V
		return zero, context.Cause(ctx)
	}
}

// have returns the value for key, if it was worked out.
func (f *flights[K, V]) have(key K) (V, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v, ok := f.arrived[key]
	return v, ok
}

// start begins the work; f.mu is held.
func (f *flights[K, V]) start(ctx context.Context, key K, work func(context.Context) (V, error)) *flight[V] {
	if f.flying == nil {
		f.flying, f.arrived = map[K]*flight[V]{}, map[K]V{}
	}
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	fl := &flight[V]{done: make(chan struct{}), cancel: cancel}
	f.flying[key] = fl
	go func() {
		defer cancel()
		fl.value, fl.err = work(own)
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.flying[key] == fl {
			delete(f.flying, key)
		}
		if fl.err == nil {
			f.arrived[key] = fl.value
		}
		delete(f.left, fl)
		close(fl.done)
	}()
	return fl
}

// leave is called by one who gives up.
func (f *flights[K, V]) leave(key K, fl *flight[V]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl.waiting--; fl.waiting > 0 {
		return
	}
	fl.cancel()
	if f.flying[key] == fl {
		delete(f.flying, key) // who comes now starts afresh
	}
	select {
	case <-fl.done:
	default:
		if f.left == nil {
			f.left = map[*flight[V]]struct{}{}
		}
		f.left[fl] = struct{}{}
	}
}

// drain waits for the end of what everybody gave up.
func (f *flights[K, V]) drain() {
	f.mu.Lock()
	left := slices.Collect(maps.Keys(f.left))
	f.mu.Unlock()
	for _, fl := range left {
		<-fl.done
	}
}

// results returns what came out well so far.
func (f *flights[K, V]) results() map[K]V {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.arrived)
}

// put says what came out for a key.
func (f *flights[K, V]) put(key K, value V) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.arrived == nil {
		f.flying, f.arrived = map[K]*flight[V]{}, map[K]V{}
	}
	f.arrived[key] = value
}

// wait waits until nobody works on the value for key.
func (f *flights[K, V]) wait(ctx context.Context, key K) {
	f.mu.Lock()
	fl := f.flying[key]
	f.mu.Unlock()
	if fl == nil {
		return
	}
	select {
	case <-fl.done:
	case <-ctx.Done():
	}
}
