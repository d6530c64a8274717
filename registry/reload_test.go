package registry_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/cache"
	"github.com/aiter-go/aiter/jit/manifest"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

var reloads = flag.Int("reloads", 12, "how many versions TestReloadUnderCalls goes through")

// patience bounds waits that end at once when all is well.
const patience = 2 * time.Minute

// versionConfig declares an operator that writes its version in several ways,
// which must agree.
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

// The operator speaks the C ABI itself: without headers a unit compiles in no
// time. It gives way between its writes. What is not static is what tools make
// one in a process, were they let.
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

// checkout is a source tree with the operator version.
type checkout struct {
	t    *testing.T
	root string
}

func newCheckout(t *testing.T) *checkout {
	t.Helper()
	c := &checkout{t, t.TempDir()}
	for _, dir := range []string{"csrc/support", "csrc/include"} {
		if err := os.CopyFS(filepath.Join(c.root, dir), os.DirFS(filepath.Join("..", dir))); err != nil {
			t.Fatal(err)
		}
	}
	c.config(versionConfig)
	c.write("csrc/version/a.cpp", versionSource)
	c.write("csrc/version/b.cpp", "#include \"version.h\"\nint from_other_unit() { return VERSION; }\n")
	c.version(1)
	return c
}

// config writes the configuration: the support library, and more.
func (c *checkout) config(more string) {
	c.write("config/opt_compiler.toml", `
[module.module_aiter_ffi]
include = ["csrc/include"]
targets = ["cpu"]
flags.common = ["-O1", "-std=c++17", "-fvisibility=hidden"]
[[module.module_aiter_ffi.source]]
path = "csrc/support/*.cpp"
`+more)
}

// write replaces a file as editors do.
func (c *checkout) write(name, text string) {
	c.t.Helper()
	path := filepath.Join(c.root, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path+"~", []byte(text), 0o644), os.Rename(path+"~", path)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *checkout) version(n int) { c.write("csrc/version/version.h", fmt.Sprintf(versionHeader, n)) }

// told collects the events of builds and reloads.
type told struct {
	reloads  chan jit.Event
	mu       sync.Mutex
	builds   int       // of modules
	finished time.Time // when the last one was
	gaps     []time.Duration
	building map[string]bool // units
}

func newTold() *told { return &told{reloads: make(chan jit.Event, 1000), building: map[string]bool{}} }

func (o *told) Observe(e jit.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case e.Step == jit.UnitStarted || e.Step == jit.UnitFinished:
		o.building[e.Source] = e.Step == jit.UnitStarted
	case e.Step == jit.ModuleFinished:
		o.builds++
		o.finished = time.Now()
	case e.Step == jit.Reloaded:
		if e.Err == nil && e.Module != "" {
			o.gaps = append(o.gaps, time.Since(o.finished))
		}
		o.reloads <- e
	}
}

// built returns how many builds of modules there were.
func (o *told) built() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.builds
}

// compiling says whether the compiler is at the second unit.
func (o *told) compiling() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.building["csrc/version/b.cpp"]
}

// wait waits for the next reload.
func (o *told) wait(t *testing.T) jit.Event {
	t.Helper()
	select {
	case e := <-o.reloads:
		return e
	case <-time.After(patience):
		t.Fatal("no reload")
		panic("unreachable")
	}
}

func (c *checkout) open(o *told) *registry.Registry {
	c.t.Helper()
	return open(c.t, registry.Options{Root: c.root, Reload: true, Observer: o, CacheDir: c.t.TempDir()})
}

// callVersion returns what the operator wrote.
func callVersion(op *registry.Op, more ...any) ([]float64, error) {
	out, err := tensor.FromInt32(make([]int32, 4), 4)
	if err != nil {
		return nil, err
	}
	if err := op.Call(context.Background(), append([]any{out}, more...)...); err != nil {
		return nil, err
	}
	return out.Float64s()
}

// expect wants all of the operator to be of one version.
func expect(t *testing.T, op *registry.Op, want float64, more ...any) {
	t.Helper()
	got, err := callVersion(op, more...)
	if err != nil || !slices.Equal(got, []float64{want, want, want, want}) {
		t.Errorf("got %v, %v, want version %g", got, err, want)
	}
}

