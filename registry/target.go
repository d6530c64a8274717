package registry

import (
	"context"
	"errors"
	"slices"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/tensor"
)

// Target returns the target for which calls on a device are built: the first of
// [Options.Targets] that the device runs, else the device's architecture without
// features. The errors are those of [device.Devices.Target].
func (r *Registry) Target(dev tensor.Device) (target.Target, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t, ok := r.targets[dev]; ok {
		return t, nil
	}
	own, err := r.devices.Target(dev)
	if err != nil {
		return target.Target{}, err
	}
	t := r.targetOf(own)
	r.targets[dev] = t
	r.known.Store(dev, []target.Target{t})
	return t, nil
}

// targetOf returns the target to build for a device whose own target is own.
func (r *Registry) targetOf(own target.Target) target.Target {
	for _, p := range r.preferred {
		if p.Runs(own) {
			return p
		}
	}
	return own.WithoutFeatures()
}

// native returns the own targets of this machine's GPUs, or cpu if it has none. A preferred target is
// selected by the features of a GPU, which the files of AMD's kernel driver do not contain. So native
// uses these files only for devices that the HIP library does not list.
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

// targetsOf returns the targets for which calls on a device are built, each once. For the zero
// Device it returns those for all native targets.
func (r *Registry) targetsOf(dev tensor.Device, native []target.Target) ([]target.Target, error) {
	if dev != (tensor.Device{}) {
		t, err := r.Target(dev)
		return []target.Target{t}, err
	}
	var out []target.Target
	for _, own := range native {
		if t := r.targetOf(own); !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	r.rememberDevices(out)
	return out, nil
}

// rememberDevices remembers the targets of the zero Device, and that of each device of the machine, for Ready.
func (r *Registry) rememberDevices(natives []target.Target) {
	infos, _ := r.devices.All() // calls report the errors of other devices
	for _, info := range infos {
		_, _ = r.Target(info.Device) // All has described the device, so there is no error
	}
	r.known.Store(tensor.Device{}, natives)
}

// knownTargets returns a copy of the last result of targetsOf for a device, none before the first one. It never blocks.
func (r *Registry) knownTargets(dev tensor.Device) []target.Target {
	known, _ := r.known.Load(dev)
	targets, _ := known.([]target.Target) // nil if the device is not known
	return slices.Clone(targets)
}
