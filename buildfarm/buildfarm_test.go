package buildfarm_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aiter-go/aiter/buildfarm"
	"github.com/aiter-go/aiter/internal/settings"
	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
)

const config = `
[module.module_small]
include = ["include"]
targets = ["cpu"]
[[module.module_small.source]]
path = "src/a.cpp"
[[module.module_small.source]]
path = "src/b.cpp"
[[module.module_small.op]]
name = "small"
schema = "() -> ()"
`

const source = `#include <stddef.h>
#include "value.h"
const char* file = __FILE__;
extern "C" int __tvm_ffi_small(void*, void*, int, void*) { return VALUE - 3; }
`

// client is a machine with its own sources and its own cache.
type client struct {
	t    *testing.T
	tree *testenv.Tree
	env  map[string]string
	log  bytes.Buffer

	mu       sync.Mutex
	compiles int     // compiles that started, on the farm or here
	farm     []error // the error of each execution, nil for success
}

// newClient returns a client of the farm at an address; "" for none.
func newClient(t *testing.T, address string) *client {
	t.Helper()
	c := &client{t: t, tree: testenv.NewTree(t, config)}
	c.env = map[string]string{"AITER_JIT_EXECUTOR": address, "AITER_JIT_EXECUTOR_WAIT": "10s"}
	c.tree.Write("src/a.cpp", source)
	c.tree.Write("src/b.cpp", "#include \"value.h\"\nint b = VALUE;\n")
	c.tree.Write("include/value.h", "#define VALUE 3\n")
	c.env["AITER_JIT_DIR"] = t.TempDir()
	return c
}

// Observe implements [jit.Observer].
func (c *client) Observe(e jit.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e.Step {
	case jit.UnitStarted:
		c.compiles++
	case jit.Executed:
		c.farm = append(c.farm, e.Err)
	}
}

