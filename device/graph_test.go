package device_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/tensor"
)

// testGraphs captures a copy and runs it. The capture copies nothing, and each run copies the bytes that the source then has.
func testGraphs(t *testing.T, drv device.Driver) {
	if drv.Type() == tensor.CPU {
		var none *device.CaptureError
		s, err := drv.NewStream(0)
		must(t, err)
		if _, err := drv.Capture(s, device.CaptureGlobal, func() error { return nil }); !errors.As(err, &none) {
			t.Errorf("Capture on the host: %v", err)
		}
		return
	}
	for dev := range drv.Count() {
		for _, mode := range []device.CaptureMode{device.CaptureGlobal, device.CaptureThread, device.CaptureRelaxed} {
			testGraph(t, drv, dev, mode)
		}
	}
}

func testGraph(t *testing.T, drv device.Driver, dev int, mode device.CaptureMode) {
	s, err := drv.NewStream(dev)
	must(t, err)
	from, to := alloc(t, drv, dev, 64), alloc(t, drv, dev, 64)
	must(t, drv.CopyToDevice(from, pattern(64, 1)))
	must(t, drv.Memset(to, 0))
	graph, err := drv.Capture(s, mode, func() error { return drv.CopyAsync(s, device.Whole(to), device.Whole(from)) })
	must(t, err)
	got := make([]byte, 64)
	for seed := range byte(3) {
		must(t, drv.CopyToHost(got, to))
		if bytes.Equal(got, pattern(64, seed+1)) {
			t.Errorf("device %d, mode %d: the graph ran before its launch %d", dev, mode, seed)
		}
		must(t, drv.CopyToDevice(from, pattern(64, seed+1)))
		must(t, graph.Launch(s))
		must(t, drv.Synchronize(s))
		must(t, drv.CopyToHost(got, to))
		if !bytes.Equal(got, pattern(64, seed+1)) {
			t.Errorf("device %d, mode %d: launch %d did not copy", dev, mode, seed)
		}
	}
	boom := errors.New("boom")
	if _, err := drv.Capture(s, mode, func() error { return boom }); !errors.Is(err, boom) {
		t.Errorf("a function that fails: %v", err)
	}
	var bad *device.CaptureError
	if _, err := drv.Capture(s, mode, func() error { _ = drv.Synchronize(s); return nil }); !errors.As(err, &bad) {
		t.Errorf("a call that waits: %v", err)
	}
	must(t, drv.Synchronize(s)) // neither failure leaves the stream in capture
	if _, err := drv.Capture(device.Stream{Device: s.Device}, mode, func() error { return nil }); !errors.As(err, &bad) {
		t.Errorf("the default stream: %v", err)
	}
	var owner *device.OwnerError
	if err := graph.Launch(device.Stream{}); !errors.As(err, &owner) {
		t.Errorf("Launch on a stream of no device: %v", err)
	}
	must(t, graph.Close())
	var closed *device.ClosedError
	if err := errors.Join(graph.Close()); !errors.As(err, &closed) {
		t.Errorf("second Close: %v", err)
	}
	if err := graph.Launch(s); !errors.As(err, &closed) {
		t.Errorf("Launch after Close: %v", err)
	}
	must(t, s.Close())
}

// A panic inside the function ends the capture. Close of the driver destroys the graphs that are left. With a library that
// has no graphs only Capture fails.
func TestGraphsOfFakes(t *testing.T) {
	lib := fake(t, "fakehip")
	drv, err := device.OpenHIP(lib)
	must(t, err)
	s, err := drv.NewStream(1)
	must(t, err)
	func() {
		defer func() { _ = recover() }()
		_, _ = drv.Capture(s, device.CaptureGlobal, func() error { panic("boom") })
	}()
	must(t, drv.Synchronize(s))
	graph, err := drv.Capture(s, device.CaptureGlobal, func() error { return nil })
	must(t, err)
	must(t, drv.Close())
	if n := callFake(t, lib, "fake_alive"); n != 0 {
		t.Errorf("%d objects alive after Close", n)
	}
	var closed *device.ClosedError
	if err := graph.Launch(s); !errors.As(err, &closed) {
		t.Errorf("Launch after Close of the driver: %v", err)
	}
	old := openFake(t, device.OpenHIP, fake(t, "fakehip", "-DNO_GRAPHS"))
	if s, err = old.NewStream(0); err != nil {
		t.Fatal(err)
	}
	var none *device.CaptureError
	if _, err := old.Capture(s, device.CaptureGlobal, func() error { return nil }); !errors.As(err, &none) {
		t.Errorf("a library without graphs: %v", err)
	}
}

