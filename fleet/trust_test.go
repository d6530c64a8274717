package fleet

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/jit"
)

// TestAnotherSignature attaches the signature of one set to another one.
func TestAnotherSignature(t *testing.T) {
	f, p := prebuilt(t), newProxy(t, startRegistry(t).Host)
	private, public := newKeys(t)
	signer, err := LoadSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	signed := push(t, p.Host+"/aiter/kernels:signed", f.built, private)
	ref := parse(t, p.Host+"/aiter/kernels:v1")
	push(t, ref.String(), withGPU(t, f, []byte("code")), "")
	repo, err := openRepository(ref, Options{}.resolve(), pushTimeouts())
	if err != nil {
		t.Fatal(err)
	}
	raw, err := repo.manifestBytes(t.Context(), "v1")
	if err != nil {
		t.Fatal(err)
	}
	to, err := repo.storage()
	if err != nil {
		t.Fatal(err)
	}
	pushing := &pushing{repo: repo, to: to, o: Options{}.resolve(), rep: &PushReport{}}
	if err := pushing.attach(t.Context(), &manifest{digest: signed.Digest, raw: raw}, signer); err != nil {
		t.Fatal(err)
	}
	var layers atomic.Int64
	isLayer := ofLayers(signed.Layers)
	p.set(func(_ http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if isLayer(r) {
			layers.Add(1)
		}
		return false
	})
	_, err = Copy(t.Context(), ref, openCache(t, t.TempDir()), nil, Options{Keys: public})
	var refused *UntrustedError
	if !errors.As(err, &refused) || !slices.Contains(refused.Reasons, errSubject.Error()) || layers.Load() > 0 {
		t.Errorf("%v, %d layers were downloaded", err, layers.Load())
	}
	if err := pushing.attach(t.Context(), &manifest{digest: signedDigest(raw), raw: raw}, signer); err != nil {
		t.Fatal(err)
	}
	if _, err := Copy(t.Context(), ref, openCache(t, t.TempDir()), nil, Options{Keys: public}); err != nil {
		t.Errorf("with a second signature, which is its own: %v", err)
	}
}

func signedDigest(raw []byte) string {
	return describe("", raw).Digest.String()
}

// TestReferrersAPI reads signatures of a registry with the referrers API, which the proxy adds to the real one. Registries without
// it have the same index under a tag.
func TestReferrersAPI(t *testing.T) {
	f, r := prebuilt(t), startRegistry(t)
	private, public := newKeys(t)
	push(t, r.Host+"/aiter/kernels:v1", f.built, private)
	p := newProxy(t, r.Host)
	var asked, tags atomic.Int64
	p.set(func(w http.ResponseWriter, q *http.Request, real http.Handler) bool {
		if strings.Contains(q.URL.Path, "/manifests/sha256-") {
			tags.Add(1)
		}
		if !strings.Contains(q.URL.Path, "/referrers/sha256:") {
			return false
		}
		asked.Add(1)
		q.URL.Path = strings.Replace(q.URL.Path, "/referrers/sha256:", "/manifests/sha256-", 1)
		q.URL.RawQuery = ""
		q.Header.Set("Accept", "application/vnd.oci.image.index.v1+json")
		real.ServeHTTP(w, q)
		return true
	})
	_, err := Copy(t.Context(), parse(t, p.Host+"/aiter/kernels:v1"), openCache(t, t.TempDir()), nil, Options{Keys: public})
	if err != nil || asked.Load() == 0 || tags.Load() > 0 {
		t.Errorf("%v; %d requests to the API, %d for the tag", err, asked.Load(), tags.Load())
	}
}

// TestImageVolume unpacks a set as container runtimes do, and uses the folder in AITER_JIT_PATH. A folder of another user is refused.
func TestImageVolume(t *testing.T) {
	f, r, crane := prebuilt(t), startRegistry(t), testenv.Tool(t, "crane")
	ref := r.Host + "/aiter/kernels:v1"
	push(t, ref, withGPU(t, f, []byte("code")), "")
	dir := t.TempDir()
	tar := filepath.Join(dir, "set.tar")
	for _, args := range [][]string{{crane, "export", ref, tar}, {"tar", "-xf", tar, "-C", dir}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	if err := readOnly(t, dir).Intact(); err != nil {
		t.Error(err)
	}
	start := func() ([]jit.Result, error) {
		s := managerSettings(f, t.TempDir(), map[string]string{"AITER_NO_COMPILE": "1", "AITER_JIT_PATH": dir}, nil)
		s.Path = nil
		m, err := s.OpenManager(t.Context())
		if err != nil {
			return nil, err
		}
		defer m.Close()
		return m.Build(t.Context(), requests()...)
	}
	if results, err := start(); err != nil || !strings.HasPrefix(results[0].Artifact.Path, dir) {
		t.Errorf("%v, %v", results, err)
	}
	if os.Geteuid() != 0 {
		return
	}
	const other = 12345
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, other, other))
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := start(); err == nil || !strings.Contains(err.Error(), "or remove it from AITER_JIT_PATH") {
		t.Errorf("a folder of another user: %v", err)
	}
}

