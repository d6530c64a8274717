package fleet

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aiter-go/aiter/jit"
)

// proxy is a server in front of a real registry. fault may answer a request, or change the answer.
type proxy struct {
	Host     string
	requests atomic.Int64
	mu       sync.Mutex
	fault    func(w http.ResponseWriter, r *http.Request, real http.Handler) bool
}

func newProxy(t testing.TB, registry string) *proxy {
	t.Helper()
	p := &proxy{}
	real := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: registry})
	real.FlushInterval = -1
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.requests.Add(1)
		p.mu.Lock()
		fault := p.fault
		p.mu.Unlock()
		if fault == nil || !fault(w, r, real) {
			real.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	p.Host = strings.TrimPrefix(server.URL, "http://")
	return p
}

func (p *proxy) set(fault func(w http.ResponseWriter, r *http.Request, real http.Handler) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = fault
}

func isBlob(r *http.Request) bool { return strings.Contains(r.URL.Path, "/blobs/") }

// ofLayers returns a function that reports whether a request is for a layer, and not for a signature.
func ofLayers(layers []Layer) func(*http.Request) bool {
	return func(r *http.Request) bool {
		return slices.ContainsFunc(layers, func(l Layer) bool { return isOf(r, l.Digest) })
	}
}

// isOf reports whether a request is for a digest, in a registry or a folder.
func isOf(r *http.Request, digest string) bool {
	return strings.HasSuffix(r.URL.Path, strings.TrimPrefix(digest, "sha256:"))
}

func isManifest(r *http.Request) bool { return strings.Contains(r.URL.Path, "/manifests/v1") }

// recorded returns the answer of the real registry.
func recorded(r *http.Request, real http.Handler) (*http.Response, []byte) {
	w := httptest.NewRecorder()
	real.ServeHTTP(w, r)
	resp := w.Result()
	data, _ := io.ReadAll(resp.Body) // from memory
	return resp, data
}

// relay copies the headers of an answer, without its length.
func relay(w http.ResponseWriter, resp *http.Response) {
	for name, values := range resp.Header {
		if name != "Content-Length" {
			w.Header()[name] = values
		}
	}
	w.WriteHeader(resp.StatusCode)
}

// fault is one behaviour of a registry and what a node makes of it.
type fault struct {
	name  string
	cause jit.PullCause // "": the pull succeeds
	most  time.Duration // delay of the first start
	// requests that it takes until the fault is known, 0 if that varies
	requests int64
	does     func(w http.ResponseWriter, r *http.Request, real http.Handler) bool
}

// isReferrers reports whether a request is for the signatures of a set in a registry.
func isReferrers(r *http.Request) bool {
	return strings.Contains(r.URL.Path, "/referrers/") || strings.Contains(r.URL.Path, "/manifests/sha256-")
}

// handler answers a request, or returns false for the answer of the real registry.
type handler = func(w http.ResponseWriter, r *http.Request, real http.Handler) bool

func status(code int, header ...string) handler {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) bool {
		if len(header) == 2 {
			w.Header().Set(header[0], header[1])
		}
		w.WriteHeader(code)
		return true
	}
}

// when limits a fault to some requests.
func when(is func(*http.Request) bool, does handler) handler {
	return func(w http.ResponseWriter, r *http.Request, real http.Handler) bool { return is(r) && does(w, r, real) }
}

// first limits a fault to the first n requests.
func first(n int64, does handler) handler {
	var seen atomic.Int64
	return func(w http.ResponseWriter, r *http.Request, real http.Handler) bool {
		return seen.Add(1) <= n && does(w, r, real)
	}
}

