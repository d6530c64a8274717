package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/jit"
)

// countedSource is a source that counts its calls by method, module and target.
type countedSource struct {
	jit.Source
	mu    sync.Mutex
	calls map[string]int
}

func (s *countedSource) count(method string, want jit.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[method+" "+want.Module+" "+want.Target.String()]++
}

// Pulled implements [jit.Source].
func (s *countedSource) Pulled(want jit.Request) []*cache.Dir {
	s.count("Pulled", want)
	return s.Source.Pulled(want)
}

// Pull implements [jit.Source].
func (s *countedSource) Pull(ctx context.Context, want jit.Request) (*cache.Dir, error) {
	s.count("Pull", want)
	return s.Source.Pull(ctx, want)
}

// editedFixture returns a copy of the tree of a fixture with another source.
func editedFixture(t *testing.T, f fixture) fixture {
	t.Helper()
	edited := fixture{root: filepath.Join(t.TempDir(), "tree")}
	err := os.CopyFS(edited.root, os.DirFS(f.root))
	err = errors.Join(err, os.WriteFile(filepath.Join(edited.root, "src/a.cpp"), []byte(smallSource+"// edited\n"), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	return edited
}

// TestPullsOnce builds modules at once and again in a process whose set is of other sources. Each module is pulled once for its target,
// and the further builds send no request.
func TestPullsOnce(t *testing.T) {
	f, p := prebuilt(t), newProxy(t, startRegistry(t).Host)
	private, public := newKeys(t)
	push(t, p.Host+"/aiter/kernels:v1", f.built, private)
	n := newNode(t, editedFixture(t, f), "oci://"+p.Host+"/aiter/kernels:v1", public)
	n.env["AITER_NO_COMPILE"] = "1"
	counted := &countedSource{calls: map[string]int{}}
	s := managerSettings(n.f, n.cache, n.env, &events{})
	s.Remote = func(so jit.SourceOptions) (_ jit.Source, err error) {
		counted.Source, err = Open(so)
		return counted, err
	}
	m, err := s.OpenManager(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	build := func() {
		if _, err := m.Build(context.WithoutCancel(t.Context()), requests()...); err == nil {
			t.Error("a set of other sources is used")
		}
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(build)
	}
	wg.Wait()
	p.requests.Store(0)
	build()
	want := map[string]int{}
	for _, r := range requests() {
		want["Pulled "+r.Module+" cpu"], want["Pull "+r.Module+" cpu"] = 1, 1
	}
	if !maps.Equal(counted.calls, want) || p.requests.Load() != 0 {
		t.Errorf("calls %v, want %v; %d requests of the last build, want 0", counted.calls, want, p.requests.Load())
	}
}

// TestNoRequests starts processes of nodes that have all they need: one has pulled it, the other has compiled it.
func TestNoRequests(t *testing.T) {
	f, p := prebuilt(t), newProxy(t, startRegistry(t).Host)
	private, public := newKeys(t)
	push(t, p.Host+"/aiter/kernels:v1", f.built, private)
	remote := "oci://" + p.Host + "/aiter/kernels:v1"
	for _, first := range []string{remote, ""} {
		n := newNode(t, f, first, public)
		if s := n.nextProcess(); s.Error != "" {
			t.Fatal(s.Error)
		}
		if pulled := p.requests.Swap(0) > 0; pulled != (first != "") {
			t.Errorf("the first process with the set %q sent requests: %t", first, pulled)
		}
		n.env["AITER_JIT_REMOTE"] = remote
		if s := n.nextProcess(); s.Error != "" || p.requests.Load() != 0 {
			t.Errorf("the next process, after one with the set %q: %d requests, error %q; want none", first, p.requests.Load(), s.Error)
		}
	}
}

// TestLoggedOnce builds two modules with a server that fails. Each failed pull is counted, and one warning is logged.
func TestLoggedOnce(t *testing.T) {
	f, p := prebuilt(t), newProxy(t, startRegistry(t).Host)
	_, public := newKeys(t)
	p.set(status(http.StatusForbidden))
	for _, noCompile := range []string{"", "1"} {
		n := newNode(t, f, "oci://"+p.Host+"/aiter/kernels:v1", public)
		n.env["AITER_NO_COMPILE"] = noCompile
		var log bytes.Buffer
		e := &events{}
		s := managerSettings(f, n.cache, n.env, e)
		s.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		m, err := s.OpenManager(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = m.Close() })
		for range 2 {
			if _, err := m.Build(t.Context(), requests()...); (err == nil) != (noCompile == "") {
				t.Errorf("AITER_NO_COMPILE=%s: %v", noCompile, err)
			}
		}
		stats, err := openCache(t, n.cache).Stats()
		if err != nil || stats.PullFaults != 2 || len(e.pulls) != 2 || (e.compiles == 0) != (noCompile == "1") {
			t.Errorf("%d faults are counted of %d pulls, %d compiles, %v; want 2 of 2", stats.PullFaults, len(e.pulls), e.compiles, err)
		}
		text := "a set of kernels cannot be pulled; this machine compiles instead"
		if noCompile != "" {
			text = "a set of kernels cannot be pulled, and AITER_NO_COMPILE forbids compiling them"
		}
		if lines := strings.Count(log.String(), "\n"); lines != 1 || !strings.Contains(log.String(), text) {
			t.Errorf("%d lines are logged, want one with %q:\n%s", lines, text, log.String())
		}
	}
}

// TestRetryAfter pulls from a server that demands a pause before the next request.
func TestRetryAfter(t *testing.T) {
	f, r := prebuilt(t), startRegistry(t)
	rep := push(t, r.Host+"/aiter/kernels:v1", f.built, "")
	p := newProxy(t, r.Host)
	ref := parse(t, p.Host+"/aiter/kernels@"+rep.Digest)
	for _, c := range []struct {
		name  string
		code  int
		after func() string
		least time.Duration // longer than the random pause without the header
	}{
		{"429 with seconds", http.StatusTooManyRequests, func() string { return "1" }, time.Second},
		{"503 with seconds", http.StatusServiceUnavailable, func() string { return "1" }, time.Second},
		{"429 with a date", http.StatusTooManyRequests, func() string { // of whole seconds
			return time.Now().Add(2 * time.Second).UTC().Format(http.TimeFormat)
		}, time.Second - 10*time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := newProxy(t, r.Host)
			var mu sync.Mutex
			var times []time.Time
			p.set(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) bool {
				mu.Lock()
				defer mu.Unlock()
				times = append(times, time.Now())
				if len(times) > 1 {
					return false
				}
				w.Header().Set("Retry-After", c.after())
				w.WriteHeader(c.code)
				return true
			})
			ref := parse(t, p.Host+"/aiter/kernels@"+rep.Digest)
			if _, err := Copy(t.Context(), ref, openCache(t, t.TempDir()), nil, Options{}); err != nil {
				t.Fatal(err)
			}
			if pause := times[1].Sub(times[0]); pause < c.least {
				t.Errorf("the second request came after %s, want %s or longer", pause, c.least)
			}
		})
	}
	// A pause that the time of a pull does not include ends the pull at once.
	p.set(status(http.StatusTooManyRequests, "Retry-After", "60"))
	start := time.Now()
	_, err := Copy(t.Context(), ref, openCache(t, t.TempDir()), nil, Options{})
	if causeOf(err) != jit.PullLimited || p.requests.Load() != 1 || time.Since(start) > refusalDelay {
		t.Errorf("%v after %d requests and %s, want %s after 1 request", err, p.requests.Load(), time.Since(start), jit.PullLimited)
	}
}

