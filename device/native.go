package device

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/tensor"
)

// Native returns the targets of this machine's GPUs, each once: AMD's first, in device order.
// Without a GPU it returns cpu. It starts no process, and reads the files of AMD's kernel driver
// instead of loading the HIP library. A vendor library that is missing or finds no device counts
// as no GPU; Driver returns the reason.
func (d *Devices) Native(ctx context.Context) ([]target.Target, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	found, err := d.kfd()
	if err != nil {
		return nil, fmt.Errorf("look for AMD GPUs: %w", err)
	}
	types := []tensor.DeviceType{tensor.CUDA}
	if len(found) == 0 {
		types = []tensor.DeviceType{tensor.ROCM, tensor.CUDA}
	}
	for _, t := range types {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		more, err := d.targets(t)
		if err != nil {
			return nil, err
		}
		found = append(found, more...)
	}
	if len(found) == 0 {
		return []target.Target{d.cpu}, nil
	}
	return distinct(found), nil
}

// kfd returns the targets in the files of AMD's kernel driver, none if they are missing or
// unreadable.
func (d *Devices) kfd() ([]target.Target, error) {
	found, err := target.FromKFD(d.opts.KFD)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, nil
	}
	return found, err
}

// targets returns the targets of the devices of a vendor's library, none without the library.
func (d *Devices) targets(t tensor.DeviceType) ([]target.Target, error) {
	drv, err := d.Driver(t)
	var missing *UnavailableError
	if errors.As(err, &missing) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []target.Target
	for i := range drv.Count() {
		info, err := drv.Info(i)
		if err != nil {
			return nil, err
		}
		out = append(out, info.Target)
	}
	return out, nil
}

// distinct keeps the first of equal targets.
func distinct(in []target.Target) []target.Target {
	var out []target.Target
	for _, t := range in {
		if !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out
}
