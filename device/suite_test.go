package device_test

import (
	"bytes"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/tensor"
)

func TestHost(t *testing.T) { suite(t, device.OpenHost()) }

func TestFakeHIP(t *testing.T) { suite(t, openFake(t, device.OpenHIP, fake(t, "fakehip"))) }

func TestFakeCUDA(t *testing.T) { suite(t, openFake(t, device.OpenCUDA, fake(t, "fakecuda"))) }

func TestHIP(t *testing.T) {
	suite(t, real(t, device.OpenHIP, device.HIPLibraries(os.Getenv), "AITER_TEST_HIP"))
}

func TestCUDA(t *testing.T) {
	suite(t, real(t, device.OpenCUDA, device.CUDALibraries(os.Getenv), "AITER_TEST_CUDA"))
}

// suite runs the tests that every driver must pass.
func suite(t *testing.T, drv device.Driver) {
	for name, test := range map[string]func(*testing.T, device.Driver){
		"describe": testDescribe, "copies": testCopies, "memset": testMemset, "async": testAsync, "rows": testRows,
		"free": testFree, "sizes": testSizes, "events": testEvents, "streams": testStreams, "pool": testPool,
		"graphs": testGraphs, "concurrent": testConcurrent,
	} {
		t.Run(name, func(t *testing.T) { test(t, drv) })
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func alloc(t testing.TB, drv device.Driver, dev int, n int64) *tensor.Storage {
	t.Helper()
	s, err := drv.Alloc(dev, n)
	must(t, err)
	t.Cleanup(func() {
		if !s.Freed() {
			must(t, drv.Free(s))
		}
	})
	return s
}

func pattern(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7) ^ seed
	}
	return b
}

func testDescribe(t *testing.T, drv device.Driver) {
	if drv.Count() < 1 {
		t.Fatal("no devices")
	}
	for i := range drv.Count() {
		info, err := drv.Info(i)
		must(t, err)
		if info.Target.Vendor() != drv.Vendor() || info.Device != (tensor.Device{Type: drv.Type(), ID: int32(i)}) || info.Name == "" ||
			info.Memory <= 0 {
			t.Errorf("Info(%d) = %+v", i, info)
		}
		t.Logf("%+v through %q", info, drv.Library())
	}
	for _, i := range []int{-1, drv.Count()} {
		var ie *device.IndexError
		if _, err := drv.Info(i); !errors.As(err, &ie) {
			t.Errorf("Info(%d): %v", i, err)
		}
		if _, err := drv.Alloc(i, 4); !errors.As(err, &ie) {
			t.Errorf("Alloc(%d): %v", i, err)
		}
	}
}

func testCopies(t *testing.T, drv device.Driver) {
	for dev := range drv.Count() {
		for _, n := range []int{0, 1, 5, 4096, 100001} {
			want := pattern(n, byte(dev+1))
			a, b := alloc(t, drv, dev, int64(n)), alloc(t, drv, (dev+1)%drv.Count(), int64(n))
			if a.Size() != int64(n) || a.Device().Type != drv.Type() || int(a.Device().ID) != dev {
				t.Fatalf("storage of %d bytes on %s", a.Size(), a.Device())
			}
			must(t, drv.CopyToDevice(a, want))
			must(t, drv.CopyDevice(b, a))
			got := make([]byte, n)
			must(t, drv.CopyToHost(got, b))
			if !bytes.Equal(got, want) {
				t.Errorf("device %d, %d bytes: they came back changed", dev, n)
			}
		}
	}
}

func testMemset(t *testing.T, drv device.Driver) {
	s := alloc(t, drv, 0, 1000)
	must(t, drv.Memset(s, 0xa5))
	must(t, drv.CopyToDevice(s, []byte{1, 2, 3}))
	got := make([]byte, 1000)
	must(t, drv.CopyToHost(got, s))
	want := append([]byte{1, 2, 3}, bytes.Repeat([]byte{0xa5}, 997)...)
	if !bytes.Equal(got, want) {
		t.Error("Memset, then a short copy: unexpected bytes")
	}
}

