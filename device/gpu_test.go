package device_test

import (
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/tensor"
)

func TestInfoHIP(t *testing.T) {
	for name, flags := range map[string][]string{"R0600": nil, "old layout": {"-DOLD_LAYOUT"}} {
		drv := openFake(t, device.OpenHIP, fake(t, "fakehip", flags...))
		info, err := drv.Info(1)
		must(t, err)
		want, err := target.Parse("gfx90a:sramecc+:xnack-")
		must(t, err)
		info.Driver = checkDriver(t, info.Driver, "60443483")
		if info != (device.Info{Name: "Fake Instinct 1", Target: want, Memory: 2 << 32, Device: tensor.Device{Type: drv.Type(), ID: 1},
			Units: 105, ClockMHz: 1700}) {
			t.Errorf("%s: %+v", name, info)
		}
		if drv.Vendor() != target.HIP || drv.Type() != tensor.ROCM {
			t.Errorf("%s: %s, %s", name, drv.Vendor(), drv.Type())
		}
	}
}

// checkDriver checks the version of a driver and returns "". The version of this machine's kernel module may follow it.
func checkDriver(t *testing.T, got, want string) string {
	t.Helper()
	if version, _, _ := strings.Cut(got, " ("); version != want {
		t.Errorf("driver %q, want %q", got, want)
	}
	return ""
}

func TestInfoUnknownArchitecture(t *testing.T) {
	drv := openFake(t, device.OpenHIP, fake(t, "fakehip", `-DARCH="gfx1399"`))
	if info, err := drv.Info(0); err != nil || info.Target.String() != "gfx1399" {
		t.Errorf("a GPU newer than the list: %+v, %v", info, err)
	}
	drv = openFake(t, device.OpenHIP, fake(t, "fakehip", `-DARCH="nonsense"`))
	if info, err := drv.Info(0); err == nil {
		t.Errorf("a name that is not an architecture: %+v", info)
	}
	must(t, drv.Free(alloc(t, drv, 0, 1))) // its memory can be used all the same
}

func TestInfoCUDA(t *testing.T) {
	drv := openFake(t, device.OpenCUDA, fake(t, "fakecuda"))
	info, err := drv.Info(0)
	must(t, err)
	want, err := target.Parse("sm_90")
	must(t, err)
	info.Driver = checkDriver(t, info.Driver, "12.8")
	if info != (device.Info{Name: "Fake Hopper 0", Target: want, Memory: 1 << 33, Device: tensor.Device{Type: tensor.CUDA}, Units: 132,
		ClockMHz: 1980}) {
		t.Errorf("%+v", info)
	}
	if info, err := drv.Info(1); err != nil || info.Target.String() != "sm_91" {
		t.Errorf("an architecture not in the list: %+v, %v", info, err)
	}
}

func TestUnavailable(t *testing.T) {
	hip, cuda := device.OpenHIP, device.OpenCUDA
	for _, c := range []struct {
		name string
		open opener
		lib  string
		want []string
	}{
		{"no library", hip, "/nonexistent/libamdhip64.so.7", []string{"ROCM_PATH", "/nonexistent/libamdhip64.so.7"}},
		{"no library", cuda, "/nonexistent/libcuda.so.1", []string{"NVIDIA driver", "/nonexistent/libcuda.so.1"}},
		{"not that library", hip, fake(t, "fakecuda"), []string{"hipInit"}},
		{"not that library", cuda, fake(t, "fakehip"), []string{"cuInit"}},
		{"no device", hip, fake(t, "fakehip", "-DDEVICES=0"), []string{"hipGetDeviceCount", "(100)"}},
		{"broken driver", cuda, fake(t, "fakecuda", "-DINIT_ERROR=803"), []string{"cuInit", "(803)"}},
	} {
		_, err := c.open(c.lib)
		var ue *device.UnavailableError
		if !errors.As(err, &ue) {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v\nlacks %q", c.name, err, w)
			}
		}
	}
}