// TestManyProcesses starts processes of an empty node at once. One of them downloads each layer of a module.
func TestManyProcesses(t *testing.T) {
	f, p := prebuilt(t), newProxy(t, startRegistry(t).Host)
	private, public := newKeys(t)
	rep := push(t, p.Host+"/aiter/kernels:v1", withGPU(t, f, []byte("code")), private)
	isLayer := ofLayers(rep.Layers)
	var layers, others atomic.Int64
	isGPU := ofLayers(slices.DeleteFunc(slices.Clone(rep.Layers), func(l Layer) bool { return l.Target == "cpu" }))
	p.set(func(_ http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		switch {
		case isGPU(r):
			others.Add(1)
		case isLayer(r):
			layers.Add(1)
			time.Sleep(50 * time.Millisecond)
		}
		return false
	})
	n := newNode(t, f, "oci://"+p.Host+"/aiter/kernels:v1", public)
	n.env["AITER_NO_COMPILE"] = "1"
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if s, err := n.process(); err != nil || s.Error != "" {
				t.Errorf("%v, %s", err, s.Error)
			}
		})
	}
	wg.Wait()
	// Two modules, each with the records of the target and an artifact.
	if layers.Load() != 2*2 || others.Load() != 0 {
		t.Errorf("%d layers of the node's target were downloaded, and %d of another target; want 4 and 0", layers.Load(), others.Load())
	}
}

// TestAnotherManifest serves the manifest of another set of the same registry.
func TestAnotherManifest(t *testing.T) {
	f, r := prebuilt(t), startRegistry(t)
	private, public := newKeys(t)
	strangers, _ := newKeys(t)
	rep := push(t, r.Host+"/aiter/kernels:v1", f.built, private)
	other := push(t, r.Host+"/aiter/kernels:other", withGPU(t, f, []byte("code")), strangers)
	p := newProxy(t, r.Host)
	isLayer := ofLayers(append(slices.Clone(rep.Layers), other.Layers...))
	var layers atomic.Int64
	p.set(func(_ http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		switch {
		case isLayer(r):
			layers.Add(1)
		case strings.HasSuffix(r.URL.Path, "/manifests/v1"), isOf(r, rep.Digest):
			r.URL.Path = "/v2/aiter/kernels/manifests/other"
		}
		return false
	})
	for _, c := range []struct {
		reference string
		cause     jit.PullCause
		want      string
	}{
		{":v1", jit.PullUntrusted, "it was made with another key"},
		{"@" + rep.Digest, jit.PullDamaged, fmt.Sprintf("the manifest %s has the digest %s, expected %[1]s", rep.Digest, other.Digest)},
	} {
		_, err := Copy(t.Context(), parse(t, p.Host+"/aiter/kernels"+c.reference), openCache(t, t.TempDir()), nil, Options{Keys: public})
		if err == nil || causeOf(err) != c.cause || !strings.Contains(err.Error(), c.want) || layers.Load() > 0 {
			t.Errorf("%s: %v, %d layers; want the cause %s, %q and no layer", c.reference, err, layers.Load(), c.cause, c.want)
		}
	}
}
