package device

import (
	"github.com/aiter-go/aiter/tensor"
	"github.com/aiter-go/aiter/trace"
)

// beginSpan begins a span of the host for a device. Without a recorder it only tests a pointer.
func beginSpan(rec *trace.Recorder, k trace.Kind, dev tensor.Device, bytes int64) trace.Active {
	if !rec.Recording() {
		return trace.Active{}
	}
	a := rec.Begin(k, "")
	a.Device, a.Bytes = dev.String(), bytes
	return a
}

// kindOfCopy returns the kind of a blocking copy, by the name of its method.
func kindOfCopy(call string) trace.Kind {
	switch call {
	case "CopyToDevice":
		return trace.Upload
	case "CopyToHost":
		return trace.Download
	}
	return trace.Copy
}

// copySpan describes a copy on a stream.
func copySpan(dst, src Region) trace.Span {
	span := trace.Span{Kind: trace.Copy, Bytes: dst.Size}
	switch from, to := src.Storage.Device(), dst.Storage.Device(); {
	case from.IsHost() && !to.IsHost():
		span.Kind = trace.Upload
	case !from.IsHost() && to.IsHost():
		span.Kind = trace.Download
	}
	return span
}

// Launch runs a function that queues work on a stream; on the CPU the function does the work. Launch records the function as a
// span of the host and the work as a span of the device, with the kind, the name and the call of work. The device measures the
// work with two events, except while a stream is captured. Without a recorder, or while it is paused, Launch only runs the
// function. Its error is that of the function.
func (d *Devices) Launch(s Stream, work trace.Span, queue func() error) error {
	rec := d.opts.Trace
	if !rec.Recording() {
		return queue()
	}
	drv, err := d.Driver(s.Device.Type)
	if err != nil {
		return err
	}
	if g, ok := drv.(*gpu); ok {
		return g.launch(s, trace.Launch, work, queue)
	}
	span := beginSpan(rec, trace.Launch, s.Device, 0)
	span.Name, span.Call, span.Flow = work.Name, work.Call, rec.NewID()
	err = queue()
	work.Device, work.Flow, work.Start, work.Length = s.Device.String(), span.Flow, span.Start, rec.Now()-span.Start
	work.Track = trace.Track{Device: work.Device}
	span.End(err)
	if err == nil {
		rec.Add(work)
	}
	return err
}

// queued runs a function that queues a copy or a graph, and records it.
func (g *gpu) queued(s Stream, work trace.Span, queue func() error) error {
	if g.trace == nil || !g.trace.rec.Recording() {
		return queue()
	}
	return g.launch(s, trace.Queue, work, queue)
}

// launch runs a function that queues work, and records a span of the host and one of the device.
func (g *gpu) launch(s Stream, k trace.Kind, work trace.Span, queue func() error) error {
	t := g.trace
	work.Device, work.Flow = s.Device.String(), t.rec.NewID()
	work.Track = trace.Track{Device: work.Device, ID: uint64(s.Handle)}
	end := t.measure(s)
	span := beginSpan(t.rec, k, s.Device, work.Bytes)
	span.Name, span.Call, span.Flow = work.Name, work.Call, work.Flow
	if k == trace.Queue && work.Name == "" {
		span.Name = string(work.Kind)
	}
	err := queue()
	span.End(err)
	end(work, err)
	return err
}
