package fleet

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/settings"
	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
)

const smallConfig = `
[module.module_small]
targets = ["cpu"]
[[module.module_small.source]]
path = "src/a.cpp"
[[module.module_small.op]]
name = "small"
schema = "() -> ()"
`

const smallSource = "extern \"C\" int __tvm_ffi_small(void*, void*, int, void*) { return 0; }\n"

// fixture is a source tree and the prebuilt cache of its modules. Tests only read them.
type fixture struct {
	root, built string
}

// built makes the fixture once for all tests.
var built = sync.OnceValues(func() (fixture, error) {
	dir, err := os.MkdirTemp("", "aiter-fleet-")
	return fixture{filepath.Join(dir, "tree"), filepath.Join(dir, "built")}, err
})

func TestMain(m *testing.M) {
	switch {
	case os.Getenv("AITER_TEST_PULL") != "":
		os.Exit(pullChild())
	case os.Getenv("AITER_TEST_START") != "":
		os.Exit(startChild())
	case os.Getenv("AITER_TEST_CALL") != "":
		os.Exit(callChild())
	}
	code := m.Run()
	if f, err := built(); err == nil {
		_ = os.RemoveAll(filepath.Dir(f.root))
	}
	os.Exit(code)
}

var building sync.Once

// prebuilt returns the fixture. Its cache has module_small and the support library for the CPU.
func prebuilt(t testing.TB) fixture {
	t.Helper()
	f, err := built()
	if err != nil {
		t.Fatal(err)
	}
	building.Do(func() {
		tree := testenv.NewTree(t, smallConfig)
		tree.Write("src/a.cpp", smallSource)
		if err := os.CopyFS(f.root, os.DirFS(tree.Root)); err != nil {
			t.Fatal(err)
		}
		m := manager(t, f, t.TempDir(), nil, nil)
		results, err := m.Build(t.Context(), requests()...)
		if err != nil {
			t.Fatal(err)
		}
		to := openCache(t, f.built)
		if err := errors.Join(m.Export(to, results), to.MakeReadable()); err != nil {
			t.Fatal(err)
		}
	})
	if _, err := os.Stat(f.built); err != nil {
		t.Fatal(err)
	}
	return f
}

func requests() []jit.Request {
	return []jit.Request{{Module: "module_small", Target: target.Host()}, settings.SupportRequest()}
}

// managerSettings are those of a manager on the tree of the fixture.
func managerSettings(f fixture, dir string, env map[string]string, observer jit.Observer) settings.Settings {
	return settings.Settings{
		CacheDir: dir, Roots: []string{f.root}, Observer: observer, Remote: Open, Logger: slog.New(slog.DiscardHandler), Path: []string{},
		Getenv: func(name string) string {
			if v, ok := env[name]; ok || strings.HasPrefix(name, "AITER_") {
				return v
			}
			return os.Getenv(name)
		},
	}
}

// manager opens a build manager on the tree of the fixture, with its own cache. env has more variables.
func manager(t testing.TB, f fixture, dir string, env map[string]string, observer jit.Observer) *jit.Manager {
	t.Helper()
	m, err := managerSettings(f, dir, env, observer).OpenManager(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

func openCache(t testing.TB, dir string) *cache.Dir {
	t.Helper()
	d, err := cache.Open(dir, cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func readOnly(t testing.TB, dir string) *cache.Dir {
	t.Helper()
	d, err := cache.OpenReadOnly(dir, cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// withGPU returns a copy of the fixture's cache that also has an artifact for a GPU, of the given bytes.
func withGPU(t testing.TB, f fixture, library []byte) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "gpu")
	d := openCache(t, dir)
	if err := d.CopyFrom(readOnly(t, f.built)); err != nil {
		t.Fatal(err)
	}
	var unit, link, record cache.Lines
	unit.Add("unit", "gpu")
	link.Add("link", "gpu")
	record.Add("record", "gpu")
	list := []byte("{}")
	a := cache.Artifact{
		Module: "module_small", Target: "gfx942", LinkKey: link.Key(), BuildRecordKey: record.Key(), Exported: true,
		Units: []cache.Ref{{
			Source: "a.hip", Unit: unit.Key(), Result: unit.Key(), Object: string(unit.Key()), Deps: []string{cache.SHA256(list)},
		}},
	}
	s, err := d.NewStage()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := os.WriteFile(s.File("library"), library, 0o600); err != nil {
		t.Fatal(err)
	}
	if a, err = d.AddArtifact(s, s.File("library"), a); err != nil {
		t.Fatal(err)
	}
	err = errors.Join(d.Put(cache.Manifest, unit.Key(), []byte("[]")), d.Put(cache.Object, unit.Key(), []byte(string(unit.Key())+" 1")),
		d.Put(cache.DepList, cache.Key(cache.SHA256(list)), list), d.Put(cache.Linked, link.Key(), []byte(a.ID)),
		d.Put(cache.BuildRecord, record.Key(), []byte("{}")))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// startRegistry starts a registry without authentication.
func startRegistry(t testing.TB) *testenv.Registry {
	t.Helper()
	r, err := testenv.StartRegistry(testenv.Tool(t, "registry"), t.TempDir(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	return r
}

// newKeys makes a key pair and returns its files.
func newKeys(t testing.TB) (private, public string) {
	t.Helper()
	dir := t.TempDir()
	private, public = filepath.Join(dir, "ci.pem"), filepath.Join(dir, "ci.pub")
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a, errA := x509.MarshalPKCS8PrivateKey(key)
	b, errB := x509.MarshalPKIXPublicKey(&key.PublicKey)
	err = errors.Join(errA, errB, os.WriteFile(private, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: a}), 0o600),
		os.WriteFile(public, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: b}), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	return private, public
}

func parse(t testing.TB, s string) Reference {
	t.Helper()
	r, err := ParseReference(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// push pushes a prebuilt cache, signed by a private key unless it is "".
func push(t testing.TB, ref, dir, private string) PushReport {
	t.Helper()
	var signer *Signer
	if private != "" {
		var err error
		if signer, err = LoadSigner(private); err != nil {
			t.Fatal(err)
		}
	}
	rep, err := Push(t.Context(), parse(t, ref), readOnly(t, dir), signer, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

// pullChild is a process that pulls into a cache. TestKilled kills it; TestHTTPProxy gives it the variables of proxies.
func pullChild() int {
	store, err := cache.Open(os.Getenv("AITER_TEST_CACHE"), cache.Options{})
	if err == nil {
		var ref Reference
		if ref, err = ParseReference(os.Getenv("AITER_TEST_PULL")); err == nil {
			_, err = Warm(context.Background(), ref, store, nil, Options{Certs: os.Getenv("AITER_TEST_CERTS")})
		}
	}
	if err != nil {
		println(err.Error())
		return 1
	}
	return 0
}
