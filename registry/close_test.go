//go:build linux

package registry_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

const lingerConfig = `
[module.module_linger]
flags.common = ["-O0"]
[[module.module_linger.source]]
path = "csrc/linger/*.cpp"
[[module.module_linger.op]]
name = "linger"
schema = "(Tensor(a!) out, Tensor gate) -> ()"
`

// The operator reports that it runs and blocks during its first call.
const lingerSource = `
extern "C" int sched_yield(void);
struct Any { int type; int pad; int** tensor; };
static int runs;
static int entry(const Any* args) {
  volatile int* out = *args[0].tensor;
  volatile int* gate = *args[1].tensor;
  out[0] = 1;
  if (runs++ == 0) while (!gate[0]) sched_yield();
  return 0;
}
extern "C" __attribute__((visibility("default"))) int __tvm_ffi_linger(void*, const Any* args, int, Any*) { return entry(args); }
`

// cell returns a tensor of one number that the operator and the test share. Its memory is
// outside of Go's heap: the race detector cannot track the operator's accesses.
func cell(t *testing.T) (*tensor.Tensor, *int32) {
	t.Helper()
	page, err := syscall.Mmap(-1, 0, 4096, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Munmap(page) })
	at := unsafe.Pointer(unsafe.SliceData(page))
	store := tensor.ForeignStorage(uintptr(at), 4, tensor.Host(), nil)
	return must(tensor.View(store, tensor.Int32, []int64{1}, nil, 0)), (*int32)(at)
}

// Close waits for a call inside its operator, verified or not, and frees the devices
// afterwards.
func TestCloseWaitsForCalls(t *testing.T) {
	for _, verify := range []bool{false, true} {
		c := newCheckout(t)
		c.Config(lingerConfig)
		c.Write("csrc/linger/a.cpp", lingerSource)
		r := open(t, registry.Options{Root: c.Root, CacheDir: t.TempDir(), Verify: verify})
		op := lookup(t, r, "linger")
		out, running := cell(t)
		gate, let := cell(t)
		called, closed := make(chan error, 1), make(chan error, 1)
		go func() { called <- op.Call(context.Background(), out, gate) }()
		for start := time.Now(); atomic.LoadInt32(running) == 0; time.Sleep(time.Millisecond) {
			if time.Since(start) > patience {
				t.Fatal("the operator did not start")
			}
		}
		go func() { closed <- r.Close() }()
		for !errors.Is(op.Call(context.Background(), out, gate), registry.ErrClosed) {
			time.Sleep(time.Millisecond)
		}
		select {
		case err := <-closed:
			closed <- err
			t.Errorf("verify %t: Close returned while the operator ran", verify)
		case <-time.After(50 * time.Millisecond):
		}
		if _, err := r.Devices().Driver(tensor.CPU); err != nil {
			t.Errorf("verify %t: the devices were closed while the operator ran: %v", verify, err)
		}
		atomic.StoreInt32(let, 1)
		if err := <-called; err != nil {
			t.Errorf("verify %t: the running call returned %v", verify, err)
		}
		if err := <-closed; err != nil {
			t.Errorf("verify %t: Close: %v", verify, err)
		}
	}
}

// onBuild runs a function once, when the first unit of module_causal_conv1d begins to compile.
type onBuild struct {
	once sync.Once
	do   func()
}

func (o *onBuild) Observe(e jit.Event) {
	if e.Step == jit.UnitStarted && e.Module == "module_causal_conv1d" {
		o.once.Do(o.do)
	}
}

// A call repeats its checks after a build: it fails if memory was freed or the registry was
// closed meanwhile, for example by the observer of the build.
func TestCallRepeatsChecksAfterBuild(t *testing.T) {
	testenv.Long(t)
	root := quickTree(t, "", "")
	for _, verify := range []bool{false, true} {
		var o onBuild
		r := open(t, registry.Options{CacheDir: t.TempDir(), Root: root, Observer: &o, Verify: verify})
		out, x, w := small()
		freed := must(r.Devices().New(tensor.Host(), tensor.Float32, 1, 1, 4))
		o.do = func() {
			if err := r.Devices().Free(freed); err != nil {
				t.Error(err)
			}
		}
		var gone *tensor.FreedError
		if err := lookup(t, r, "causal_conv1d_fwd").Call(context.Background(), freed, x, w); !errors.As(err, &gone) {
			t.Errorf("verify %t: memory was freed while the call waited for its build: %v", verify, err)
		}
		if err := lookup(t, r, "causal_conv1d_fwd").Call(context.Background(), out, x, w); err != nil {
			t.Errorf("verify %t: the next call: %v", verify, err)
		}

		o = onBuild{}
		r = open(t, registry.Options{CacheDir: t.TempDir(), Root: root, Observer: &o, Verify: verify})
		o.do = func() {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := lookup(t, r, "causal_conv1d_fwd").Call(context.Background(), out, x, w); !errors.Is(err, registry.ErrClosed) {
			t.Errorf("verify %t: the registry was closed while the call waited for its build: %v", verify, err)
		}
	}
}

// heldSupport counts the support library's artifacts that clean-cache keeps because
// they are in use.
func heldSupport(t *testing.T, store *cache.Dir) int {
	t.Helper()
	rep, err := store.Clean(cache.CleanRequest{
		Match: func(a cache.Artifact) bool { return a.Module == "module_aiter_ffi" }, DryRun: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	return len(rep.InUse)
}

// The support library is marked as in use while the registry is open, even after the
// garbage collector ran.
func TestSupportLibraryStaysInUse(t *testing.T) {
	r := open(t, registry.Options{CacheDir: builtCache(t), Root: quickTree(t, "", "")})
	store := r.Manager().Cache()
	out, x, w := small()
	if err := lookup(t, r, "causal_conv1d_fwd").Call(context.Background(), out, x, w); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		runtime.GC()
		time.Sleep(10 * time.Millisecond) // so that finalizers can run
	}
	if held := heldSupport(t, store); held != 1 {
		t.Errorf("%d support libraries are marked as in use, want 1", held)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if held := heldSupport(t, store); held != 0 {
		t.Errorf("%d support libraries are marked as in use after Close", held)
	}
}
