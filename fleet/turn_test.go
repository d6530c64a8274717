package fleet

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
)

// TestTurns pulls three modules at once within a wait that is enough for one. They are pulled one after another, and the wait of each
// begins with its turn.
func TestTurns(t *testing.T) {
	f, r := prebuilt(t), startRegistry(t)
	rep := push(t, r.Host+"/aiter/kernels:v1", withGPU(t, f, []byte("code")), "")
	p := newProxy(t, r.Host)
	isArtifact := ofLayers(artifactsOf(rep))
	var now, most atomic.Int64
	p.set(func(_ http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if isArtifact(r) {
			n := now.Add(1)
			if n > most.Load() {
				most.Store(n)
			}
			time.Sleep(600 * time.Millisecond)
			now.Add(-1)
		}
		return false
	})
	const wait = 1500 * time.Millisecond
	ref := parse(t, p.Host+"/aiter/kernels@"+rep.Digest)
	s := newSource(ref, openCache(t, t.TempDir()), slog.New(slog.DiscardHandler), Options{Wait: wait})
	gpu, err := target.Parse("gfx942")
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	var running sync.WaitGroup
	for _, want := range append(requests(), jit.Request{Module: "module_small", Target: gpu}) {
		running.Go(func() {
			if _, err := s.Pull(context.WithoutCancel(t.Context()), want); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	if took := time.Since(start); most.Load() != 1 || took < wait {
		t.Errorf("%d modules were pulled at once, all of them in %s; want one at a time, and together longer than the wait of %s",
			most.Load(), took, wait)
	}
	s.turn <- struct{}{} // another pull
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Pull(ctx, requests()[0]); err == nil || !strings.Contains(err.Error(), context.Canceled.Error()) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
}

// TestRandomOrder pulls a set several times. The modules are pulled in different orders.
func TestRandomOrder(t *testing.T) {
	f, r := prebuilt(t), startRegistry(t)
	rep := push(t, r.Host+"/aiter/kernels:v1", withGPU(t, f, []byte("code")), "")
	p := newProxy(t, r.Host)
	ref := parse(t, p.Host+"/aiter/kernels@"+rep.Digest)
	isArtifact := ofLayers(artifactsOf(rep))
	orders := map[string]bool{}
	for range 12 { // of three modules
		var mu sync.Mutex
		order := ""
		p.set(func(_ http.ResponseWriter, r *http.Request, _ http.Handler) bool {
			if isArtifact(r) {
				mu.Lock()
				defer mu.Unlock()
				order += r.URL.Path[len(r.URL.Path)-4:] + " "
			}
			return false
		})
		if _, err := Warm(t.Context(), ref, openCache(t, t.TempDir()), nil, Options{}); err != nil {
			t.Fatal(err)
		}
		orders[order] = true
	}
	if len(orders) < 2 {
		t.Errorf("always in the order %v", orders)
	}
}

// artifactsOf returns the layers that are artifacts.
func artifactsOf(rep PushReport) []Layer {
	return slices.DeleteFunc(slices.Clone(rep.Layers), func(l Layer) bool { return l.Module == "" })
}
