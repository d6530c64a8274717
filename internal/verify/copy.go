package verify

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/tensor"
)

// alignment is the alignment, in bytes, that a copy preserves: the addresses of a tensor and of its copy
// have the same remainder modulo alignment, because kernels select their code by alignment.
const alignment = 64

// Copy copies tensors of one device to the host, each with its shape and strides, and
// returns the copies in the same order; nil stays nil. It copies all bytes from a
// tensor's first element in memory to its last. Tensors that share memory share it in the
// copies too. Work on streams other than the driver's own must be complete. The errors are
// those of the device's driver and a *tensor.MemoryError.
func Copy(devices *device.Devices, tensors []*tensor.Tensor) ([]*tensor.Tensor, error) {
	defer runtime.KeepAlive(tensors)
	ranges := merge(tensors)
	for i := range ranges {
		if err := ranges[i].copyToHost(devices); err != nil {
			return nil, fmt.Errorf("copy %d bytes from %s to the host: %w", ranges[i].size(), ranges[i].dev, err)
		}
	}
	out := make([]*tensor.Tensor, len(tensors))
	for i, t := range tensors {
		if t == nil {
			continue
		}
		var err error
		if out[i], err = view(t, ranges); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// addressRange is a range of addresses, [first, end), on a device.
type addressRange struct {
	dev        tensor.Device
	first, end uintptr
	host       *tensor.Storage // contains the copy; see copyToHost
	lead       uintptr         // offset of the copy in host, in bytes
}

func (r *addressRange) size() int64 { return int64(r.end - r.first) }

// copyToHost copies the range to new host memory.
func (r *addressRange) copyToHost(devices *device.Devices) error {
	drv, err := devices.Driver(r.dev.Type)
	if err != nil {
		return err
	}
	r.lead = r.first % alignment
	if r.host, err = tensor.HostStorage(r.size() + int64(r.lead)); err != nil {
		return err
	}
	bytes, err := r.host.Bytes()
	if err != nil {
		return err
	}
	return drv.CopyToHost(bytes[r.lead:], tensor.ForeignStorage(r.first, r.size(), r.dev, nil))
}

// addressRangeOf returns the range of addresses of t's elements. t must have elements.
func addressRangeOf(t *tensor.Tensor) addressRange {
	size := t.DType().Size()
	low, high := int64(0), size
	for i := range t.Rank() {
		step := (t.Dim(i) - 1) * t.Stride(i) * size
		low, high = low+min(step, 0), high+max(step, 0)
	}
	return addressRange{dev: t.Device(), first: t.Ptr() + uintptr(low), end: t.Ptr() + uintptr(high)}
}

// merge returns the ranges of all tensors, sorted. Overlapping ranges become one.
func merge(tensors []*tensor.Tensor) []addressRange {
	var all []addressRange
	for _, t := range tensors {
		if t != nil && t.Numel() > 0 {
			all = append(all, addressRangeOf(t))
		}
	}
	slices.SortFunc(all, func(a, b addressRange) int { return cmp.Compare(a.first, b.first) })
	var out []addressRange
	for _, e := range all {
		if n := len(out); n > 0 && e.first < out[n-1].end {
			out[n-1].end = max(out[n-1].end, e.end)
			continue
		}
		out = append(out, e)
	}
	return out
}

// view returns the tensor like t in the host's copy of its address range.
func view(t *tensor.Tensor, ranges []addressRange) (*tensor.Tensor, error) {
	if t.Numel() == 0 {
		none, err := tensor.HostStorage(0)
		if err != nil {
			return nil, err
		}
		return tensor.View(none, t.DType(), t.Shape(), t.Strides(), 0)
	}
	mine := addressRangeOf(t)
	i := slices.IndexFunc(ranges, func(e addressRange) bool { return e.first <= mine.first && mine.end <= e.end })
	e := &ranges[i]
	at := e.host.Ptr() + e.lead + (mine.first - e.first)
	part := tensor.ForeignStorage(at, mine.size(), tensor.Host(), e.host)
	return tensor.View(part, t.DType(), t.Shape(), t.Strides(), int64(t.Ptr()-mine.first)/t.DType().Size())
}
