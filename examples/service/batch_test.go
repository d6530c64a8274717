package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/examples/service/api"
	"github.com/aiter-go/aiter/metrics"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// checked returns a request, decoded from its bytes, and the tensors for api.Check.
func checked(t testing.TB, tensors set) *request {
	t.Helper()
	r, err := decode(encode(t, api.Safetensors, tensors), api.Safetensors, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Requests that share a call get the same bits as in calls of their own, and the results are right.
func TestJoinedBits(t *testing.T) {
	svc := open(t, shortLimits(), registry.Options{})
	for _, dt := range []tensor.DType{tensor.Float32, tensor.Float16, tensor.BFloat16} {
		for _, dim := range []int64{1, 3, 64, 100, 1030} {
			for _, width := range []int64{1, 2, 4, 7} {
				weight, bias := pattern(t, dt, 3, dim, width), pattern(t, tensor.Float32, 5, dim)
				var sent []set
				var list []*request
				for i, shape := range [][]int64{{1, dim}, {300, dim}, {3, 5, dim}, {2, dim}, {2, 17, dim}, {64, dim}} {
					one := set{api.X: pattern(t, dt, i, shape...), api.Weight: weight, api.Bias: bias}
					if states := append(append([]int64{}, shape[:len(shape)-2]...), dim, width-1); i%2 == 0 {
						one[api.Initial] = pattern(t, dt, 11+i, states...)
					}
					sent, list = append(sent, one), append(list, checked(t, one))
				}
				if err := svc.call(t.Context(), list); err != nil {
					t.Fatal(err)
				}
				for i, r := range list {
					joined := r.answer
					if err := svc.call(t.Context(), []*request{r}); err != nil {
						t.Fatal(err)
					}
					answer, err := api.Safetensors.Decode(joined, api.Out)
					if err == nil {
						err = api.Check(sent[i], answer, false)
					}
					if err != nil || !bytes.Equal(joined, r.answer) {
						t.Errorf("%s, %d channels, width %d, request %d: equal alone: %v, %v", dt, dim, width, i, bytes.Equal(joined, r.answer), err)
					}
				}
			}
		}
	}
}

// gate delays calls until the test opens it.
type gate struct {
	entered chan []*request // receives the requests of each call
	open    chan error      // the test sends nil to run a call, or the error that the call returns instead
}

func gated(t *testing.T, l limits) (*batcher, *gate, *counts) {
	t.Helper()
	svc, g := open(t, l, registry.Options{}), &gate{make(chan []*request), make(chan error)}
	c := newCounts(metrics.New())
	b := newBatcher(func(ctx context.Context, list []*request) error {
		g.entered <- list
		if err := <-g.open; err != nil {
			return err
		}
		return svc.call(ctx, list)
	}, l, c)
	t.Cleanup(b.stop)
	return b, g, c
}

// enter calls do in a goroutine, and waits until so many requests wait in the queue.
func enter(t *testing.T, ctx context.Context, b *batcher, r *request, waiting int) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- b.do(ctx, r, &reservation{from: semaphore.NewWeighted(0)}) }()
	b.await(t, waiting)
	return done
}

func (b *batcher) await(t *testing.T, waiting int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		b.mu.Lock()
		n := len(b.waiting)
		b.mu.Unlock()
		if n == waiting {
			return
		}
	}
	t.Fatalf("the queue never had %d requests", waiting)
}

