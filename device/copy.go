package device

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/aiter-go/aiter/tensor"
)

// Upload copies the whole storage of t to new memory of dev and returns a view of the copy with t's
// shape, strides and offset. It copies even if t is on dev. Free frees the memory. With a stream in ctx
// the copy is queued on it; else it is complete when Upload returns, and so is all work that was queued
// before on default streams and streams of NewStream.
//
// A context that has ended is an error, and nothing is allocated. The other errors are those of Driver, and
// of the driver's Alloc and copies.
func (d *Devices) Upload(ctx context.Context, t *tensor.Tensor, dev tensor.Device) (*tensor.Tensor, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("copy %s to %s: %w", t, dev, err)
	}
	drv, err := d.Driver(dev.Type)
	if err != nil {
		return nil, err
	}
	src := t.Storage()
	dst, err := drv.Alloc(int(dev.ID), src.Size())
	if err != nil {
		return nil, fmt.Errorf("copy %s to %s: %w", t, dev, err)
	}
	if s, ok := StreamFrom(ctx); ok {
		err = d.queueCopy(s, Whole(dst), Whole(src))
	} else {
		err = d.copyStorage(drv, dst, src)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("copy %s to %s: %w", t, dev, err), drv.Free(dst))
	}
	return tensor.View(dst, t.DType(), t.Shape(), t.Strides(), t.Offset())
}

// Download copies t to new memory of the host, as Upload does. With a stream in ctx the elements may be
// read after [Queue.Synchronize].
func (d *Devices) Download(ctx context.Context, t *tensor.Tensor) (*tensor.Tensor, error) {
	return d.Upload(ctx, t, tensor.Host())
}

// Copy copies the elements of src to dst, on any devices. It allocates no device memory. Both tensors are
// contiguous and have the same element type and shape. With a stream in ctx the copy is queued on it; else
// it is complete when Copy returns. A context that has ended is an error, and nothing is copied. The other
// errors are *tensor.ShapeError, *tensor.ElementError, *tensor.LayoutError, and those of the driver's copies.
func (d *Devices) Copy(ctx context.Context, dst, src *tensor.Tensor) error {
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("copy %s to %s: %w", src, dst, err)
	}
	to, from, err := regionsOf(dst, src)
	if err != nil {
		return err
	}
	if s, ok := StreamFrom(ctx); ok {
		return d.queueCopy(s, to, from)
	}
	gpu := dst.Device()
	if gpu.IsHost() {
		gpu = src.Device()
	}
	if !src.Device().IsHost() && src.Device() != gpu {
		return d.copyThroughHost(dst, src)
	}
	drv, err := d.Driver(gpu.Type)
	if err != nil {
		return err
	}
	queue := Stream{Device: gpu}
	if err := drv.CopyAsync(queue, to, from); err != nil {
		return err
	}
	return drv.Synchronize(queue)
}

// regionsOf returns the regions of two tensors. It fails if Copy cannot copy from src to dst.
func regionsOf(dst, src *tensor.Tensor) (to, from Region, err error) {
	if dst.DType() != src.DType() {
		return to, from, &tensor.ElementError{DType: src.DType(), Want: dst.DType().String()}
	}
	if to, err = regionOf(dst); err != nil {
		return to, from, err
	}
	if from, err = regionOf(src); err != nil {
		return to, from, err
	}
	if !slices.Equal(dst.Shape(), src.Shape()) {
		err = &tensor.ShapeError{Shape: src.Shape(), Reason: fmt.Sprintf("expected %v, the shape of the destination", dst.Shape())}
	}
	return to, from, err
}

// regionOf returns the region of a contiguous tensor. The error for another one is a *tensor.LayoutError.
func regionOf(t *tensor.Tensor) (Region, error) {
	if !t.Contiguous() {
		return Region{}, &tensor.LayoutError{Shape: t.Shape(), Strides: t.Strides()}
	}
	return Region{Storage: t.Storage(), Offset: t.ByteOffset(), Size: t.Numel() * t.DType().Size()}, t.Check()
}

// queueCopy queues a copy on a stream.
func (d *Devices) queueCopy(s Stream, dst, src Region) error {
	drv, err := d.Driver(s.Device.Type)
	if err != nil {
		return err
	}
	return drv.CopyAsync(s, dst, src)
}

// copyThroughHost copies from one GPU to another by way of host memory, and waits for the copy.
func (d *Devices) copyThroughHost(dst, src *tensor.Tensor) error {
	host, err := tensor.New(src.DType(), src.Shape()...)
	if err != nil {
		return err
	}
	if err := d.Copy(context.Background(), host, src); err != nil {
		return err
	}
	return d.Copy(context.Background(), dst, host)
}

// copyStorage copies all of src to the beginning of dst. Between devices of two vendors the bytes
// pass through the host.
func (d *Devices) copyStorage(to Driver, dst, src *tensor.Storage) error {
	if src.Device().Type == to.Type() {
		return to.CopyDevice(dst, src)
	}
	if src.Device().IsHost() {
		bytes, err := src.Bytes()
		if err != nil {
			return err
		}
		return to.CopyToDevice(dst, bytes)
	}
	from, err := d.Driver(src.Device().Type)
	if err != nil {
		return err
	}
	if dst.Device().IsHost() {
		bytes, err := dst.Bytes()
		if err != nil {
			return err
		}
		return from.CopyToHost(bytes, src)
	}
	bytes := make([]byte, src.Size())
	if err := from.CopyToHost(bytes, src); err != nil {
		return err
	}
	return to.CopyToDevice(dst, bytes)
}
