package device_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/tensor"
)

func newPool(t testing.TB, drv device.Driver, opts device.PoolOptions) *device.Pool {
	t.Helper()
	p, err := drv.NewPool(0, opts)
	must(t, err)
	t.Cleanup(func() { must(t, p.Close()) })
	return p
}

// testPool tests a pool: the second of two equal rounds allocates nothing from the driver.
func testPool(t *testing.T, drv device.Driver) {
	for name, opts := range map[string]device.PoolOptions{"vendor's": {}, "managed": {Managed: true}} {
		p := newPool(t, drv, opts)
		s, err := drv.NewStream(0)
		must(t, err)
		round := func() {
			a, err := p.Alloc(s, 100001)
			must(t, err)
			b, err := p.Alloc(s, 5000)
			must(t, err)
			pinned, err := p.AllocPinned(100001)
			must(t, err)
			if a.Size() != 100001 || a.Device() != p.Device() || !pinned.Device().IsHost() || !p.Pinned(pinned) {
				t.Errorf("%s: a storage of %d bytes on %s", name, a.Size(), a.Device())
			}
			mem, err := pinned.Bytes()
			must(t, err)
			copy(mem, pattern(100001, 3))
			must(t, drv.CopyAsync(s, device.Whole(a), device.Whole(pinned)))
			clearPinned := func() { must(t, drv.Synchronize(s)); clear(mem) }
			clearPinned()
			must(t, drv.CopyAsync(s, device.Whole(pinned), device.Whole(a)))
			must(t, drv.Synchronize(s))
			if string(mem) != string(pattern(100001, 3)) {
				t.Errorf("%s: the bytes came back changed", name)
			}
			must(t, errors.Join(p.Free(s, a), p.Free(s, b), p.Free(s, pinned)))
		}
		round()
		first := p.Stats()
		round()
		again := p.Stats()
		if first.Device.Allocations == 0 || first.Pinned.Allocations != 1 || first.Device.InUse != 0 || first.Device.Peak != 105001 {
			t.Errorf("%s: after one round: %+v", name, first)
		}
		if again.Device.Allocations != first.Device.Allocations || again.Pinned.Allocations != 1 ||
			again.Device.Reused != first.Device.Reused+2 || again.Pinned.Reused != 1 || again.Device.Held < 105001 {
			t.Errorf("%s: after two rounds: %+v", name, again)
		}
		must(t, p.Trim())
		if held := p.Stats(); held.Device.Held != 0 || held.Pinned.Held != 0 {
			t.Errorf("%s: after Trim: %+v", name, held)
		}
		must(t, s.Close())
	}
}

func TestPoolErrors(t *testing.T) {
	for name, drv := range map[string]device.Driver{
		"hip":               openFake(t, device.OpenHIP, fake(t, "fakehip")),
		"hip without pools": openFake(t, device.OpenHIP, fake(t, "fakehip", "-DNO_POOLS")),
		"cuda":              openFake(t, device.OpenCUDA, fake(t, "fakecuda")), "host": device.OpenHost(),
	} {
		p := newPool(t, drv, device.PoolOptions{Limit: 1000, PinnedLimit: 10000})
		s := device.Stream{Device: p.Device()}
		a, err := p.Alloc(s, 600)
		must(t, err)
		pinned, err := p.AllocPinned(8000)
		must(t, err)
		var limit *device.PoolLimitError
		if _, err := p.Alloc(s, 401); !errors.As(err, &limit) || limit.InUse != 600 || limit.Most != 1000 || limit.Pinned {
			t.Errorf("%s: beyond the limit: %v", name, err)
		}
		if _, err := p.AllocPinned(4000); !errors.As(err, &limit) || !limit.Pinned {
			t.Errorf("%s: beyond the limit of pinned memory: %v", name, err)
		}
		empty, err := p.Alloc(s, 0)
		must(t, errors.Join(err, p.Free(s, a), p.Free(s, empty)))
		var freed *tensor.FreedError
		if err := p.Free(s, a); !errors.As(err, &freed) {
			t.Errorf("%s: second Free: %v", name, err)
		}
		var owner *device.OwnerError
		if _, err := p.Alloc(device.Stream{Device: tensor.Device{Type: 12}}, 8); !errors.As(err, &owner) {
			t.Errorf("%s: a stream of another device: %v", name, err)
		}
		own := alloc(t, drv, 0, 8)
		if err := p.Free(s, own); !errors.As(err, &owner) {
			t.Errorf("%s: memory of the driver: %v", name, err)
		}
		if err := drv.Free(pinned); !errors.As(err, &owner) {
			t.Errorf("%s: the driver freed memory of the pool: %v", name, err)
		}
		must(t, p.Close())
		var closed *device.ClosedError
		want := device.MemoryStats{Peak: 8000, Allocations: 1}
		if _, err := p.Alloc(s, 8); !errors.As(err, &closed) || !pinned.Freed() || p.Stats().Pinned != want {
			t.Errorf("%s: after Close: %v, %+v", name, err, p.Stats())
		}
	}
}