// The steps of a graph, as the fake libraries number them.
const (
	begin = iota + 1
	end
	instantiate
	destroyGraph
	launch
	destroyExec
)

// The calls come in the order that HIP and CUDA demand. After a call that fails, the objects that exist are destroyed, and the
// stream can be used.
func TestGraphSteps(t *testing.T) {
	for name, open := range map[string]opener{"fakehip": device.OpenHIP, "fakecuda": device.OpenCUDA} {
		t.Run(name, func(t *testing.T) {
			lib := fake(t, name)
			drv := openFake(t, open, lib)
			s, err := drv.NewStream(1)
			must(t, err)
			nothing := func() error { return nil }
			for _, c := range []struct{ fail, steps int }{{begin, 1}, {end, 12}, {instantiate, 1234}, {destroyGraph, 12346}} {
				callFake(t, lib, "fake_fail", uintptr(c.fail))
				var bad *device.CaptureError
				var cause *device.Error
				if _, err := drv.Capture(s, device.CaptureGlobal, nothing); !errors.As(err, &bad) || !errors.As(err, &cause) {
					t.Errorf("step %d fails: %v", c.fail, err)
				}
				if got := callFake(t, lib, "fake_steps"); got != c.steps {
					t.Errorf("step %d fails: steps %d, want %d", c.fail, got, c.steps)
				}
			}
			if _, err := drv.Capture(s, device.CaptureGlobal, func() error { return errors.ErrUnsupported }); !errors.Is(err,
				errors.ErrUnsupported) {
				t.Error(err)
			}
			if got := callFake(t, lib, "fake_steps"); got != 124 {
				t.Errorf("the function fails: steps %d", got)
			}
			graph, err := drv.Capture(s, device.CaptureGlobal, nothing)
			must(t, err)
			var cause *device.Error
			callFake(t, lib, "fake_fail", launch)
			if err := graph.Launch(s); !errors.As(err, &cause) {
				t.Errorf("Launch: %v", err)
			}
			must(t, graph.Launch(s))
			callFake(t, lib, "fake_fail", destroyExec)
			if err := graph.Close(); !errors.As(err, &cause) {
				t.Errorf("Close: %v", err)
			}
			if got := callFake(t, lib, "fake_steps"); got != 1234556 {
				t.Errorf("steps %d, want 1234556", got)
			}
		})
	}
}

// TestCopy copies between tensors on the host and on devices, with and without a stream.
func TestCopy(t *testing.T) {
	d, devs := all(t)
	base, err := tensor.Of([]float32{1, 2, 3, 4, 5, 6}, 3, 2)
	must(t, err)
	part, err := base.Slice(0, 1, 3) // with an offset
	must(t, err)
	for _, from := range devs {
		for _, to := range devs {
			for _, on := range []tensor.Device{{}, from, to} {
				ctx := t.Context()
				if on != (tensor.Device{}) {
					drv, err := d.Driver(on.Type)
					must(t, err)
					s, err := drv.NewStream(int(on.ID))
					must(t, err)
					ctx = device.WithStream(ctx, s)
				}
				there, err := d.Upload(t.Context(), part, from)
				must(t, err)
				dst, err := d.New(to, tensor.Float32, 2, 2)
				must(t, err)
				err = d.Copy(ctx, dst, there)
				if apart := !from.IsHost() && !to.IsHost() && from != to || on.IsHost() && (!from.IsHost() || !to.IsHost()); apart &&
					on != (tensor.Device{}) {
					if err == nil {
						t.Errorf("%s to %s on a stream of %s: no error", from, to, on)
					}
					continue
				}
				must(t, err)
				back, err := d.Download(t.Context(), dst)
				must(t, err)
				if got, err := tensor.Data[float32](back); err != nil || got[0] != 3 || got[3] != 6 {
					t.Errorf("%s to %s on %s: %v, %v", from, to, on, got, err)
				}
				must(t, errors.Join(d.Free(there), d.Free(dst)))
			}
		}
	}
}

