package device

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/tensor"
	"github.com/aiter-go/aiter/trace"
)

// host is the Driver of the CPU: one device, whose memory is on Go's heap. Work on its streams
// is complete when the call that queues it returns.
type host struct {
	info Info
	rec  *trace.Recorder // nil: nothing is recorded
}

var _ Driver = (*host)(nil)

// OpenHost returns the driver of the CPU.
func OpenHost() Driver { return openHost() }

func openHost() *host {
	return &host{info: Info{Device: tensor.Host(), Name: cpuName(os.ReadFile), Target: target.Host(), Memory: hostMemory(os.ReadFile)}}
}

func (h *host) Vendor() target.Vendor   { return target.CPU }
func (h *host) Type() tensor.DeviceType { return tensor.CPU }
func (h *host) Library() string         { return "" }
func (h *host) Count() int              { return 1 }

func (h *host) Info(dev int) (Info, error) { return h.info, checkHost(dev) }

func checkHost(dev int) error {
	if dev != 0 {
		return &IndexError{Type: tensor.CPU, Index: dev, Count: 1}
	}
	return nil
}

func (h *host) Alloc(dev int, n int64) (*tensor.Storage, error) {
	if err := checkHost(dev); err != nil {
		return nil, err
	}
	span := beginSpan(h.rec, trace.Allocate, tensor.Host(), n)
	s, err := tensor.HostStorage(n)
	span.End(err)
	return s, err
}

func (h *host) AllocHost(n int64) (*tensor.Storage, error) { return h.Alloc(0, n) }

// Free marks the storage as freed; the garbage collector frees the memory.
func (h *host) Free(s *tensor.Storage) error {
	if !s.Managed() {
		return &OwnerError{Call: "Free", What: "storage", Device: s.Device()}
	}
	span := beginSpan(h.rec, trace.Free, tensor.Host(), s.Size())
	defer span.End(nil)
	if !s.MarkFreed() {
		return s.Check()
	}
	return nil
}

// hostBytes returns the first n bytes of host memory.
func hostBytes(call string, s *tensor.Storage, n int64) ([]byte, error) {
	if !s.Device().IsHost() {
		return nil, &RegionError{Call: call, What: "memory", Got: "on " + s.Device().String(), Expected: "on the host"}
	}
	if n > s.Size() {
		return nil, sizeError(call, n, s.Size())
	}
	b, err := s.Bytes()
	if err != nil {
		return nil, err
	}
	return b[:n], nil
}

func (h *host) CopyToDevice(dst *tensor.Storage, src []byte) error {
	b, err := hostBytes("CopyToDevice", dst, int64(len(src)))
	h.copy(b, src)
	return err
}

func (h *host) CopyToHost(dst []byte, src *tensor.Storage) error {
	b, err := hostBytes("CopyToHost", src, int64(len(dst)))
	h.copy(dst, b)
	return err
}

// copy copies host memory.
func (h *host) copy(dst, src []byte) {
	span := beginSpan(h.rec, trace.Copy, tensor.Host(), int64(min(len(dst), len(src))))
	copy(dst, src)
	span.End(nil)
}

func (h *host) CopyDevice(dst, src *tensor.Storage) error {
	b, err := hostBytes("CopyDevice", src, src.Size())
	if err != nil {
		return err
	}
	return h.CopyToDevice(dst, b)
}

func (h *host) Memset(dst *tensor.Storage, value byte) error {
	b, err := hostBytes("Memset", dst, dst.Size())
	for i := range b {
		b[i] = value
	}
	return err
}

func (h *host) CopyAsync(s Stream, dst, src Region) error {
	if dst.Size != src.Size {
		return regionSizesError(dst, src)
	}
	if err := firstError(checkHostStream("CopyAsync", s), checkRegion(s, "source", src), checkRegion(s, "destination", dst)); err != nil {
		return err
	}
	to, err := hostBytes("CopyAsync", dst.Storage, dst.Offset+dst.Size)
	if err != nil {
		return err
	}
	from, err := hostBytes("CopyAsync", src.Storage, src.Offset+src.Size)
	if err != nil {
		return err
	}
	h.copy(to[dst.Offset:], from[src.Offset:])
	return nil
}

