package aitercmd

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/internal/settings"
	"github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/tensor"
)

// noDeviceError reports that no device of this machine runs code for a target.
type noDeviceError struct {
	target target.Target
	found  []string // the devices of this machine with their targets
}

func (e *noDeviceError) Error() string {
	if len(e.found) == 0 {
		return fmt.Sprintf("this machine has no %s device that runs %s; aiterctl build compiles without a device", e.target.Vendor(), e.target)
	}
	return fmt.Sprintf("no device of this machine runs %s; its devices are %v", e.target, e.found)
}

// deviceFlags select the device that runs operators.
type deviceFlags struct{ arch, device string }

func (f *deviceFlags) add(fl *pflag.FlagSet) {
	fl.StringVar(&f.arch, "arch", "", "target to build for and run on: native, cpu, gfx942, sm_90 (default native)")
	fl.StringVar(&f.device, "device", "", "device to run on: cpu, cuda:0, rocm:1 (default: the first that runs --arch)")
}

// deviceRequest is the device and target that the flags request. A zero field is not
// requested.
type deviceRequest struct {
	target    target.Target
	device    tensor.Device
	preferred []target.Target // calls build for the first one whose code the device runs
}

// deviceRequest reads --arch and --device. Without --arch it reads the preferred targets
// of GPU_ARCHS.
func (a *app) deviceRequest(f deviceFlags) (r deviceRequest, err error) {
	if f.device != "" {
		if r.device, err = tensor.ParseDevice(f.device); err != nil {
			return r, err
		}
	}
	if f.arch != "" && f.arch != native {
		r.target, err = target.Parse(f.arch)
		r.preferred = []target.Target{r.target}
		return r, err
	}
	for _, item := range settings.ListItems(a.getenv("GPU_ARCHS")) {
		if item == native {
			break // the default of the registry: the device's own target
		}
		t, err := target.Parse(item)
		if err != nil {
			return r, fmt.Errorf("GPU_ARCHS: %w", err)
		}
		r.preferred = append(r.preferred, t)
	}
	return r, nil
}

// resolve returns the device, and the target to report until a module has been built.
func (r deviceRequest) resolve(ctx context.Context, devs *device.Devices) (tensor.Device, target.Target, error) {
	switch {
	case r.device != tensor.Device{}:
		return r.resolveDevice(devs)
	case !r.target.IsZero():
		dev, err := firstDevice(devs, r.target)
		return dev, r.target, err
	}
	here, err := nativeTargets(ctx, devs)
	if err != nil {
		return tensor.Device{}, target.Target{}, err
	}
	dev, err := firstDevice(devs, here[0])
	return dev, here[0], err
}

// resolveDevice resolves a request with --device.
func (r deviceRequest) resolveDevice(devs *device.Devices) (tensor.Device, target.Target, error) {
	own, err := devs.Target(r.device)
	if err != nil {
		return r.device, own, err
	}
	if r.target.IsZero() {
		return r.device, own.WithoutFeatures(), nil
	}
	if !r.target.Runs(own) {
		return r.device, own, &noDeviceError{r.target, []string{fmt.Sprintf("%s (%s)", r.device, own)}}
	}
	return r.device, r.target, nil
}

// firstDevice returns the first device that runs code for t.
func firstDevice(devs *device.Devices, t target.Target) (tensor.Device, error) {
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
		missing.found = append(missing.found, fmt.Sprintf("%s (%s)", dev, info.Target))
	}
	return tensor.Device{}, missing
}