// Close of a driver frees all memory of the pools that are open.
func TestCloseOfTheDriverClosesPools(t *testing.T) {
	for name, c := range map[string]struct {
		open opener
		lib  string
	}{
		"hip": {device.OpenHIP, fake(t, "fakehip")}, "old": {device.OpenHIP, fake(t, "fakehip", "-DNO_POOLS")},
		"cuda": {device.OpenCUDA, fake(t, "fakecuda")},
	} {
		drv := openFake(t, c.open, c.lib)
		p, err := drv.NewPool(1, device.PoolOptions{})
		must(t, err)
		for range 3 {
			_, err := p.Alloc(device.Stream{Device: p.Device()}, 64)
			must(t, err)
			_, err = p.AllocPinned(64)
			must(t, err)
		}
		must(t, drv.Close())
		if n := callFake(t, c.lib, "fake_alive"); n != 0 {
			t.Errorf("%s: %d objects alive after Close", name, n)
		}
		must(t, p.Close())
		var closed *device.ClosedError
		if _, err := drv.NewPool(0, device.PoolOptions{}); !errors.As(err, &closed) {
			t.Errorf("%s: a pool of a closed driver: %v", name, err)
		}
	}
}

// After a call of the runtime that fails, and after the loss of the device at some call, no memory is in use.
func TestPoolOfAFailingDriver(t *testing.T) {
	lib := fake(t, "fakehip")
	drv := openFake(t, device.OpenHIP, lib)
	s, err := drv.NewStream(0)
	must(t, err)
	alive := callFake(t, lib, "fake_alive")
	use := func() error {
		p, err := drv.NewPool(0, device.PoolOptions{})
		if err != nil {
			return err
		}
		defer p.Close()
		a, err := p.Alloc(s, 64)
		if err == nil {
			err = p.Free(s, a)
		}
		b, errPinned := p.AllocPinned(64)
		if errPinned == nil {
			errPinned = p.Free(s, b)
		}
		if now := p.Stats(); now.Device.InUse != 0 || now.Pinned.InUse != 0 {
			t.Errorf("in use: %+v", now)
		}
		return errors.Join(err, errPinned, p.Close())
	}
	callFake(t, lib, "fake_fail_at", 0, 0)
	must(t, use())
	for _, lost := range []uintptr{0, 1} {
		for at := 1; at <= callFake(t, lib, "fake_calls")+20; at++ {
			callFake(t, lib, "fake_fail_at", uintptr(at), lost)
			err := use()
			if callFake(t, lib, "fake_calls") < at {
				break
			}
			var e *device.Error
			if !errors.As(err, &e) || e.Code != 719 {
				t.Errorf("call %d fails: %v", at, err)
			}
			// Only what the failed call itself should have freed may stay.
			if left := callFake(t, lib, "fake_alive") - alive; lost == 0 && left > 1 {
				t.Errorf("call %d fails: %d objects stay", at, left)
			}
			alive = callFake(t, lib, "fake_alive")
		}
	}
	callFake(t, lib, "fake_fail_at", 0, 0)
}

func TestPoolConcurrent(t *testing.T) {
	lib := fake(t, "fakecuda")
	drv := openFake(t, device.OpenCUDA, lib)
	p := newPool(t, drv, device.PoolOptions{})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			s, err := drv.NewStream(0)
			if err != nil {
				t.Error(err)
				return
			}
			for n := range int64(50) {
				a, err := p.Alloc(s, 64*n)
				b, err2 := p.AllocPinned(64*n + int64(i))
				if err := errors.Join(err, err2, drv.Synchronize(s), p.Free(s, a), p.Free(s, b)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if now := p.Stats(); now.Device.InUse != 0 || now.Pinned.InUse != 0 || now.Device.Allocations+now.Device.Reused != 8*49 {
		t.Errorf("%+v", now)
	}
}