// Requests with equal keys that wait share the next call, up to its limit. The other requests keep their order.
func TestBatches(t *testing.T) {
	l := shortLimits()
	l.batch = 20 * 8
	b, g, _ := gated(t, l)
	weight, other := pattern(t, tensor.Float32, 0, 2, 3), pattern(t, tensor.Float32, 1, 2, 3)
	ask := func(seqlen int64, w *tensor.Tensor, dt tensor.DType) *request {
		return checked(t, set{api.X: pattern(t, dt, 0, seqlen, 2), api.Weight: w})
	}
	silu := ask(1, weight, tensor.Float32)
	silu.silu = true
	first := enter(t, t.Context(), b, ask(1, weight, tensor.Float32), 0)
	if n := len(<-g.entered); n != 1 {
		t.Fatalf("the first call has %d requests, want 1, which does not wait for others", n)
	}
	ends := []<-chan error{first}
	for i, r := range []*request{
		ask(9, weight, tensor.Float32),  // second call
		ask(5, other, tensor.Float32),   // third, with other filters
		ask(9, weight, tensor.Float32),  // second
		ask(9, weight, tensor.Float32),  // fourth: the second is full
		ask(2, weight, tensor.Float32),  // second
		ask(5, weight, tensor.BFloat16), // fifth, of another type
		silu,                            // sixth
		ask(90, weight, tensor.Float32), // seventh, alone
	} {
		ends = append(ends, enter(t, t.Context(), b, r, i+1))
	}
	g.open <- nil
	for _, want := range []string{"9 9 2 ", "5 ", "9 ", "5 ", "1 ", "90 "} {
		var got string
		for _, r := range <-g.entered {
			got += fmt.Sprint(r.tokens(), " ")
		}
		if got != want {
			t.Errorf("a call of sequences of %s, want %s", got, want)
		}
		g.open <- nil
	}
	for i, end := range ends {
		if err := <-end; err != nil {
			t.Errorf("request %d: %v", i, err)
		}
	}
}

// A client that leaves does not disturb the other requests in the queue or in its call.
func TestLeave(t *testing.T) {
	l := shortLimits()
	b, g, _ := gated(t, l)
	weight := pattern(t, tensor.Float32, 0, 2, 3)
	ask := func() *request {
		return checked(t, set{api.X: pattern(t, tensor.Float32, 0, 4, 2), api.Weight: weight})
	}
	enter(t, t.Context(), b, ask(), 0)
	<-g.entered
	leaving, leave := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	waits, stays := enter(t, leaving, b, ask(), 1), enter(t, t.Context(), b, ask(), 2)
	leave(gone)
	if err := <-waits; !errors.Is(err, gone) {
		t.Errorf("a request that waits got %v", err)
	}
	b.await(t, 1)

	// The next call has a request that leaves during the call. Its memory stays reserved until the end of the call.
	leaving, leave = context.WithCancelCause(t.Context())
	memory := semaphore.NewWeighted(10)
	held := &reservation{from: memory}
	if err := held.grow(10); err != nil {
		t.Fatal(err)
	}
	computes := make(chan error, 1)
	go func() { computes <- b.do(leaving, ask(), held); held.release() }()
	b.await(t, 2)
	g.open <- nil
	if n := len(<-g.entered); n != 2 {
		t.Fatalf("the call has %d requests, want the 2 whose clients stay", n)
	}
	leave(gone)
	if err := <-computes; !errors.Is(err, gone) {
		t.Errorf("a request in a call got %v", err)
	}
	if time.Sleep(10 * time.Millisecond); memory.TryAcquire(1) {
		t.Error("the memory of a request was released before its call ended")
	}
	g.open <- nil
	if err := <-stays; err != nil {
		t.Errorf("a request that stays got %v", err)
	}
	if err := memory.Acquire(t.Context(), 10); err != nil {
		t.Error(err)
	}
}

// If a call of several requests fails, each request gets a call of its own, and only requests whose own call fails get an error. A panic
// in a call is returned as an error.
func TestFailedBatch(t *testing.T) {
	b, g, counts := gated(t, shortLimits())
	weight := pattern(t, tensor.Float32, 0, 2, 3)
	ask := func() *request {
		return checked(t, set{api.X: pattern(t, tensor.Float32, 0, 4, 2), api.Weight: weight})
	}
	ends := []<-chan error{enter(t, t.Context(), b, ask(), 0)}
	<-g.entered
	for i := range 3 {
		ends = append(ends, enter(t, t.Context(), b, ask(), i+1))
	}
	g.open <- nil
	<-g.entered
	failed := errors.New("failed")
	g.open <- failed
	for _, err := range []error{nil, failed, nil} {
		if n := len(<-g.entered); n != 1 {
			t.Errorf("a call after the failed one has %d requests, want 1", n)
		}
		g.open <- err
	}
	for i, want := range []error{nil, nil, failed, nil} {
		if err := <-ends[i]; !errors.Is(err, want) {
			t.Errorf("request %d: got %v, want %v", i, err, want)
		}
	}
	panics := newBatcher(func(context.Context, []*request) error { panic("in a call") }, shortLimits(), counts)
	defer panics.stop()
	if err := <-enter(t, t.Context(), panics, ask(), 0); err == nil || !strings.Contains(err.Error(), "panic in a call: in a call") {
		t.Errorf("got %v, want the panic", err)
	}
}

