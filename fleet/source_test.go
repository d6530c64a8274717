package fleet

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/jit"
)

// events records the pulls and compiles of a manager.
type events struct {
	mu       sync.Mutex
	pulls    []error
	compiles int
}

// Observe implements [jit.Observer].
func (e *events) Observe(x jit.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch x.Step {
	case jit.Pulled:
		e.pulls = append(e.pulls, x.Err)
	case jit.UnitStarted:
		e.compiles++
	}
}

// cause returns that of the first failed pull. A pull of another module at the same time may fail because of it.
func (e *events) cause() jit.PullCause {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, err := range e.pulls {
		var pull *jit.PullError
		if errors.As(err, &pull) && pull.Cause != jit.PullSuspended {
			return pull.Cause
		}
	}
	return ""
}

// node is a machine with its own cache.
type node struct {
	t     *testing.T
	f     fixture
	cache string
	env   map[string]string
}

func newNode(t *testing.T, f fixture, remote, keys string) *node {
	return &node{t, f, t.TempDir(), map[string]string{
		"AITER_JIT_REMOTE": remote, "AITER_JIT_KEYS": keys, "AITER_JIT_REMOTE_WAIT": testWait.String(),
	}}
}

// start builds what a first call of an operator needs, as a new process would.
func (n *node) start() (e *events, results []jit.Result, took time.Duration, err error) {
	e = &events{}
	m := manager(n.t, n.f, n.cache, n.env, e)
	start := time.Now()
	results, err = m.Build(n.t.Context(), requests()...)
	return e, results, time.Since(start), err
}

// TestPull starts processes on an empty node: the first pulls, the second opens no connection.
func TestPull(t *testing.T) {
	f, p := prebuilt(t), newProxy(t, startRegistry(t).Host)
	private, public := newKeys(t)
	ref := p.Host + "/aiter/kernels:v1"
	rep := push(t, ref, f.built, private)
	for _, c := range []struct{ name, noCompile, remote, keys string }{
		{"with a compiler", "", "oci://" + ref, public},
		{"without a compiler", "1", "oci://" + ref, public},
		{"pinned", "1", "oci://" + p.Host + "/aiter/kernels@" + rep.Digest, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t, f, c.remote, c.keys)
			n.env["AITER_NO_COMPILE"] = c.noCompile
			e, results, took, err := n.start()
			if err != nil || e.compiles != 0 || len(e.pulls) != 2 {
				t.Fatalf("%v, %d compiles, pulls %v", err, e.compiles, e.pulls)
			}
			t.Logf("first start %s", took)
			if path := results[0].Artifact.Path; !strings.HasPrefix(path, filepath.Join(n.cache, "v2/pulled")) {
				t.Errorf("the library is %s, want one of a pulled cache", path)
			}
			p.requests.Store(0)
			if e, _, took, err = n.start(); err != nil || e.compiles != 0 || p.requests.Load() != 0 {
				t.Errorf("second start: %v, %d compiles, %d requests", err, e.compiles, p.requests.Load())
			}
			t.Logf("second start %s", took)
			store := openCache(t, n.cache)
			for _, name := range store.PulledNames("") {
				d, err := cache.OpenReadOnly(filepath.Join(n.cache, "v2/pulled", name), cache.Options{})
				if err != nil {
					t.Fatal(err)
				}
				if rep, err := d.Verify(); err != nil || len(rep.Faults)+len(rep.Missing) > 0 {
					t.Errorf("a pulled cache has records of other modules, or damage: %+v %v", rep, err)
				}
			}
			if s, err := store.Stats(); err != nil || s.Pulls != 2 || s.PullFaults != 0 || s.Pulled != 2 {
				t.Errorf("%+v %v, want 2 pulls without a fault", s, err)
			}
		})
	}
}

// TestSuspensionEnds pulls by hand within a minute after a fault. Then programs pull too.
func TestSuspensionEnds(t *testing.T) {
	f, p := prebuilt(t), newProxy(t, startRegistry(t).Host)
	private, public := newKeys(t)
	ref := p.Host + "/aiter/kernels:v1"
	push(t, ref, withGPU(t, f, []byte("code")), private)
	n := newNode(t, f, "oci://"+ref, public)
	n.env["AITER_NO_COMPILE"] = "1"
	p.set(status(http.StatusForbidden))
	if _, _, _, err := n.start(); err == nil {
		t.Fatal("no fault")
	}
	p.set(nil)
	_, _, _, err := n.start()
	var pull *jit.PullError
	if !errors.As(err, &pull) || pull.Cause != jit.PullSuspended {
		t.Errorf("%v, want %s", err, jit.PullSuspended)
	}
	if _, err := Warm(t.Context(), parse(t, ref), openCache(t, n.cache), []string{"gfx942"}, Options{Keys: public}); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := n.start(); err != nil {
		t.Errorf("after a pull by hand: %v", err)
	}
}

