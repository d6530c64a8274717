package main

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/internal/settings"
	"github.com/aiter-go/aiter/jit/target"
	optests "github.com/aiter-go/aiter/op_tests"
	"github.com/aiter-go/aiter/tensor"
)

// noDeviceError says that no device of this machine runs code for a target.
type noDeviceError struct {
	target target.Target
	here   []string // devices that were looked at, with their targets
}

func (e *noDeviceError) Error() string {
	if len(e.here) == 0 {
		return fmt.Sprintf("no %s device in this machine to run %s on; aiterctl build builds for it without one", e.target.Vendor(), e.target)
	}
	return fmt.Sprintf("no device in this machine runs %s: there are %v", e.target, e.here)
}

// placeFlags say where operators run.
type placeFlags struct{ arch, device string }

func (f *placeFlags) add(fl *pflag.FlagSet) {
	fl.StringVar(&f.arch, "arch", "", "target to build for and run on: native, cpu, gfx942, sm_90 (default native)")
	fl.StringVar(&f.device, "device", "", "device to run on: cpu, cuda:0, rocm:1 (default: the first that runs --arch)")
}

// wish is where a run should happen: zero fields are open.
type wish struct {
	target target.Target
	device tensor.Device
	prefer []target.Target // what to build for the device, the first that runs there
}

// wish reads --arch and --device. Without --arch the device decides, and
// GPU_ARCHS may say which of the targets that it runs to build.
func (a *app) wish(f placeFlags) (w wish, err error) {
	if f.device != "" {
		if w.device, err = tensor.ParseDevice(f.device); err != nil {
			return w, err
		}
	}
	if f.arch != "" && f.arch != native {
		w.target, err = target.Parse(f.arch)
		w.prefer = []target.Target{w.target}
		return w, err
	}
	for _, item := range settings.ListItems(a.getenv("GPU_ARCHS")) {
		if item == native {
			break // the device's own, which is what the registry takes anyway
		}
		t, err := target.Parse(item)
		if err != nil {
			return w, fmt.Errorf("GPU_ARCHS: %w", err)
		}
		w.prefer = append(w.prefer, t)
	}
	return w, nil
}

// place settles on a device, and on the target to report until something has
// been built.
func (w wish) place(ctx context.Context, devs *device.Devices) (tensor.Device, target.Target, error) {
	switch {
	case w.device != tensor.Device{}:
		return w.onDevice(devs)
	case !w.target.IsZero():
		dev, err := firstRunning(devs, w.target)
		return dev, w.target, err
	}
	here, err := nativeTargets(ctx, devs)
	if err != nil {
		return tensor.Device{}, target.Target{}, err
	}
	dev, err := firstRunning(devs, here[0])
	return dev, here[0], err
}

// onDevice is for a device that was asked for.
func (w wish) onDevice(devs *device.Devices) (tensor.Device, target.Target, error) {
	on, err := devs.Target(w.device)
	if err != nil {
		return w.device, on, err
	}
	if w.target.IsZero() {
		t, err := plain(on)
		return w.device, t, err
	}
	if !w.target.Runs(on) {
		return w.device, on, &noDeviceError{w.target, []string{fmt.Sprintf("%s (%s)", w.device, on)}}
	}
	return w.device, w.target, nil
}

// firstRunning is the first device that runs code for t.
func firstRunning(devs *device.Devices, t target.Target) (tensor.Device, error) {
	missing := &noDeviceError{target: t}
	kind := map[target.Vendor]tensor.DeviceType{target.CPU: tensor.CPU, target.HIP: tensor.ROCM, target.CUDA: tensor.CUDA}[t.Vendor()]
	drv, err := devs.Driver(kind)
	if err != nil {
		return tensor.Device{}, fmt.Errorf("%w: %w", missing, err)
	}
	for i := range drv.Count() {
		info, err := drv.Info(i)
		if err != nil {
			return tensor.Device{}, err
		}
		dev := tensor.Device{Type: kind, ID: int32(i)}
		if t.Runs(info.Target) {
			return dev, nil
		}
		missing.here = append(missing.here, fmt.Sprintf("%s (%s)", dev, info.Target))
	}
	return tensor.Device{}, missing
}

// mover carries tensors to a device; nil for the host, where they are already.
func mover(devs *device.Devices, dev tensor.Device) optests.Device {
	if dev.IsHost() {
		return nil
	}
	return deviceMover{devs, dev}
}

type deviceMover struct {
	devs *device.Devices
	dev  tensor.Device
}

var _ optests.Device = deviceMover{}

// ToDevice implements [optests.Device].
func (m deviceMover) ToDevice(t *tensor.Tensor) (*tensor.Tensor, error) {
	return m.devs.ToDevice(t, m.dev)
}

// ToHost implements [optests.Device].
func (m deviceMover) ToHost(t *tensor.Tensor) (*tensor.Tensor, error) { return m.devs.ToHost(t) }

// Free implements [optests.Device].
func (m deviceMover) Free(t *tensor.Tensor) error { return m.devs.Free(t) }