// Two requests are both answered although the pool's limit allows each of them, but not a call of both.
func TestPoolLimit(t *testing.T) {
	svc := open(t, shortLimits(), registry.Options{Host: registry.HostOptions{Pool: device.PoolOptions{PinnedLimit: 3 * minBlock}}})
	weight := pattern(t, tensor.Float32, 0, 2, 3)
	ask := func(seqlen int64) *request {
		return checked(t, set{api.X: pattern(t, tensor.Float32, 0, seqlen, 2), api.Weight: weight})
	}
	var over *device.PoolLimitError
	if err := svc.call(t.Context(), []*request{ask(7000), ask(7000)}); !errors.As(err, &over) {
		t.Fatalf("got %v, want a PoolLimitError", err)
	}
	if code, _ := status(over); code != http.StatusServiceUnavailable {
		t.Errorf("its code is %d, want 503", code)
	}
	jobs := []*job{{request: ask(7000), done: make(chan error, 1)}, {request: ask(7000), done: make(chan error, 1)}}
	svc.batches.run(jobs)
	for _, j := range jobs {
		if err := <-j.done; err != nil || len(j.answer) == 0 {
			t.Errorf("%d bytes, %v", len(j.answer), err)
		}
	}
}

// A batcher refuses requests if its queue is full or it has stopped. It answers the requests that came before the stop.
func TestQueue(t *testing.T) {
	l := shortLimits()
	l.queue = 2
	b, g, _ := gated(t, l)
	weight := pattern(t, tensor.Float32, 0, 2, 3)
	ask := func() *request {
		return checked(t, set{api.X: pattern(t, tensor.Float32, 0, 4, 2), api.Weight: weight})
	}
	ends := []<-chan error{enter(t, t.Context(), b, ask(), 0)}
	<-g.entered
	ends = append(ends, enter(t, t.Context(), b, ask(), 1), enter(t, t.Context(), b, ask(), 2))
	if err := b.do(t.Context(), ask(), nil); !errors.Is(err, errBusy) {
		t.Errorf("got %v, want errBusy", err)
	}
	stopped := make(chan struct{})
	go func() { b.stop(); close(stopped) }()
	for !errors.Is(b.do(t.Context(), ask(), nil), errStopped) {
		time.Sleep(time.Millisecond)
	}
	g.open <- nil
	<-g.entered
	g.open <- nil
	<-stopped
	for i, end := range ends {
		if err := <-end; err != nil {
			t.Errorf("request %d: %v", i, err)
		}
	}
}

// After a call of each size the pool allocates nothing from the driver, although the sizes of batches vary.
func TestSteadyState(t *testing.T) {
	s := start(t, shortLimits(), registry.Options{})
	pool, err := s.reg.HostPool(s.dev)
	if err != nil {
		t.Fatal(err)
	}
	const clients = 16
	body := encode(t, api.Safetensors, set{api.X: pattern(t, tensor.Float32, 0, 700, 2)})
	var list []*request
	for range clients {
		r, err := decode(body, api.Safetensors, s.own)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
	call := func(n int) {
		if err := s.call(t.Context(), list[:n]); err != nil {
			t.Fatal(err)
		}
	}
	for n := 1; n <= clients; n *= 2 {
		call(n)
	}
	before := pool.Stats().Pinned
	for n := range clients {
		call(n + 1)
	}
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for range 20 {
				if code, _, _, err := post(http.DefaultClient, s.addr, string(api.Safetensors), "", "", body); code != 200 || err != nil {
					t.Errorf("got %d, %v", code, err)
				}
			}
		})
	}
	wg.Wait()
	after := pool.Stats().Pinned
	if after.Allocations != before.Allocations || after.Held != before.Held || after.InUse != 0 || after.Reused <= before.Reused {
		t.Errorf("the pool's memory was %+v and is %+v", before, after)
	}
}