// TestNewSourcesCompile changes a source. The signed set is stale, so the node compiles, after one request.
func TestNewSourcesCompile(t *testing.T) {
	f, p := prebuilt(t), newProxy(t, startRegistry(t).Host)
	private, public := newKeys(t)
	push(t, p.Host+"/aiter/kernels:v1", f.built, private)
	edited := fixture{root: filepath.Join(t.TempDir(), "tree")}
	if err := os.CopyFS(edited.root, os.DirFS(f.root)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(edited.root, "src/a.cpp"), []byte(smallSource+"// edited\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	n := newNode(t, edited, "oci://"+p.Host+"/aiter/kernels:v1", public)
	if e, _, _, err := n.start(); err != nil || e.compiles != 1 {
		t.Errorf("%v, %d compiles, want the edited unit", err, e.compiles)
	}
	p.requests.Store(0)
	if e, _, _, err := n.start(); err != nil || e.compiles != 0 || p.requests.Load() != 0 {
		t.Errorf("second start: %v, %d compiles, %d requests", err, e.compiles, p.requests.Load())
	}
	n = newNode(t, edited, "oci://"+p.Host+"/aiter/kernels:v1", public)
	n.env["AITER_NO_COMPILE"] = "1"
	_, _, _, err := n.start()
	var stale *jit.StalePrebuiltError
	if !errors.As(err, &stale) || !strings.Contains(err.Error(), "source changed") {
		t.Errorf("stale set without a compiler: %v", err)
	}
	_, _, _, err = n.start()
	want := "the set has no such artifact: its artifacts of module_small for cpu are of other sources or of another compiler"
	var pull *jit.PullError
	if !errors.As(err, &pull) || pull.Cause != jit.PullAbsent || !strings.Contains(err.Error(), want) {
		t.Errorf("the next process: %v, want %q", err, want)
	}
}

// TestRevoked removes the key that signed a set which the node has pulled.
func TestRevoked(t *testing.T) {
	f, p := prebuilt(t), newProxy(t, startRegistry(t).Host)
	private, public := newKeys(t)
	_, other := newKeys(t)
	push(t, p.Host+"/aiter/kernels:v1", f.built, private)
	n := newNode(t, f, "oci://"+p.Host+"/aiter/kernels:v1", public)
	n.env["AITER_NO_COMPILE"] = "1"
	if _, _, _, err := n.start(); err != nil {
		t.Fatal(err)
	}
	n.env["AITER_JIT_KEYS"] = other
	e, _, _, err := n.start()
	if e.cause() != jit.PullUntrusted || err == nil || !strings.Contains(err.Error(), "AITER_NO_COMPILE forbids it") {
		t.Errorf("%v, want an error that names AITER_NO_COMPILE and the refused signature", err)
	}
	n.env["AITER_JIT_REMOTE"] = ""
	if _, _, _, err := n.start(); err == nil {
		t.Error("a pulled cache is used without AITER_JIT_REMOTE")
	}
}

// The goals for a node whose registry fails.
const (
	refusalDelay = 2 * time.Second // of a start, if the registry refuses or answers with an error
	hangDelay    = 6 * time.Second // if it accepts connections and sends nothing
	testWait     = 8 * time.Second // AITER_JIT_REMOTE_WAIT, the limit for anything
	waitDelay    = testWait + 250*time.Millisecond
	nextDelay    = 5 * time.Millisecond // by the source in the next process
)

// compileTime is how long the compiles of a start may take besides the delay by a registry.
const compileTime = 20 * time.Second

// TestFaults starts a node with each fault. It compiles instead, and the next process sends no request.
func TestFaults(t *testing.T) {
	f, r := prebuilt(t), startRegistry(t)
	private, public := newKeys(t)
	rep := push(t, r.Host+"/aiter/kernels:v1", f.built, private)
	checkFaults(t, f, r.Host, "oci://%s/aiter/kernels:v1", public, func() []fault {
		return faults(isManifest, ofLayers(rep.Layers), isReferrers)
	})
}

// checkFaults starts a node with each fault of a server. remote is the reference, with %s for the host.
func checkFaults(t *testing.T, f fixture, host, remote, keys string, list func() []fault) {
	for i, c := range list() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // they wait for most of their time
			if c.most > 7*time.Second {
				testenv.Long(t)
			}
			p := newProxy(t, host)
			within(t, "delay of the start", c.most, func() time.Duration {
				p.requests.Store(0)
				p.set(list()[i].does) // one that counts from 0
				n := newNode(t, f, fmt.Sprintf(remote, p.Host), keys)
				if c.cause == "" {
					n.env["AITER_NO_COMPILE"] = "1"
					_, _, took, err := n.start()
					if err != nil {
						t.Errorf("%v, want a pull after the fault", err)
					}
					return took
				}
				took := n.checkFailure(c.cause)
				if got := p.requests.Load(); c.requests > 0 && got != c.requests {
					t.Errorf("%d requests of two processes, want %d", got, c.requests)
				}
				return took
			})
		})
	}
}

