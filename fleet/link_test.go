package fleet

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aiter-go/aiter/internal/testenv"
)

// narrow is a link that passes a number of bytes per second to all of its writers together.
type narrow struct {
	rate float64

	mu    sync.Mutex
	bytes int
	free  time.Time // when the bytes so far have passed
}

// writer writes an answer over the link.
type writer struct {
	http.ResponseWriter
	link *narrow
}

// Write passes small portions, so that concurrent writers have equal shares.
func (w writer) Write(p []byte) (n int, err error) {
	for part := range slices.Chunk(p, 16<<10) {
		w.link.pass(len(part))
		k, err := w.ResponseWriter.Write(part)
		if n += k; err != nil {
			return n, err
		}
	}
	return n, nil
}

// Unwrap lets [http.ResponseController] find Flush.
func (w writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (l *narrow) pass(n int) {
	l.mu.Lock()
	if now := time.Now(); l.free.Before(now) {
		l.free = now
	}
	l.bytes += n
	l.free = l.free.Add(time.Duration(float64(n) / l.rate * float64(time.Second)))
	until := l.free
	l.mu.Unlock()
	time.Sleep(time.Until(until))
}

// TestNarrowLink starts 16 nodes at once that pull 2 MB each over a link of 64 Mb/s. The link bounds the time, as examples/fleetsim
// assumes for a fleet.
func TestNarrowLink(t *testing.T) {
	testenv.Long(t)
	f, r := prebuilt(t), startRegistry(t)
	const nodes = 16
	link := &narrow{rate: 8e6}
	p := newProxy(t, r.Host)
	rep := push(t, r.Host+"/aiter/kernels:v1", withGPU(t, f, noise(2e6)), "")
	p.set(func(w http.ResponseWriter, req *http.Request, real http.Handler) bool {
		real.ServeHTTP(writer{w, link}, req)
		return true
	})
	ref := parse(t, p.Host+"/aiter/kernels@"+rep.Digest)
	times := pullAtOnce(t, ref, nodes)
	least := time.Duration(float64(link.bytes) / link.rate * float64(time.Second))
	t.Logf("%d pulls of %d bytes at once over 64 Mb/s: median %s, last %s; the link needs %s", nodes, link.bytes/nodes, times[nodes/2],
		times[nodes-1], least)
	if last := times[nodes-1]; last < least*9/10 || last > least*2 || times[nodes/2] < least/2 {
		t.Errorf("median %s, last %s, want about %s", times[nodes/2], last, least)
	}
}

// pullAtOnce pulls a set to new caches at the same time, and returns the sorted times of the pulls.
func pullAtOnce(t *testing.T, ref Reference, nodes int) []time.Duration {
	t.Helper()
	times := make([]time.Duration, nodes)
	var wg sync.WaitGroup
	for i := range nodes {
		store := openCache(t, t.TempDir())
		wg.Go(func() {
			start := time.Now()
			if _, err := Warm(context.WithoutCancel(t.Context()), ref, store, []string{"gfx942"}, Options{}); err != nil {
				t.Error(err)
			}
			times[i] = time.Since(start)
		})
	}
	wg.Wait()
	slices.Sort(times)
	return times
}
