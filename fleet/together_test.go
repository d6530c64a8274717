package fleet

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/jit"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the random times of kills; 0 for a new one, which the test prints")

// newRandom returns the test's random numbers and prints their seed.
func newRandom(t *testing.T) *rand.Rand {
	t.Helper()
	seed := *seedFlag
	for seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("random numbers of -seed=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// TestMovedTag moves the tag while a node pulls. The node gets the set that it has verified.
func TestMovedTag(t *testing.T) {
	f, r := prebuilt(t), startRegistry(t)
	private, public := newKeys(t)
	ref := r.Host + "/aiter/kernels:v1"
	old := push(t, ref, f.built, private)
	p := newProxy(t, r.Host)
	var once sync.Once
	p.set(func(_ http.ResponseWriter, q *http.Request, _ http.Handler) bool {
		if isBlob(q) {
			once.Do(func() { push(t, ref, withGPU(t, f, []byte("new")), "") })
		}
		return false
	})
	rep, err := Copy(t.Context(), parse(t, p.Host+"/aiter/kernels:v1"), openCache(t, t.TempDir()), nil, Options{Keys: public})
	if err != nil || rep.Digest != old.Digest {
		t.Errorf("%v, %s, want %s", err, rep.Digest, old.Digest)
	}
}

// TestRedirect sends blobs from another host, as registries do that store them elsewhere. The token does not go there.
func TestRedirect(t *testing.T) {
	f, r := prebuilt(t), startRegistry(t)
	ref := r.Host + "/aiter/kernels:v1"
	rep := push(t, ref, f.built, "")
	var leaked, redirected atomic.Int64
	other := newProxy(t, r.Host)
	other.set(func(_ http.ResponseWriter, q *http.Request, _ http.Handler) bool {
		redirected.Add(1)
		if q.Header.Get("Authorization") != "" {
			leaked.Add(1)
		}
		return false
	})
	p := newProxy(t, r.Host)
	p.set(func(w http.ResponseWriter, q *http.Request, real http.Handler) bool {
		switch {
		case q.URL.Path == "/token":
			_, _ = io.WriteString(w, `{"token":"secret"}`)
		case q.Header.Get("Authorization") != "Bearer secret":
			const challenge = `Bearer realm="http://%s/token",service="x",scope="repository:aiter/kernels:pull"`
			w.Header().Set("Www-Authenticate", fmt.Sprintf(challenge, q.Host))
			w.WriteHeader(http.StatusUnauthorized)
		case isBlob(q):
			http.Redirect(w, q, "http://"+other.Host+q.URL.Path, http.StatusTemporaryRedirect)
		default:
			return false
		}
		return true
	})
	_, err := Copy(t.Context(), parse(t, p.Host+"/aiter/kernels@"+rep.Digest), openCache(t, t.TempDir()), nil, Options{})
	if err != nil || redirected.Load() == 0 || leaked.Load() != 0 {
		t.Errorf("%v; %d redirected requests, %d with the token", err, redirected.Load(), leaked.Load())
	}
}

// TestTwoProcesses pulls with two processes at once. One of them downloads.
func TestTwoProcesses(t *testing.T) {
	f, p := prebuilt(t), newProxy(t, startRegistry(t).Host)
	private, public := newKeys(t)
	push(t, p.Host+"/aiter/kernels:v1", f.built, private)
	n := newNode(t, f, "oci://"+p.Host+"/aiter/kernels:v1", public)
	var blobs atomic.Int64
	p.set(func(_ http.ResponseWriter, q *http.Request, _ http.Handler) bool {
		if isBlob(q) && q.Method == http.MethodGet {
			blobs.Add(1)
			time.Sleep(50 * time.Millisecond)
		}
		return false
	})
	var wg sync.WaitGroup
	for range 4 { // managers share nothing but the folder
		m := manager(t, f, n.cache, n.env, &events{})
		wg.Go(func() {
			if results, err := m.Build(context.WithoutCancel(t.Context()), requests()...); err != nil || results[0].Status != jit.Hit {
				t.Errorf("%v", err)
			}
		})
	}
	wg.Wait()
	// Two modules with the records and an artifact each, and a signature for each manager that resolved the set.
	if got := blobs.Load(); got > 2*2+4 {
		t.Errorf("%d blobs were downloaded", got)
	}
}

// TestKilled kills processes that pull, at random times. What is published is complete, and the next process pulls the rest.
func TestKilled(t *testing.T) {
	random := newRandom(t)
	f, r := prebuilt(t), startRegistry(t)
	rep := push(t, r.Host+"/aiter/kernels:v1", withGPU(t, f, noise(2<<20)), "")
	ref := r.Host + "/aiter/kernels@" + rep.Digest
	dir := t.TempDir()
	child := func() *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "AITER_TEST_PULL="+ref, "AITER_TEST_CACHE="+dir)
		cmd.Stderr = os.Stderr
		return cmd
	}
	begin := time.Now()
	if err := child().Run(); err != nil {
		t.Fatal(err)
	}
	whole, killed := time.Since(begin), 0
	for range 8 {
		store := openCache(t, dir)
		for _, name := range store.PulledNames("") {
			if err := store.RemovePulled(name); err != nil {
				t.Error(err)
			}
		}
		cmd := child()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		timer := time.AfterFunc(time.Duration(random.Int64N(int64(whole))), func() { _ = cmd.Process.Kill() })
		if err := cmd.Wait(); err != nil {
			killed++
		}
		timer.Stop()
		checkPulled(t, dir)
	}
	if killed == 0 {
		t.Error("no process was killed")
	}
	if err := child().Run(); err != nil {
		t.Error(err)
	}
	if n := checkPulled(t, dir); n != 3 {
		t.Errorf("%d pulled caches, want 3", n)
	}
	store := openCache(t, dir)
	store.Sweep()
	if left, err := filepath.Glob(filepath.Join(dir, "v2/stage/*")); err != nil || len(left) > 0 {
		t.Errorf("left in stages: %v %v", left, err)
	}
}

// checkPulled checks that all pulled caches are intact, and returns their number.
func checkPulled(t *testing.T, dir string) int {
	t.Helper()
	if _, err := os.Stat(filepath.Join(dir, "v2")); err != nil {
		return 0 // killed before it opened the cache
	}
	store := openCache(t, dir)
	names := store.PulledNames("")
	for _, name := range names {
		d, err := cache.OpenReadOnly(filepath.Join(dir, "v2/pulled", name), cache.Options{})
		if err == nil {
			err = d.Intact()
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	return len(names)
}

// noise returns bytes that cannot be packed, the same in each call.
func noise(size int) []byte {
	random, data := rand.New(rand.NewPCG(1, 2)), make([]byte, size)
	for i := range data {
		data[i] = byte(random.Uint32())
	}
	return data
}