// Eight goroutines call while the code under them is replaced again and again:
// no call fails, none sees two versions, none goes back to an older one.
func TestReloadUnderCalls(t *testing.T) {
	c, o := newCheckout(t), newTold()
	r := c.open(o)
	op := lookup(t, r, "version")
	expect(t, op, 1)
	var stop atomic.Bool
	var calls atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			last := 0.0
			for !stop.Load() && !t.Failed() {
				got, err := callVersion(op)
				calls.Add(1)
				switch {
				case err != nil:
					t.Error(err)
				case slices.Min(got) != slices.Max(got):
					t.Errorf("a mixture of versions: %v", got)
				case got[0] < last:
					t.Errorf("version %g after %g", got[0], last)
				default:
					last = got[0]
				}
				time.Sleep(100 * time.Microsecond) // the compiler wants to run too
			}
		})
	}
	for n := 2; n <= *reloads+1 && !t.Failed(); n++ {
		c.version(n)
		if e := o.wait(t); e.Err != nil || e.Module != "module_version" {
			t.Errorf("reload %d: %+v", n, e)
		}
		expect(t, op, float64(n)) // at once
	}
	stop.Store(true)
	wg.Wait()
	if held := heldArtifacts(t, r); held != 1 {
		t.Errorf("%d artifacts of the module are marked as in use, want the newest alone", held)
	}
	slices.Sort(o.gaps)
	t.Logf("%d reloads under %d calls; from the end of a build until calls run the new code: median %v, most %v",
		len(o.gaps), calls.Load(), o.gaps[len(o.gaps)/2], o.gaps[len(o.gaps)-1])
	if median := o.gaps[len(o.gaps)/2]; median > 100*time.Millisecond {
		t.Errorf("new code is visible %v after its build", median)
	}
}

// What cannot be used changes nothing, is told, and is forgotten once mended.
func TestReloadThatFails(t *testing.T) {
	c, o := newCheckout(t), newTold()
	r := c.open(o)
	op := lookup(t, r, "version")
	expect(t, op, 1)
	fails := func(check func(error) bool) {
		t.Helper()
		var reload *registry.ReloadError
		if e := o.wait(t); !errors.As(e.Err, &reload) || !check(e.Err) {
			t.Errorf("got %v", e.Err)
		}
		if err := r.ReloadErr(); !errors.As(err, &reload) || !check(err) {
			t.Errorf("ReloadErr: %v", err)
		}
		expect(t, op, 1)
	}
	mended := func(want float64) {
		t.Helper()
		if e := o.wait(t); e.Err != nil || r.ReloadErr() != nil {
			t.Errorf("got %v, %v", e.Err, r.ReloadErr())
		}
		expect(t, op, want)
	}
	c.write("csrc/version/version.h", "#define VERSION oops\n")
	fails(as(func(e *jit.CompileError) bool { return strings.Contains(e.Output, "oops") }))
	c.version(1) // as before
	mended(1)

	c.write("csrc/version/b.cpp", "#include \"missing.h\"\n#include \"version.h\"\nint from_other_unit() { return VERSION; }\n")
	fails(as(func(e *jit.CompileError) bool { return strings.Contains(e.Output, "missing.h") }))
	c.write("csrc/version/missing.h", "\n") // a file that no build has read yet
	mended(1)

	c.write("csrc/version/b.cpp", "int nothing;\n")
	fails(as(func(e *registry.LoadError) bool { return true }))
	c.write("csrc/version/b.cpp", "#include \"version.h\"\nint from_other_unit() { return VERSION; }\n")
	mended(1)

	c.config(strings.Replace(versionConfig, "schema =", "shema =", 1))
	fails(as(func(e *manifest.Error) bool { return strings.Contains(r.ReloadErr().Error(), `did you mean "schema"`) }))
	c.version(2) // the code goes on being reloaded
	if e := o.wait(t); e.Err != nil || e.Module != "module_version" || r.ReloadErr() == nil {
		t.Errorf("got %+v, %v", e, r.ReloadErr())
	}
}

// heldArtifacts counts the module's artifacts that cleaning passes over.
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