func faults(isManifest, isLayer, isSignature func(*http.Request) bool) []fault {
	stall := func(_ http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		<-r.Context().Done()
		return true
	}
	cut := func(w http.ResponseWriter, r *http.Request, real http.Handler) bool {
		resp, data := recorded(r, real)
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		relay(w, resp)
		_, _ = w.Write(data[:len(data)/2])
		panic(http.ErrAbortHandler)
	}
	half := func(w http.ResponseWriter, r *http.Request, real http.Handler) bool { // a clean end, without a length
		resp, data := recorded(r, real)
		relay(w, resp)
		w.(http.Flusher).Flush()
		_, _ = w.Write(data[:len(data)/2])
		return true
	}
	flip := func(w http.ResponseWriter, r *http.Request, real http.Handler) bool {
		resp, data := recorded(r, real)
		if len(data) > 0 { // none for a request that was canceled
			data[len(data)/2] ^= 1
		}
		relay(w, resp)
		_, _ = w.Write(data)
		return true
	}
	halfThen := func(then func(http.ResponseWriter, *http.Request)) handler {
		return func(w http.ResponseWriter, r *http.Request, real http.Handler) bool {
			resp, data := recorded(r, real)
			w.Header().Set("Content-Length", fmt.Sprint(len(data)))
			relay(w, resp)
			_, _ = w.Write(data[:len(data)/2])
			w.(http.Flusher).Flush()
			then(w, r)
			return true
		}
	}
	wait := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	drip := halfThen(func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			_, _ = w.Write([]byte{0})
			w.(http.Flusher).Flush()
			time.Sleep(time.Second)
		}
	})
	endless := func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
		w.WriteHeader(http.StatusOK)
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				break
			}
		}
		return true
	}
	edit := func(w http.ResponseWriter, r *http.Request, real http.Handler) bool { // a valid manifest that nobody has signed
		resp, data := recorded(r, real)
		data = []byte(strings.Replace(string(data), "module_small", "module_other", 1))
		resp.Header.Del("Docker-Content-Digest")
		resp.Header.Del("Etag")
		relay(w, resp)
		_, _ = w.Write(data)
		return true
	}
	gone := func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		http.NotFound(w, r)
		return true
	}
	hangUp := func(http.ResponseWriter, *http.Request, http.Handler) bool { panic(http.ErrAbortHandler) }
	const succeeds = 3 * time.Second // with a pause of 1 s
	return []fault{
		{"503 twice", "", refusalDelay, 0, first(2, status(503))},
		{"503 for ever", jit.PullServer, refusalDelay, tries, status(503)},
		{"500 for ever", jit.PullServer, refusalDelay, tries, status(500)},
		{"401", jit.PullDenied, refusalDelay, 0, status(401, "Www-Authenticate", `Basic realm="x"`)},
		{"403", jit.PullDenied, refusalDelay, 1, status(403)},
		{"404", jit.PullMissing, refusalDelay, 1, status(404)},
		{"429 with a short pause", "", succeeds, 0, first(1, status(429, "Retry-After", "1"))},
		{"429 with a long pause", jit.PullLimited, refusalDelay, 1, status(429, "Retry-After", "3600")},
		{"429 with pauses for ever", jit.PullLimited, waitDelay, tries, status(429, "Retry-After", "3")},
		{"connection is closed", jit.PullUnreachable, refusalDelay, tries, hangUp},
		{"silent", jit.PullTimeout, hangDelay, 1, stall},
		{"silent about layers", jit.PullTimeout, hangDelay, 0, when(isLayer, stall)},
		{"blob is cut once", "", refusalDelay, 0, when(isLayer, first(1, cut))},
		{"blob is cut for ever", jit.PullUnreachable, refusalDelay, 0, when(isLayer, cut)},
		{"manifest is cut for ever", jit.PullUnreachable, refusalDelay, tries, when(isManifest, cut)},
		{"clean end of a blob", jit.PullUnreachable, refusalDelay, 0, when(isLayer, half)},
		{"clean end of the manifest", jit.PullDamaged, refusalDelay, 1, when(isManifest, half)},
		{"flipped bit in a blob", jit.PullDamaged, refusalDelay, 0, when(isLayer, flip)},
		{"flipped bit in the manifest", jit.PullDamaged, refusalDelay, 1, when(isManifest, flip)},
		{"stalled blob", jit.PullTimeout, hangDelay, 0, when(isLayer, halfThen(wait))},
		{"drip-fed blob", jit.PullTimeout, waitDelay, 0, when(isLayer, drip)},
		{"endless manifest", jit.PullDamaged, refusalDelay, 1, when(isManifest, endless)},
		{"edited manifest", jit.PullUntrusted, refusalDelay, 0, when(isManifest, edit)},
		{"signature gone", jit.PullUntrusted, refusalDelay, 0, when(isSignature, gone)},
		{"credential expires", jit.PullDenied, refusalDelay, 0, when(isLayer, status(401, "Www-Authenticate", `Basic realm="x"`))},
		{"layer gone", jit.PullMissing, refusalDelay, 0, when(isLayer, gone)},
	}
}