// checkFailure starts a node whose registry fails, and returns the delay. The node does not compile, so that the time is that of the
// pull. The next process of the node must not be delayed.
func (n *node) checkFailure(cause jit.PullCause) time.Duration {
	t := n.t
	t.Helper()
	n.env["AITER_NO_COMPILE"] = "1"
	e, _, took, err := n.start()
	if got := e.cause(); got != cause || err == nil || !strings.Contains(err.Error(), "AITER_NO_COMPILE forbids it") {
		t.Errorf("cause %q, error %v; want %q and AITER_NO_COMPILE", got, err, cause)
	}
	store := openCache(t, n.cache)
	if names := store.PulledNames(""); len(names) > 0 {
		t.Errorf("something was published: %v", names)
	}
	within(t, "delay of the next process", nextDelay, func() time.Duration {
		next := n.nextProcess()
		if next.Cause != jit.PullSuspended {
			t.Errorf("the next process: %q, %s; want %s", next.Cause, next.Error, jit.PullSuspended)
		}
		return next.Delay
	})
	if s, err := store.Stats(); err != nil || s.PullFaults < 2 {
		t.Errorf("%d faults are counted, %v", s.PullFaults, err)
	}
	return took
}

// TestConfiguration opens sources with wrong variables. No connection is opened.
func TestConfiguration(t *testing.T) {
	_, public := newKeys(t)
	store := openCache(t, t.TempDir())
	for _, c := range []struct{ name, remote, keys, wait, want string }{
		{"unset", "", "", "", ""},
		{"pinned", "oci://registry.example/k@sha256:" + someKey, "", "", ""},
		{"keys", "oci://registry.example/k:v1", public, "5s", ""},
		{"folder", "https://cdn.example/set", public, "5s", ""},
		{"folder without keys", "https://cdn.example/set", "", "", "AITER_JIT_REMOTE is .* it has no digest and AITER_JIT_KEYS names no keys"},
		{"neither", "oci://registry.example/k:v1", "", "", "AITER_JIT_REMOTE is .* it has no digest and AITER_JIT_KEYS names no keys"},
		{"no such keys", "oci://registry.example/k:v1", "/nowhere", "", "AITER_JIT_KEYS is \"/nowhere\""},
		{"syntax", "ftp://registry.example/k:v1", public, "", "AITER_JIT_REMOTE is .*unknown scheme"},
		{"wait", "oci://registry.example/k:v1", public, "soon", "AITER_JIT_REMOTE_WAIT is \"soon\": expected a time above 0"},
		{"no wait", "oci://registry.example/k:v1", public, "0s", "expected a time above 0"},
	} {
		env := map[string]string{"AITER_JIT_REMOTE": c.remote, "AITER_JIT_KEYS": c.keys, "AITER_JIT_REMOTE_WAIT": c.wait}
		s, err := Open(jit.SourceOptions{Cache: store, Getenv: func(name string) string { return env[name] }})
		if matches(err, c.want) && (s != nil) == (c.want == "" && c.remote != "") {
			continue
		}
		t.Errorf("%s: %v, %v", c.name, s, err)
	}
}

func matches(err error, pattern string) bool {
	if err == nil || pattern == "" {
		return err == nil && pattern == ""
	}
	return regexp.MustCompile(pattern).MatchString(err.Error())
}
