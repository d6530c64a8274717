package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

var (
	// errBusy is the error for a request while others use all memory, or the whole queue.
	errBusy = errors.New("too many requests at once; try again later")
	// errStopped is the error for a request that arrives after the service has stopped.
	errStopped = errors.New("the service is stopping; send the request to another one")
)

// batcher joins requests that wait for the device into batches, each of which is one call. Joining adds no delay: if a runner is idle, it
// calls at once with the requests that wait; while all runners are busy, requests wait and become the next batch.
type batcher struct {
	call   func(context.Context, []*request) error
	bytes  int64 // the most bytes of x in a batch; 0: each request is a call of its own
	queue  int   // the most requests that wait
	counts *counts

	mu      sync.Mutex
	added   sync.Cond
	waiting []*job // oldest first
	stopped bool
	runners sync.WaitGroup
}

// job is a request in the queue or in a call.
type job struct {
	*request
	since time.Time
	done  chan error // receives the error of the call, or nil
}

func newBatcher(call func(context.Context, []*request) error, l limits, c *counts) *batcher {
	b := &batcher{call: call, bytes: l.batch, queue: l.queue, counts: c}
	b.added.L = &b.mu
	for range l.calls {
		b.runners.Go(func() {
			for batch := b.next(); batch != nil; batch = b.next() {
				b.run(batch)
			}
		})
	}
	return b
}

// do adds a request to the queue and waits for its call. If ctx ends first, do returns at once. A request that is still in the queue then
// leaves it. A request whose call runs keeps its memory until the call ends, because other requests share the call.
func (b *batcher) do(ctx context.Context, r *request, held *reservation) error {
	j := &job{request: r, since: time.Now(), done: make(chan error, 1)}
	if err := b.add(j); err != nil {
		return err
	}
	select {
	case err := <-j.done:
		return err
	case <-ctx.Done():
		if !b.remove(j) {
			rest := held.move()
			go func() {
				<-j.done
				rest.release()
			}()
		}
		return context.Cause(ctx)
	}
}

func (b *batcher) add(j *job) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.stopped:
		return errStopped
	case len(b.waiting) >= b.queue:
		return errBusy
	}
	b.waiting = append(b.waiting, j)
	b.counts.waiting.Set(float64(len(b.waiting)))
	b.added.Signal()
	return nil
}

// remove reports whether a job was in the queue.
func (b *batcher) remove(j *job) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.waiting, j)
	if i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
		b.counts.waiting.Set(float64(len(b.waiting)))
	}
	return i >= 0
}

// next waits for a job. It returns the oldest job, with the others that fit into its call; nil after stop.
func (b *batcher) next() []*job {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.waiting) == 0 {
		if b.stopped {
			return nil
		}
		b.added.Wait()
	}
	first := b.waiting[0]
	batch, size, key := []*job{first}, first.bytes(), first.key()
	b.waiting = slices.DeleteFunc(b.waiting, func(j *job) bool {
		if j == first {
			return true
		}
		if size+j.bytes() > b.bytes || j.key() != key {
			return false
		}
		batch, size = append(batch, j), size+j.bytes()
		return true
	})
	b.counts.waiting.Set(float64(len(b.waiting)))
	return batch
}

// run makes one call. If a call of several requests fails, each request gets a call of its own, so that one request cannot make the
// others fail.
func (b *batcher) run(batch []*job) {
	var requests []*request
	size := int64(0)
	for _, j := range batch {
		requests, size = append(requests, j.request), size+j.bytes()
		b.counts.wait.Observe(time.Since(j.since).Seconds())
	}
	b.counts.batchRequests.Observe(float64(len(batch)))
	b.counts.batchBytes.Observe(float64(size))
	err := b.guarded(requests)
	if err != nil && len(batch) > 1 {
		b.counts.split.Inc()
		for _, j := range batch {
			b.run([]*job{j})
		}
		return
	}
	for _, j := range batch {
		j.done <- err
	}
}

// guarded makes a call, and returns a panic as an error: in a runner's goroutine it would end the process.
func (b *batcher) guarded(requests []*request) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in a call: %v\n%s", p, debug.Stack())
		}
	}()
	// A call belongs to several requests, so none of their contexts ends it.
	return b.call(context.Background(), requests)
}

// stop refuses further jobs and waits for the calls of all earlier ones.
func (b *batcher) stop() {
	b.mu.Lock()
	b.stopped = true
	b.added.Broadcast()
	b.mu.Unlock()
	b.runners.Wait()
}
