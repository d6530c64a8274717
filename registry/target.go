package registry

import (
	"context"
	"errors"
	"slices"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/tensor"
)

// Target returns the target that calls on a device are built for: the first of
// [Options.Targets] that the device runs, else the device's architecture without
// features. [Registry.Warm] and [Registry.Ready] take this target. The errors are
// those of [device.Devices.Target].
func (r *Registry) Target(dev tensor.Device) (target.Target, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t, ok := r.targets[dev]; ok {
		return t, nil
	}
	on, err := r.devices.Target(dev)
	if err != nil {
		return target.Target{}, err
	}
	t := r.targetOf(on)
	r.targets[dev] = t
	return t, nil
}

// targetOf returns the target to build for a device of target on.
func (r *Registry) targetOf(on target.Target) target.Target {
	for _, p := range r.preferred {
		if p.Vendor() == on.Vendor() && p.Runs(on) {
			return p
		}
	}
	return on.WithoutFeatures()
}

// native returns the targets of this machine's GPUs, cpu if there is none. The kernel
// driver's files do not contain the features of AMD GPUs, which select a preferred
// target, so they count only for devices that no library lists.
func (r *Registry) native(ctx context.Context) ([]target.Target, error) {
	found, err := r.devices.Native(ctx)
	if err != nil || !slices.ContainsFunc(found, func(t target.Target) bool { return t.Vendor() == target.HIP }) {
		return found, err
	}
	drv, err := r.devices.Driver(tensor.ROCM)
	var missing *device.UnavailableError
	if errors.As(err, &missing) {
		return found, nil
	}
	if err != nil {
		return nil, err
	}
	var known []target.Target
	for i := range drv.Count() {
		info, err := drv.Info(i)
		if err != nil {
			return nil, err
		}
		known = append(known, info.Target)
	}
	return append(known, slices.DeleteFunc(found, func(t target.Target) bool {
		return slices.ContainsFunc(known, t.Runs)
	})...), nil
}

// requestedTargets returns the targets that calls on such devices request, each once.
func (r *Registry) requestedTargets(native []target.Target) []target.Target {
	var out []target.Target
	for _, on := range native {
		if t := r.targetOf(on); !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out
}