func TestDriverErrors(t *testing.T) {
	hipLib := fake(t, "fakehip")
	for _, c := range []struct {
		drv              device.Driver
		call, name, text string
	}{
		{openFake(t, device.OpenHIP, hipLib), "hipMalloc", "hipErrorOutOfMemory", "out of memory"},
		{openFake(t, device.OpenCUDA, fake(t, "fakecuda")), "cuMemAlloc_v2", "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
	} {
		_, err := c.drv.Alloc(0, 1<<41)
		var e *device.Error
		if !errors.As(err, &e) || *e != (device.Error{Call: c.call, Code: 2, Name: c.name, Text: c.text}) {
			t.Errorf("%v", err)
		}
		// The library itself must report an address that it did not allocate.
		foreign := tensor.ForeignStorage(0x1000, 8, tensor.Device{Type: c.drv.Type()}, nil)
		if err := c.drv.Memset(foreign, 0); !errors.As(err, &e) || e.Code != 1 {
			t.Errorf("Memset of a foreign address: %v", err)
		}
	}
}

// An error of the driver must not remain for an operator's hipGetLastError.
func TestHIPLastErrorIsCleared(t *testing.T) {
	lib := fake(t, "fakehip")
	drv := openFake(t, device.OpenHIP, lib)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if _, err := drv.Alloc(0, 1<<41); err == nil {
		t.Fatal("no error")
	}
	if got := callFake(t, lib, "hipPeekAtLastError"); got != 0 {
		t.Errorf("the thread's last error is %d", got)
	}
}

// The vendors' synchronous copies may return before they are complete. The driver's copies wait for the default stream.
func TestCopiesAreComplete(t *testing.T) {
	lib := fake(t, "fakecuda")
	drv := openFake(t, device.OpenCUDA, lib)
	s := alloc(t, drv, 1, 8)
	for i, do := range []func() error{
		func() error { return drv.CopyToDevice(s, make([]byte, 8)) },
		func() error { return drv.Memset(s, 1) },
		func() error { return drv.CopyDevice(s, s) },
	} {
		before := callFake(t, lib, "fake_synced", 1)
		must(t, do())
		if callFake(t, lib, "fake_synced", 1) == before {
			t.Errorf("call %d did not wait", i)
		}
	}
}

// Kernels read whole blocks of 16 bytes, so an allocation consists of whole blocks.
func TestAllocationsEndWithABlock(t *testing.T) {
	lib := fake(t, "fakehip")
	drv := openFake(t, device.OpenHIP, lib)
	for n, want := range map[int64]int{1: 16, 16: 16, 17: 32, 100: 112} {
		s := alloc(t, drv, 0, n)
		if got := callFake(t, lib, "fake_size", s.Ptr()); got != want || s.Size() != n {
			t.Errorf("%d bytes: a storage of %d in an allocation of %d, want %d", n, s.Size(), got, want)
		}
	}
}

func TestElapsedExact(t *testing.T) {
	drv := openFake(t, device.OpenHIP, fake(t, "fakehip"))
	a, err := drv.NewEvent(1)
	must(t, err)
	b, err := drv.NewEvent(1)
	must(t, err)
	q, err := drv.NewStream(1)
	must(t, err)
	must(t, errors.Join(drv.Record(a, q), drv.Record(b, q)))
	if d, err := drv.Elapsed(a, b); err != nil || d != 1500*time.Microsecond {
		t.Errorf("Elapsed = %v, %v", d, err)
	}
	var ee *device.EventError
	if err := drv.Record(a, device.Stream{Device: tensor.Device{Type: tensor.ROCM}}); !errors.As(err, &ee) {
		t.Errorf("Record on another device's stream: %v", err)
	}
}

func TestContextsAreRetainedWhenUsed(t *testing.T) {
	lib := fake(t, "fakecuda")
	drv := openFake(t, device.OpenCUDA, lib)
	retained := func() [2]int {
		return [2]int{callFake(t, lib, "fake_retained", 0), callFake(t, lib, "fake_retained", 1)}
	}
	if got := retained(); got != [2]int{} {
		t.Errorf("after opening: %v", got)
	}
	alloc(t, drv, 1, 8)
	alloc(t, drv, 1, 8)
	if got := retained(); got != [2]int{0, 1} {
		t.Errorf("after using device 1 twice: %v", got)
	}
	must(t, drv.Close())
	if got := retained(); got != [2]int{} {
		t.Errorf("after Close: %v", got)
	}
}

func TestCloseFreesAll(t *testing.T) {
	for name, c := range map[string]struct {
		open opener
		lib  string
	}{"hip": {device.OpenHIP, fake(t, "fakehip")}, "cuda": {device.OpenCUDA, fake(t, "fakecuda")}} {
		drv := openFake(t, c.open, c.lib)
		s, err := drv.Alloc(1, 64)
		must(t, err)
		pinned, err := drv.AllocHost(64)
		must(t, err)
		_, err = drv.NewStream(1)
		must(t, err)
		e, err := drv.NewEvent(0)
		must(t, err)
		if n := callFake(t, c.lib, "fake_alive"); n != 4 {
			t.Errorf("%s: %d objects alive, want 4", name, n)
		}
		must(t, drv.Close())
		must(t, drv.Close())
		if n := callFake(t, c.lib, "fake_alive"); n != 0 {
			t.Errorf("%s: %d objects alive after Close", name, n)
		}
		var ce *device.ClosedError
		if _, err := drv.Alloc(0, 1); !errors.As(err, &ce) {
			t.Errorf("%s: Alloc after Close: %v", name, err)
		}
		if !s.Freed() || !pinned.Freed() || e.Close() == nil {
			t.Errorf("%s: memory or events count as alive after Close", name)
		}
	}
}

func TestFreeOnce(t *testing.T) {
	drv := openFake(t, device.OpenHIP, fake(t, "fakehip"))
	s, err := drv.Alloc(0, 64)
	must(t, err)
	var wg sync.WaitGroup
	results := make([]error, 8)
	for i := range results {
		wg.Go(func() { results[i] = drv.Free(s) })
	}
	wg.Wait()
	good := 0
	for _, err := range results {
		if err == nil {
			good++
		}
	}
	if good != 1 {
		t.Errorf("%d of %d concurrent calls freed the memory", good, len(results))
	}
}

func TestPinnedMemoryIsNotTheHostDrivers(t *testing.T) {
	drv := openFake(t, device.OpenCUDA, fake(t, "fakecuda"))
	pinned, err := drv.AllocHost(8)
	must(t, err)
	var oe *device.OwnerError
	if err := device.OpenHost().Free(pinned); !errors.As(err, &oe) || pinned.Freed() {
		t.Errorf("the host driver freed pinned memory: %v", err)
	}
}

// Close during other calls: each call succeeds or returns *ClosedError, and nothing leaks.
func TestCloseWhileBusy(t *testing.T) {
	lib := fake(t, "fakehip")
	drv := openFake(t, device.OpenHIP, lib)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for {
				err := useOnce(drv, i%2)
				var ce *device.ClosedError
				var fe *tensor.FreedError
				if errors.As(err, &ce) || errors.As(err, &fe) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	time.Sleep(5 * time.Millisecond)
	must(t, drv.Close())
	wg.Wait()
	if n := callFake(t, lib, "fake_alive"); n != 0 {
		t.Errorf("%d objects alive after Close", n)
	}
}

func useOnce(drv device.Driver, dev int) error {
	s, err := drv.Alloc(dev, 64)
	if err != nil {
		return err
	}
	q, err := drv.NewStream(dev)
	if err != nil {
		return err
	}
	e, err := drv.NewEvent(dev)
	if err != nil {
		return err
	}
	for _, do := range []func() error{
		func() error { return drv.CopyToDevice(s, make([]byte, 64)) }, func() error { return drv.Record(e, q) },
		e.Close, q.Close, func() error { return drv.Free(s) },
	} {
		var ee *device.EventError
		if err := do(); err != nil && !errors.As(err, &ee) {
			return err
		}
	}
	return nil
}