// TestServerKilled kills the registry while it sends a layer.
func TestServerKilled(t *testing.T) {
	f, r := prebuilt(t), startRegistry(t)
	rep := push(t, r.Host+"/aiter/kernels:v1", f.built, "")
	p := newProxy(t, r.Host)
	isLayer := ofLayers(rep.Layers)
	p.set(func(_ http.ResponseWriter, q *http.Request, _ http.Handler) bool {
		if isLayer(q) {
			r.Stop() // the proxy answers 502
		}
		return false
	})
	n := newNode(t, f, "oci://"+p.Host+"/aiter/kernels@"+rep.Digest, "")
	e, _, took, err := n.start()
	if err != nil || e.compiles == 0 || took > compileTime {
		t.Errorf("%v, %d compiles, %s", err, e.compiles, took)
	}
	if got := e.cause(); got != jit.PullServer {
		t.Errorf("cause %q, pulls %v, want %s", got, e.pulls, jit.PullServer)
	}
}

// killing stops a registry after some bytes of an answer.
type killing struct {
	http.ResponseWriter
	left int
	stop func()
}

// Write implements [io.Writer].
func (k *killing) Write(p []byte) (int, error) {
	if k.left -= len(p); k.left < 0 {
		k.stop()
	}
	return k.ResponseWriter.Write(p)
}

// Unwrap lets [http.ResponseController] find Flush.
func (k *killing) Unwrap() http.ResponseWriter { return k.ResponseWriter }

// TestServerKilledInTransfer kills the registry after the first MB of a layer. Nothing of the layer is used.
func TestServerKilledInTransfer(t *testing.T) {
	f, r := prebuilt(t), startRegistry(t)
	const size = 32 << 20 // more than the buffers of connections hold
	rep := push(t, r.Host+"/aiter/kernels:v1", withGPU(t, f, noise(size)), "")
	p := newProxy(t, r.Host)
	large := rep.Layers[slices.IndexFunc(rep.Layers, func(l Layer) bool { return l.Packed > size })]
	isLayer := ofLayers(rep.Layers)
	records, begun := make(chan struct{}), atomic.Int64{}
	p.set(func(w http.ResponseWriter, q *http.Request, real http.Handler) bool {
		switch {
		case isOf(q, large.Digest):
			<-records // the other layer of the target is complete
			begun.Add(1)
			real.ServeHTTP(&killing{w, 1 << 20, r.Stop}, q)
			return true
		case isLayer(q):
			real.ServeHTTP(w, q)
			close(records)
			return true
		}
		return false
	})
	store := openCache(t, t.TempDir())
	start := time.Now()
	_, err := Warm(t.Context(), parse(t, p.Host+"/aiter/kernels@"+rep.Digest), store, []string{"gfx942"}, Options{})
	if cause := causeOf(err); cause != jit.PullServer && cause != jit.PullUnreachable || begun.Load() < 2 || time.Since(start) > compileTime {
		t.Errorf("%v after %d requests for the layer and %s, want a failed server after a second request", err, begun.Load(), time.Since(start))
	}
	store.Sweep()
	left, errLeft := filepath.Glob(filepath.Join(store.Path(), "v2", "stage", "*"))
	if names := store.PulledNames(""); len(names) > 0 || len(left) > 0 || errLeft != nil {
		t.Errorf("published %q, left in stages %q, %v", names, left, errLeft)
	}
}

// TestCanceled cancels the call that pulls. That is no fault, so the next call asks again.
func TestCanceled(t *testing.T) {
	f, r := prebuilt(t), startRegistry(t)
	rep := push(t, r.Host+"/aiter/kernels:v1", f.built, "")
	p := newProxy(t, r.Host)
	ctx, cancel := context.WithCancel(t.Context())
	var once sync.Once
	p.set(func(_ http.ResponseWriter, q *http.Request, _ http.Handler) bool {
		once.Do(func() {
			cancel()
			<-q.Context().Done()
		})
		return false
	})
	n := newNode(t, f, "oci://"+p.Host+"/aiter/kernels@"+rep.Digest, "")
	n.env["AITER_NO_COMPILE"] = "1"
	e := &events{}
	m := manager(t, f, n.cache, n.env, e)
	if _, err := m.Build(ctx, requests()...); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
	if _, err := m.Build(t.Context(), requests()...); err != nil {
		t.Errorf("the next call: %v", err)
	}
}
