package fleet

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/aiter-go/aiter/internal/testenv"
)

// TestTimeout pulls from a server that sends each body byte by byte, or slowly. Idle timers do not detect that.
func TestTimeout(t *testing.T) {
	f, r := prebuilt(t), startRegistry(t)
	rep := push(t, r.Host+"/aiter/kernels:v1", withGPU(t, f, noise(1<<20)), "")
	p := newProxy(t, r.Host)
	ref := parse(t, p.Host+"/aiter/kernels@"+rep.Digest)
	// send answers in pieces of n bytes with pauses.
	send := func(n int, pause time.Duration) handler {
		return func(w http.ResponseWriter, r *http.Request, real http.Handler) bool {
			resp, data := recorded(r, real)
			relay(w, resp)
			for len(data) > 0 && r.Context().Err() == nil {
				n := min(n, len(data))
				_, _ = w.Write(data[:n])
				w.(http.Flusher).Flush()
				data = data[n:]
				time.Sleep(pause)
			}
			return true
		}
	}
	isLayer := ofLayers(rep.Layers)
	warm := func(o Options) error {
		_, err := Warm(t.Context(), ref, openCache(t, t.TempDir()), []string{"gfx942"}, o)
		return err
	}
	copied := func(o Options) error {
		_, err := Copy(t.Context(), ref, openCache(t, t.TempDir()), []string{"gfx942"}, o)
		return err
	}
	drip := send(1, 200*time.Millisecond)
	for _, c := range []struct {
		name  string
		pull  func(Options) error
		o     Options
		does  handler
		limit time.Duration // 0: it succeeds
	}{
		{"manifest", warm, Options{Wait: time.Second}, drip, time.Second},
		{"manifest, to a folder", copied, Options{Wait: time.Second}, drip, time.Second},
		{"layers", warm, Options{Timeout: time.Second}, when(isLayer, drip), time.Second},
		{"layers, to a folder", copied, Options{Timeout: time.Second}, when(isLayer, drip), time.Second},
		{"layers, default", warm, Options{Wait: 100 * time.Millisecond}, when(isLayer, drip), 4 * time.Second}, // of 1 MB
		{"slow", warm, Options{Wait: time.Second}, when(isLayer, send(256<<10, 400*time.Millisecond)), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.limit != time.Second {
				testenv.Long(t)
			}
			p.set(c.does)
			start := time.Now()
			err := c.pull(c.o)
			took := time.Since(start)
			var late *TimeoutError
			switch {
			case c.limit == 0:
				if err != nil || took < time.Second {
					t.Errorf("%v after %s, want a pull that takes longer than the wait of 1s", err, took)
				}
			case !errors.As(err, &late) || !errors.Is(err, context.DeadlineExceeded) || took < c.limit || took > c.limit+5*time.Second:
				t.Errorf("%v after %s, want a *TimeoutError after %s", err, took, c.limit)
			default:
				t.Log(err)
			}
		})
	}
}
