package device_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/tensor"
	"github.com/aiter-go/aiter/trace"
)

// tracedDevices opens the devices of a fake library with a recorder.
func tracedDevices(t testing.TB, kind tensor.DeviceType) (*device.Devices, *trace.Recorder) {
	t.Helper()
	none := []string{"none"}
	o := device.Options{Trace: trace.New(trace.Options{}), KFD: fstest.MapFS{}, HIPLibraries: none, CUDALibraries: none}
	switch kind {
	case tensor.ROCM:
		o.HIPLibraries = []string{fake(t, "fakehip")}
	case tensor.CUDA:
		o.CUDALibraries = []string{fake(t, "fakecuda")}
	}
	d, err := device.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d, o.Trace
}

// kindsOf lists the kinds of the spans of the host, or of streams.
func kindsOf(line *trace.Timeline, host bool) []trace.Kind {
	var list []trace.Kind
	for _, s := range line.Spans {
		if (s.Track.Device == "") == host {
			list = append(list, s.Kind)
		}
	}
	return list
}

func ok(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// Allocations, blocking copies, and copies and launches on a stream are in the timeline, on the host and on the stream.
func TestTrace(t *testing.T) {
	for _, kind := range []tensor.DeviceType{tensor.ROCM, tensor.CUDA} {
		d, rec := tracedDevices(t, kind)
		dev := tensor.Device{Type: kind}
		ones, err := tensor.Of(make([]float32, 64), 64)
		ok(t, err)
		x, err := d.Upload(t.Context(), ones, dev)
		ok(t, err)
		_, err = d.Download(t.Context(), x)
		ok(t, err)
		drv, err := d.Driver(kind)
		ok(t, err)
		s, err := drv.NewStream(0)
		ok(t, err)
		rec.Reset()

		pinned, err := d.NewPinned(dev, tensor.Float32, 64)
		ok(t, err)
		y, err := d.New(dev, tensor.Float32, 64)
		ok(t, err)
		onStream := device.WithStream(t.Context(), s)
		ok(t, d.Copy(onStream, y, pinned))
		ok(t, d.Launch(s, trace.Span{Kind: trace.Kernel, Name: "op"}, func() error { return d.Copy(onStream, y, x) }))
		ok(t, d.Copy(onStream, pinned, y), drv.Synchronize(s), drv.CopyToDevice(y.Storage(), make([]byte, 8)),
			drv.CopyToHost(make([]byte, 8), y.Storage()), d.Free(y), d.Free(pinned))
		line := rec.Timeline()
		host := []trace.Kind{trace.Allocate, trace.Allocate, trace.Queue, trace.Launch, trace.Queue, trace.Queue, trace.Wait,
			trace.Upload, trace.Download, trace.Free, trace.Free}
		if got := kindsOf(line, true); !slices.Equal(got, host) {
			t.Errorf("%s: the host did %v, want %v", kind, got, host)
		}
		work := kindsOf(line, false)
		slices.Sort(work)
		if want := []trace.Kind{trace.Copy, trace.Download, trace.Kernel, trace.Upload}; !slices.Equal(work, want) {
			t.Errorf("%s: the stream did %v, want %v", kind, work, want)
		}
		checkTrace(t, line, dev, s)
	}
}

// checkTrace verifies the sizes and devices of spans, and that each span of a stream belongs to an earlier one of the host.
func checkTrace(t *testing.T, line *trace.Timeline, dev tensor.Device, s device.Stream) {
	t.Helper()
	queued := map[uint64]trace.Span{}
	for _, span := range line.Spans {
		if span.Track.Device == "" && span.Flow != 0 {
			queued[span.Flow] = span
		}
	}
	for _, span := range line.Spans {
		if moved := span.Kind == trace.Upload || span.Kind == trace.Download; span.Device == "" || moved && span.Bytes != 256 && span.Bytes != 8 {
			t.Errorf("a span has device %q and %d bytes: %+v", span.Device, span.Bytes, span)
		}
		if span.Track.Device == "" {
			continue
		}
		if want := (trace.Track{Device: dev.String(), ID: uint64(s.Handle)}); span.Track != want || span.Start < queued[span.Flow].Start ||
			queued[span.Flow].Flow == 0 {
			t.Errorf("%+v is on another track than %v, or before %+v", span, want, queued[span.Flow])
		}
	}
}

// On the CPU the launch does the work, which has a span of its own. A function that fails has no span of work.
func TestTraceHost(t *testing.T) {
	d, rec := tracedDevices(t, tensor.CPU)
	s := device.Stream{Device: tensor.Host()}
	refused := errors.New("refused")
	ok(t, d.Launch(s, trace.Span{Kind: trace.Kernel, Name: "op", Call: 7}, func() error { return nil }))
	if err := d.Launch(s, trace.Span{Kind: trace.Kernel, Name: "op"}, func() error { return refused }); !errors.Is(err, refused) {
		t.Errorf("error %v", err)
	}
	x, err := d.New(tensor.Host(), tensor.Float32, 4)
	ok(t, err)
	y, err := d.Download(t.Context(), x)
	ok(t, err)
	ok(t, d.Free(y))
	line := rec.Timeline()
	want := []trace.Kind{trace.Launch, trace.Launch, trace.Allocate, trace.Allocate, trace.Copy, trace.Free}
	if got := kindsOf(line, true); !slices.Equal(got, want) {
		t.Errorf("the host did %v, want %v", got, want)
	}
	if got := kindsOf(line, false); !slices.Equal(got, []trace.Kind{trace.Kernel}) || line.Spans[0].Call != 7 {
		t.Errorf("the CPU did %v for %+v", got, line.Spans[0])
	}
}

// Nothing is measured while a stream is captured. The launch of the graph is measured.
func TestTraceCapture(t *testing.T) {
	d, rec := tracedDevices(t, tensor.CUDA)
	dev := tensor.Device{Type: tensor.CUDA}
	drv, err := d.Driver(dev.Type)
	ok(t, err)
	s, err := drv.NewStream(0)
	ok(t, err)
	x, err := d.New(dev, tensor.Float32, 64)
	ok(t, err)
	y, err := d.New(dev, tensor.Float32, 64)
	ok(t, err)
	graph, err := drv.Capture(s, device.CaptureGlobal, func() error {
		if len(kindsOf(rec.Timeline(), false)) != 0 {
			t.Error("the timeline has work of the device before any was queued")
		}
		return d.Copy(device.WithStream(t.Context(), s), y, x)
	})
	ok(t, err)
	if got := kindsOf(rec.Timeline(), false); len(got) != 0 {
		t.Errorf("work of the capture was measured: %v", got)
	}
	ok(t, graph.Launch(s))
	if got := kindsOf(rec.Timeline(), false); !slices.Equal(got, []trace.Kind{trace.Kernel}) {
		t.Errorf("the launch of the graph has %v", got)
	}
}

// Several goroutines launch more work than may be pending. All of it is measured, and Close destroys all events.
func TestTraceManyLaunches(t *testing.T) {
	d, rec := tracedDevices(t, tensor.CUDA)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 600 {
				if err := d.Launch(device.Stream{Device: tensor.Device{Type: tensor.CUDA}}, trace.Span{Kind: trace.Kernel},
					func() error { return nil }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := len(kindsOf(rec.Timeline(), false)); got != 2400 {
		t.Errorf("%d kernels, want 2400", got)
	}
	ok(t, d.Close())
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}