// manager opens a manager as a new process does.
func (c *client) manager() *jit.Manager {
	c.t.Helper()
	c.compiles, c.farm = 0, nil
	m, err := settings.Settings{
		Roots: []string{c.tree.Root}, Observer: c, Executor: buildfarm.Open, Path: []string{},
		Logger: slog.New(slog.NewTextHandler(&c.log, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Getenv: func(name string) string {
			if v, ok := c.env[name]; ok || strings.HasPrefix(name, "AITER_") {
				return v
			}
			return os.Getenv(name)
		},
	}.OpenManager(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = m.Close() })
	return m
}

// build builds a module and returns the digest of its library, and of each unit's object.
func (c *client) build(r jit.Request) jit.Result {
	c.t.Helper()
	results, err := c.manager().Build(c.t.Context(), r)
	if err != nil {
		c.t.Fatal(err)
	}
	return results[0]
}

// failures returns the causes of executions that gave no result.
func (c *client) failures() (causes []jit.ExecutorCause) {
	for _, err := range c.farm {
		if e, ok := err.(*jit.ExecutorError); ok {
			causes = append(causes, e.Cause)
		} else if err != nil {
			c.t.Errorf("not an ExecutorError: %v", err)
		}
	}
	return causes
}

func small() jit.Request { return jit.Request{Module: "module_small", Target: target.Host()} }

// startFarm starts a farm. root is the root folder of its workers, "" for this machine's.
func startFarm(t *testing.T, root string) *testenv.Executor {
	t.Helper()
	return startServer(t, testenv.ExecutorOptions{Root: root})
}

func startServer(t *testing.T, o testenv.ExecutorOptions) *testenv.Executor {
	t.Helper()
	program := testenv.Tool(t, "buildbox-casd")
	o.Dir = t.TempDir()
	x, err := testenv.StartExecutor(program, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Stop)
	return x
}

// rootOf returns the root folder of a GPU compiler: "rocm" of hipcc, "cuda" of nvcc.
func rootOf(t *testing.T, compiler, folder string) string {
	t.Helper()
	wrapper, err := filepath.EvalSymlinks(testenv.Tool(t, compiler))
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(filepath.Dir(filepath.Dir(wrapper)), folder)
	if _, err := os.Stat(filepath.Join(root, "usr", "bin", compiler)); err != nil {
		t.Skipf("%s is in no root folder of scripts/root.sh: %v", compiler, err)
	}
	return root
}

var built = struct {
	sync.Once
	digest string
}{}

// builtHere returns the digest of the library that this machine makes of the sources of a client.
func builtHere(t *testing.T) string {
	t.Helper()
	built.Do(func() { built.digest = newClient(t, "").build(small()).Artifact.Digest })
	if built.digest == "" {
		t.Fatal("the build on this machine failed")
	}
	return built.digest
}

// TestEqualToLocal builds on a farm and on this machine. The libraries are equal, and a second client takes all results from the farm's
// cache.
func TestEqualToLocal(t *testing.T) {
	p := newProxy(t, startFarm(t, "").Host)
	here := builtHere(t)
	c := newClient(t, "grpc://"+p.host)
	there := c.build(small())
	if f := c.failures(); len(f) > 0 || len(c.farm) != 3 || c.compiles != 2 || p.count("Execute") != 3 {
		t.Errorf("failures %v of %d executions, %d compiles; want 3 executions: two compiles and a link\n%s",
			f, len(c.farm), c.compiles, c.log.String())
	}
	if here != there.Artifact.Digest {
		t.Errorf("the library of the farm differs from the one that was built here: %s", there.Artifact.Path)
	}
	p.set(fault{})
	second := newClient(t, "grpc://"+p.host)
	start := time.Now()
	if got := second.build(small()); got.Artifact.Digest != here || len(second.failures()) > 0 || p.count("Execute") > 0 {
		t.Errorf("second client: %s, failures %v, %d executions", got.Artifact.Path, second.failures(), p.count("Execute"))
	}
	t.Logf("second client: %s", time.Since(start))
	p.set(fault{})
	if got := second.build(small()); got.Status != jit.Hit || len(p.calls) > 0 {
		t.Errorf("third build: %s, calls %v; want none", got.Status, p.calls)
	}
	stats, err := second.manager().Cache().Stats()
	if err != nil || stats.Executions != 3 || stats.ExecutionFaults != 0 {
		t.Errorf("%+v %v, want 3 executions", stats, err)
	}
}

const gpuConfig = `
[module.module_gpu]
include = ["include"]
targets = ["gfx942"]
[[module.module_gpu.source]]
path = "src/k.hip"
[[module.module_gpu.op]]
name = "gpu"
schema = "() -> ()"
`

const gpuSource = `#include <hip/hip_runtime.h>
#include "value.h"
__global__ void scale(float* p) { p[threadIdx.x] *= VALUE; }
extern "C" int __tvm_ffi_gpu(void* p, void*, int, void*) {
  scale<<<1, 64>>>((float*)p);
  return 0;
}
`

// TestGPUEqualToLocal compiles both passes for gfx942 on a farm whose workers have the root folder of hipcc.
func TestGPUEqualToLocal(t *testing.T) {
	testenv.Long(t)
	root := rootOf(t, "hipcc", "rocm")
	p := newProxy(t, startFarm(t, root).Host)
	gfx, err := target.Parse("gfx942")
	if err != nil {
		t.Fatal(err)
	}
	r := jit.Request{Module: "module_gpu", Target: gfx}
	build := func(address string) (*client, jit.Result) {
		c := newClient(t, address)
		c.env["HIPCC"] = testenv.Tool(t, "hipcc")
		c.tree.Config(gpuConfig)
		c.tree.Write("src/k.hip", gpuSource)
		return c, c.build(r)
	}
	_, here := build("")
	first, there := build("grpc://" + p.host)
	if f := first.failures(); len(f) > 0 || p.count("Execute") != 3 {
		t.Errorf("failures %v, %d executions; want 3: two passes and a link\n%s", f, p.count("Execute"), first.log.String())
	}
	p.set(fault{})
	second, again := build("grpc://" + p.host)
	if f := second.failures(); len(f) > 0 || p.count("Execute") > 0 {
		t.Errorf("second client: failures %v, %d executions", f, p.count("Execute"))
	}
	if here.Artifact.Digest != there.Artifact.Digest || again.Artifact.Digest != here.Artifact.Digest {
		t.Errorf("libraries differ: here %s, farm %s, its cache %s", here.Artifact.Path, there.Artifact.Path, again.Artifact.Path)
	}
}