// An operator's arguments may change, it may go and come back: who holds it
// sees that, and a call with other arguments gets a typed error.
func TestReloadOfTheConfiguration(t *testing.T) {
	c, o := newCheckout(t), newTold()
	r := c.open(o)
	op := lookup(t, r, "version")
	expect(t, op, 1)
	step := func(name, config string, modules int) {
		t.Helper()
		c.config(config)
		for range modules {
			if e := o.wait(t); e.Err != nil {
				t.Errorf("%s: %+v", name, e)
			}
		}
	}
	// The C ABI entry of this operator takes any number of arguments.
	step("another argument", strings.Replace(versionConfig, "out)", "out, int n)", 1), 2)
	var arity *registry.ArityError
	if _, err := callVersion(op); !errors.As(err, &arity) || arity.Min != 2 || len(op.Schema().Args) != 2 {
		t.Errorf("got %v, want an ArityError of the new schema, %s", err, op.Schema())
	}
	expect(t, op, 1, 7)

	other := strings.NewReplacer("[module.module_version]", "[module.module_other]", "module.module_version.", "module.module_other.").Replace(versionConfig)
	step("in another module", other, 1)
	if op.Module() != "module_other" || lookup(t, r, "version") != op {
		t.Errorf("the operator is in %s", op.Module())
	}
	expect(t, op, 1)

	step("another operator", strings.Replace(versionConfig, `"version"`, `"revision"`, 1), 1)
	var removed *registry.RemovedError
	if _, err := callVersion(op); !errors.As(err, &removed) || removed.Op != "version" || op.Name() != "version" {
		t.Errorf("got %v, want a RemovedError", err)
	}
	var unknown *registry.UnknownOpError
	if _, err := r.Lookup("version"); !errors.As(err, &unknown) || !slices.Equal(unknown.Nearest, []string{"revision"}) {
		t.Errorf("got %v, want an UnknownOpError", err)
	}
	if ops := r.Ops(); len(ops) != 1 || ops[0].Name() != "revision" {
		t.Errorf("operators: %v", ops)
	}
	step("back again", versionConfig, 1)
	expect(t, op, 1)
	if err := r.ReloadErr(); err != nil {
		t.Error(err)
	}
}

// Nothing is built, and nothing told, for what leaves the content as it is.
func TestReloadOfNothing(t *testing.T) {
	c, o := newCheckout(t), newTold()
	r := c.open(o)
	op := lookup(t, r, "version")
	expect(t, op, 1)
	c.version(1)
	c.config(versionConfig)
	c.write("csrc/version/readme.txt", "nobody reads this")
	c.version(2)
	if e := o.wait(t); e.Module != "module_version" || e.Err != nil {
		t.Errorf("got %+v", e)
	}
	expect(t, op, 2)
	builds := o.built()
	c.write("csrc/version/b.cpp", "// a comment\n#include \"version.h\"\nint from_other_unit() { return VERSION; }\n")
	for end := time.Now().Add(patience); o.built() == builds && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	c.version(3) // the first that is told after it
	if e := o.wait(t); e.Module != "module_version" || e.Err != nil {
		t.Errorf("got %+v", e)
	}
	expect(t, op, 3)
	if len(o.reloads) > 0 {
		t.Errorf("then %+v", <-o.reloads)
	}
}

// Close ends a compile that is under way, and nothing of the watching is left.
func TestCloseWhileReloading(t *testing.T) {
	c, o := newCheckout(t), newTold()
	r := c.open(o)
	op := lookup(t, r, "version")
	expect(t, op, 1)
	slow := filepath.Join(c.root, "csrc/version/slow.h")
	if err := syscall.Mkfifo(slow, 0o644); err != nil {
		t.Fatal(err)
	}
	c.write("csrc/version/b.cpp", "#include \"slow.h\"\n") // its compiler waits for a writer for ever
	for !o.compiling() {
		time.Sleep(time.Millisecond)
	}
	before := time.Now()
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(before); took > patience/2 {
		t.Errorf("Close took %v", took)
	}
	if _, err := callVersion(op); !errors.Is(err, registry.ErrClosed) {
		t.Errorf("got %v", err)
	}
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		if !strings.Contains(string(stacks), "jit/watch") && !strings.Contains(string(stacks), "fsnotify") && !strings.Contains(string(stacks), "reload)") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("goroutines are left:\n%s", stacks)
		}
	}
}

func TestReloadNeedsFiles(t *testing.T) {
	for name, opts := range map[string]registry.Options{
		"option":   {Reload: true},
		"variable": {Getenv: env(map[string]string{"AITER_RELOAD": "1"})},
	} {
		opts.CacheDir = t.TempDir()
		if _, err := registry.Open(t.Context(), opts); !errors.Is(err, registry.ErrNoCheckout) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	c := newCheckout(t)
	r := open(t, registry.Options{CacheDir: t.TempDir(), Getenv: env(map[string]string{"AITER_RELOAD": "true", "AITER_META_DIR": c.root})})
	op := lookup(t, r, "version")
	expect(t, op, 1)
	c.version(2)
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if got, err := callVersion(op); err != nil || got[0] == 2 {
			break
		}
	}
	expect(t, op, 2)
}