func TestCopyErrors(t *testing.T) {
	d, devs := all(t)
	x, err := tensor.Of([]float32{1, 2, 3, 4}, 2, 2)
	must(t, err)
	turned, err := x.Transpose(0, 1)
	must(t, err)
	over, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("the request ended")
	cancel(cause)
	for _, dev := range devs {
		on := func(dt tensor.DType, shape ...int64) *tensor.Tensor {
			y, err := d.New(dev, dt, shape...)
			must(t, err)
			return y
		}
		if err := d.Copy(t.Context(), on(tensor.Int32, 2, 2), x); !errors.As(err, new(*tensor.ElementError)) {
			t.Errorf("another type: %v", err)
		}
		want := "shape [2 2]: expected [4], the shape of the destination"
		if err := d.Copy(t.Context(), on(tensor.Float32, 4), x); !errors.As(err, new(*tensor.ShapeError)) || err.Error() != want {
			t.Errorf("another shape: %v, want %s", err, want)
		}
		if err := d.Copy(t.Context(), on(tensor.Float32, 2, 2), turned); !errors.As(err, new(*tensor.LayoutError)) {
			t.Errorf("not contiguous: %v", err)
		}
		gone := on(tensor.Float32, 2, 2)
		must(t, d.Free(gone))
		if err := d.Copy(t.Context(), gone, x); !errors.As(err, new(*tensor.FreedError)) {
			t.Errorf("freed: %v", err)
		}
		y := on(tensor.Float32, 2, 2)
		must(t, d.Copy(t.Context(), y, x))
		_, errUp := d.Upload(over, x, dev)
		_, errDown := d.Download(over, y)
		for name, err := range map[string]error{"Copy": d.Copy(over, y, x), "Upload": errUp, "Download": errDown} {
			if !errors.Is(err, cause) {
				t.Errorf("%s with a context that has ended: %v", name, err)
			}
		}
	}
}

func TestAllAndDefault(t *testing.T) {
	d, devs := all(t)
	infos, err := d.All()
	must(t, err)
	var got []tensor.Device
	for _, info := range infos {
		got = append(got, info.Device)
		if info.Name == "" || info.Memory == 0 || info.Target.String() == "" || info.Units == 0 && !info.Device.IsHost() {
			t.Errorf("%+v", info)
		}
	}
	if len(got) != len(devs) || got[len(got)-1] != tensor.Host() || got[0] != (tensor.Device{Type: tensor.ROCM}) {
		t.Errorf("All lists %v", got)
	}
	if dev := d.Default(); dev != got[0] {
		t.Errorf("Default is %s", dev)
	}
	none := devices(t, device.Options{})
	if infos, err := none.All(); err != nil || len(infos) != 1 || none.Default() != tensor.Host() {
		t.Errorf("without GPUs: %v, %v, %s", infos, err, none.Default())
	}
}

func TestNewPinned(t *testing.T) {
	d, devs := all(t)
	for _, dev := range devs {
		x, err := d.NewPinned(dev, tensor.Float32, 2, 2)
		must(t, err)
		must(t, x.SetFloat64s([]float64{1, 2, 3, 4}))
		there, err := d.Upload(t.Context(), x, dev)
		must(t, err)
		back, err := d.NewPinned(dev, tensor.Float32, 2, 2)
		must(t, err)
		must(t, d.Copy(t.Context(), back, there))
		if got, err := tensor.Data[float32](back); err != nil || got[3] != 4 {
			t.Errorf("%s: %v, %v", dev, got, err)
		}
		must(t, errors.Join(d.Free(x), d.Free(back), d.Free(there)))
		if err := d.Free(x); !errors.As(err, new(*tensor.FreedError)) {
			t.Errorf("%s: second Free: %v", dev, err)
		}
	}
	foreign, err := tensor.View(tensor.ForeignStorage(0x1000, 16, tensor.Host(), nil), tensor.Float32, []int64{4}, nil, 0)
	must(t, err)
	if err := d.Free(foreign); !errors.As(err, new(*device.OwnerError)) {
		t.Errorf("memory that no driver allocated: %v", err)
	}
}