func testAsync(t *testing.T, drv device.Driver) {
	pinned, err := drv.AllocHost(64)
	must(t, err)
	defer func() { must(t, drv.Free(pinned)) }()
	mem, err := pinned.Bytes()
	must(t, err)
	copy(mem, pattern(64, 9))
	s := alloc(t, drv, 0, 100)
	must(t, drv.Memset(s, 0))
	q, err := drv.NewStream(0)
	must(t, err)
	defer func() { must(t, q.Close()) }()
	must(t, drv.CopyAsync(q, device.Region{Storage: s, Offset: 30, Size: 20}, device.Region{Storage: pinned, Offset: 4, Size: 20}))
	back, err := tensor.HostStorage(40)
	must(t, err)
	must(t, drv.CopyAsync(q, device.Region{Storage: back, Offset: 10, Size: 30}, device.Region{Storage: s, Offset: 25, Size: 30}))
	must(t, drv.Synchronize(q))
	want := make([]byte, 40)
	copy(want[15:], pattern(64, 9)[4:24])
	if got, _ := back.Bytes(); !bytes.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for name, r := range map[string][2]device.Region{
		"unequal sizes":   {{Storage: s, Size: 4}, {Storage: pinned, Size: 5}},
		"beyond the end":  {{Storage: s, Offset: 99, Size: 2}, {Storage: pinned, Size: 2}},
		"negative offset": {{Storage: s, Offset: -1, Size: 2}, {Storage: pinned, Size: 2}},
		"negative size":   {{Storage: s, Size: -2}, {Storage: pinned, Size: -2}},
	} {
		var re *device.RegionError
		if err := drv.CopyAsync(q, r[0], r[1]); !errors.As(err, &re) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func testFree(t *testing.T, drv device.Driver) {
	s, err := drv.Alloc(0, 16)
	must(t, err)
	view, err := tensor.View(s, tensor.Float32, []int64{4}, nil, 0)
	must(t, err)
	must(t, drv.Free(s))
	other := alloc(t, drv, 0, 16)
	for name, err := range map[string]error{
		"Free":             drv.Free(s),
		"CopyToDevice":     drv.CopyToDevice(s, make([]byte, 16)),
		"CopyToHost":       drv.CopyToHost(make([]byte, 16), s),
		"CopyDevice from":  drv.CopyDevice(other, s),
		"CopyDevice to":    drv.CopyDevice(s, other),
		"Memset":           drv.Memset(s, 1),
		"Tensor.Check":     view.Check(),
		"CopyAsync source": drv.CopyAsync(device.Stream{Device: s.Device()}, device.Whole(other), device.Whole(s)),
	} {
		var fe *tensor.FreedError
		if !errors.As(err, &fe) {
			t.Errorf("%s after Free: %v", name, err)
		}
	}
	foreign := tensor.ForeignStorage(0x1000, 16, s.Device(), nil)
	var oe *device.OwnerError
	if err := drv.Free(foreign); !errors.As(err, &oe) {
		t.Errorf("Free of foreign memory: %v", err)
	}
	if err := drv.Free(nil); !errors.As(err, &oe) {
		t.Errorf("Free of nothing: %v", err)
	}
}

func testSizes(t *testing.T, drv device.Driver) {
	s, big := alloc(t, drv, 0, 8), alloc(t, drv, 0, 9)
	elsewhere := tensor.ForeignStorage(0x1000, 8, tensor.Device{Type: 12}, nil)
	for name, err := range map[string]error{
		"CopyToDevice too long": drv.CopyToDevice(s, make([]byte, 9)),
		"CopyToHost too long":   drv.CopyToHost(make([]byte, 9), s),
		"CopyDevice too long":   drv.CopyDevice(s, big),
		"CopyDevice elsewhere":  drv.CopyDevice(s, elsewhere),
		"Memset elsewhere":      drv.Memset(elsewhere, 0),
		"CopyToDevice nowhere":  drv.CopyToDevice(nil, nil),
		"CopyDevice nowhere":    drv.CopyDevice(s, nil),
		"CopyAsync nowhere":     drv.CopyAsync(device.Stream{Device: s.Device()}, device.Region{}, device.Region{}),
	} {
		var re *device.RegionError
		if !errors.As(err, &re) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := drv.Alloc(0, -1); err == nil {
		t.Error("Alloc of -1 bytes gave no error")
	}
}

func testEvents(t *testing.T, drv device.Driver) {
	a, err := drv.NewEvent(0)
	must(t, err)
	b, err := drv.NewEvent(0)
	must(t, err)
	q := device.Stream{Device: a.Device()}
	var ee *device.EventError
	if _, err := drv.Elapsed(a, b); !errors.As(err, &ee) {
		t.Errorf("Elapsed before Record: %v", err)
	}
	must(t, drv.Record(a, q))
	time.Sleep(2 * time.Millisecond)
	must(t, drv.Record(b, q))
	must(t, drv.Wait(q, a))
	must(t, drv.SynchronizeEvent(b))
	took, err := drv.Elapsed(a, b)
	must(t, err)
	if took < time.Millisecond || took > 10*time.Second {
		t.Errorf("Elapsed = %v, want about 2ms", took)
	}
	must(t, a.Close())
	if err := a.Close(); !errors.As(err, &ee) {
		t.Errorf("second Close: %v", err)
	}
	if err := drv.Record(nil, q); !errors.As(err, &ee) {
		t.Errorf("Record of no event: %v", err)
	}
	if err := drv.Record(a, q); !errors.As(err, &ee) {
		t.Errorf("Record after Close: %v", err)
	}
	must(t, b.Close())
}

func testStreams(t *testing.T, drv device.Driver) {
	for dev := range drv.Count() {
		s, err := drv.NewStream(dev)
		must(t, err)
		must(t, drv.Synchronize(s))
		must(t, drv.SynchronizeDevice(dev))
		must(t, s.Close())
	}
	var oe *device.OwnerError
	foreign := device.Stream{Device: tensor.Device{Type: 12}}
	if err := errors.Join(drv.Synchronize(foreign)); !errors.As(err, &oe) {
		t.Errorf("Synchronize of another driver's stream: %v", err)
	}
	if err := foreign.Close(); !errors.As(err, &oe) {
		t.Errorf("Close of another driver's stream: %v", err)
	}
}

// testConcurrent moves goroutines between threads and devices: a call on a thread with another
// current device would fail in a real library.
func testConcurrent(t *testing.T, drv device.Driver) {
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for round := range 25 {
				dev := (i + round) % drv.Count()
				want := pattern(512, byte(i))
				s, err := drv.Alloc(dev, 512)
				if err != nil {
					t.Error(err)
					return
				}
				got := make([]byte, 512)
				err = errors.Join(drv.CopyToDevice(s, want), drv.CopyToHost(got, s), drv.Free(s))
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("device %d: %v, equal bytes: %v", dev, err, bytes.Equal(got, want))
				}
			}
		})
	}
	wg.Wait()
}