func checkHostStream(call string, s Stream) error {
	if !s.Device.IsHost() {
		return &OwnerError{Call: call, What: "stream", Device: s.Device}
	}
	return nil
}

func (h *host) NewStream(dev int) (Stream, error) {
	return Stream{Device: tensor.Host(), owner: h}, checkHost(dev)
}

func (h *host) closeStream(Stream) error        { return nil }
func (h *host) Synchronize(s Stream) error      { return checkHostStream("Synchronize", s) }
func (h *host) SynchronizeDevice(dev int) error { return checkHost(dev) }

func (h *host) NewEvent(dev int) (*Event, error) {
	if err := checkHost(dev); err != nil {
		return nil, err
	}
	return &Event{dev: tensor.Host(), owner: h}, nil
}

func (h *host) NewUntimedEvent(dev int) (*Event, error) {
	e, err := h.NewEvent(dev)
	if err == nil {
		e.untimed = true
	}
	return e, err
}

func (h *host) closeEvent(e *Event) error {
	if err := e.check("Close", tensor.CPU); err != nil {
		return err
	}
	e.destroyed.Store(true)
	return nil
}

func (h *host) Record(e *Event, s Stream) error {
	if err := firstError(e.check("Record", tensor.CPU), checkHostStream("Record", s)); err != nil {
		return err
	}
	now := time.Now()
	e.hostTime.Store(&now)
	e.recorded.Store(true)
	return nil
}

func (h *host) Wait(s Stream, e *Event) error {
	return firstError(checkHostStream("Wait", s), e.check("Wait", tensor.CPU))
}

func (h *host) SynchronizeEvent(e *Event) error { return e.check("SynchronizeEvent", tensor.CPU) }

func (h *host) Elapsed(from, to *Event) (time.Duration, error) {
	if err := checkTimed(tensor.CPU, from, to); err != nil {
		return 0, err
	}
	return to.hostTime.Load().Sub(*from.hostTime.Load()), nil
}

// Capture fails: work on the host's streams runs at once.
func (h *host) Capture(s Stream, _ CaptureMode, _ func() error) (*Graph, error) {
	return nil, &CaptureError{Device: s.Device, Reason: "graphs need a GPU: call the operator each time"}
}

// NewPool makes a pool of host memory.
func (h *host) NewPool(dev int, opts PoolOptions) (*Pool, error) {
	if err := checkHost(dev); err != nil {
		return nil, err
	}
	source := func(limit int64) *freeList { return newFreeList(limit, h.AllocHost, h.Free, nil) }
	return newPool(h, tensor.Host(), opts, source(opts.Limit), source(opts.PinnedLimit)), nil
}

// isPinned returns true: the processor accesses all host memory directly.
func (h *host) isPinned(s *tensor.Storage) bool { return s.Device().IsHost() }

func (h *host) forget(*Pool) {}

// Close does nothing.
func (h *host) Close() error { return nil }

// cpuName returns the processor's name in /proc/cpuinfo, or "cpu" if the file has none, as on
// aarch64.
func cpuName(read func(string) ([]byte, error)) string {
	text, _ := read("/proc/cpuinfo") // other systems do not have the file
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		if strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "cpu"
}

// hostMemory returns the machine's memory in bytes, 0 if unknown.
func hostMemory(read func(string) ([]byte, error)) int64 {
	text, _ := read("/proc/meminfo")
	var kib int64
	for line := range strings.Lines(string(text)) {
		if n, _ := fmt.Sscanf(line, "MemTotal: %d kB", &kib); n == 1 {
			return kib * 1024
		}
	}
	return 0
}
