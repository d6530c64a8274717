//go:build linux

package registry_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// patience bounds waits that end immediately on success.
const patience = 2 * time.Minute

// versionConfig declares an operator that writes its version in several ways, which
// have to agree.
const versionConfig = `
[module.module_version]
include = ["csrc/version"]
flags.common = ["-O0"]
[[module.module_version.source]]
path = "csrc/version/*.cpp"
[[module.module_version.op]]
name = "version"
schema = "(Tensor(a!) out) -> ()"
`

// The operator uses the C ABI without headers, so that its unit compiles fast. It
// yields between its writes. Some symbols are not static: dynamic linkers may merge them
// within a process.
const versionSource = `
#include "version.h"
extern "C" int sched_yield(void);
struct Any { int type; int pad; int** tensor; };
int from_other_unit();
int entry(const Any* args) {
  int* out = *args[0].tensor;
  out[0] = VERSION;
  sched_yield();
  out[1] = once;
  sched_yield();
  out[2] = from_other_unit();
  sched_yield();
  out[3] = counter<int>();
  return 0;
}
extern "C" __attribute__((visibility("default"))) int __tvm_ffi_version(void*, const Any* args, int, Any*) { return entry(args); }
`

const versionHeader = `
#define VERSION %d
inline int once = VERSION;
template <class T> int counter() { static T v = once; return v; }
`

// checkout is a source tree that contains the operator "version".
type checkout struct {
	*testenv.Tree
	t *testing.T
}

func newCheckout(t *testing.T) *checkout {
	t.Helper()
	c := &checkout{testenv.NewTree(t, versionConfig), t}
	c.Write("csrc/version/a.cpp", versionSource)
	c.Write("csrc/version/b.cpp", "#include \"version.h\"\nint from_other_unit() { return VERSION; }\n")
	c.version(1)
	return c
}

func (c *checkout) version(n int) { c.Write("csrc/version/version.h", fmt.Sprintf(versionHeader, n)) }

// eventLog collects the events of builds and reloads.
type eventLog struct {
	reloads  chan jit.Event
	mu       sync.Mutex
	builds   int       // finished builds of modules
	finished time.Time // end of the last build
	gaps     []time.Duration
	building map[string]bool // units that are being compiled
	then     func()          // called after each build of the module; may be nil
}

func newEventLog() *eventLog {
	return &eventLog{reloads: make(chan jit.Event, 1000), building: map[string]bool{}}
}

func (o *eventLog) Observe(e jit.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case e.Step == jit.UnitStarted || e.Step == jit.UnitFinished:
		o.building[e.Source] = e.Step == jit.UnitStarted
	case e.Step == jit.ModuleFinished:
		o.builds++
		o.finished = time.Now()
		if o.then != nil && e.Module == "module_version" {
			o.then()
		}
	case e.Step == jit.Reloaded:
		if e.Err == nil && e.Module != "" {
			o.gaps = append(o.gaps, time.Since(o.finished))
		}
		o.reloads <- e
	}
}

// built returns the number of builds of modules.
func (o *eventLog) built() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.builds
}

// compiling reports whether the second unit is being compiled.
func (o *eventLog) compiling() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.building["csrc/version/b.cpp"]
}

// wait waits for the next reload.
func (o *eventLog) wait(t *testing.T) jit.Event {
	t.Helper()
	select {
	case e := <-o.reloads:
		return e
	case <-time.After(patience):
		t.Fatal("no reload was reported")
		panic("unreachable")
	}
}

func (c *checkout) open(o *eventLog) *registry.Registry {
	c.t.Helper()
	return open(c.t, registry.Options{Root: c.Root, Reload: true, Observer: o, CacheDir: c.t.TempDir()})
}

// callVersion returns the operator's results.
func callVersion(op *registry.Op, more ...any) ([]float64, error) {
	out, err := tensor.Of(make([]int32, 4), 4)
	if err != nil {
		return nil, err
	}
	if err := op.Call(context.Background(), append([]any{out}, more...)...); err != nil {
		return nil, err
	}
	return out.Float64s()
}

// expect checks that all results of the operator have the version.
func expect(t *testing.T, op *registry.Op, want float64, more ...any) {
	t.Helper()
	got, err := callVersion(op, more...)
	if err != nil || !slices.Equal(got, []float64{want, want, want, want}) {
		t.Errorf("got %v, %v, want version %g", got, err, want)
	}
}

// heldArtifacts counts the module's artifacts that clean-cache keeps because they are
// in use.
func heldArtifacts(t *testing.T, r *registry.Registry) int {
	t.Helper()
	rep, err := r.Manager().Cache().Clean(cache.CleanRequest{
		Match: func(a cache.Artifact) bool { return a.Module == "module_version" }, DryRun: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	return len(rep.InUse)
}
