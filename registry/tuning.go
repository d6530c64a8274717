package registry

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/internal/ffi"
	"github.com/aiter-go/aiter/internal/opconfig"
	"github.com/aiter-go/aiter/internal/tuning"
	"github.com/aiter-go/aiter/tensor"
)

// UnknownParamError reports a launch parameter, or a value of one, that an operator does not have.
type UnknownParamError = opconfig.UnknownParamError

// LaunchParam is a launch parameter of an operator, as its configuration declares it.
type LaunchParam = opconfig.LaunchParam

// TunedParams are the launch parameters that were chosen for a shape class.
type TunedParams = tuning.Entry

// LaunchParams returns the launch parameters that the operator has on a device. The errors are those of [Registry.Target].
func (o *Op) LaunchParams(dev tensor.Device) ([]LaunchParam, error) {
	t, err := o.reg.Target(dev)
	if err != nil {
		return nil, err
	}
	return o.current().decl.LaunchParams(t), nil
}

// WithParams returns a copy of the operator whose calls on a device use the given launch parameters, by name, instead of the
// operator's own launch plan and of the parameters of [Options.Tune]. A call for which a value is not possible uses the operator's own
// plan. The error is an [*UnknownParamError], or one of [Registry.Target].
func (o *Op) WithParams(dev tensor.Device, params map[string]int64) (*Op, error) {
	t, err := o.reg.Target(dev)
	if err != nil {
		return nil, err
	}
	decl := o.current().decl
	for _, name := range slices.Sorted(maps.Keys(params)) {
		if err := decl.CheckLaunchParam(t, name, params[name]); err != nil {
			return nil, err
		}
	}
	with := *o
	with.params = newParams(params)
	return &with, nil
}

// ReadParams calls the operator and returns the names of the launch parameters that this call reads. A search for the best values has
// to vary only these, for calls of this shape class. In the call each parameter has its first declared value. The errors are those of
// [Op.Call].
func (o *Op) ReadParams(ctx context.Context, args ...any) ([]string, error) {
	v := o.current()
	dev, err := v.pack(new(callBuffer), args)
	if err != nil {
		return nil, err
	}
	declared, err := o.LaunchParams(dev)
	if err != nil || len(declared) == 0 {
		return nil, err
	}
	var list []ffi.Param
	for _, p := range declared {
		list = append(list, ffi.Param{Name: p.Name, Value: p.Values[0]})
	}
	params, read := ffi.NewParams(list...).Recording()
	if err := v.call(ctx, args, nil, params, nil); err != nil {
		return nil, err
	}
	var names []string
	for i, p := range declared {
		if read(i) {
			names = append(names, p.Name)
		}
	}
	return names, nil
}

func newParams(values map[string]int64) *ffi.Params {
	var list []ffi.Param
	for _, name := range slices.Sorted(maps.Keys(values)) {
		list = append(list, ffi.Param{Name: name, Value: values[name]})
	}
	return ffi.NewParams(list...)
}

// KeepTuning stores launch parameters in the cache for all calls of the shape class of args, in a record of the library that such
// a call runs. Registries with [Options.Tune] that load the library later use them. chosen has Params and the measured times;
// KeepTuning sets its other fields and returns it. It builds the library if necessary, and does not call the operator. The errors
// are those of [Op.Call] before the operator runs, [*UnknownParamError], and those of the cache.
func (o *Op) KeepTuning(ctx context.Context, chosen TunedParams, args ...any) (TunedParams, error) {
	chosen, library, err := o.describeTuning(ctx, chosen, args)
	if err != nil {
		return chosen, err
	}
	return chosen, tuning.Store(ctx, o.reg.Manager().Cache(), library, chosen)
}

// DescribeTuning is like KeepTuning, but stores nothing.
func (o *Op) DescribeTuning(ctx context.Context, chosen TunedParams, args ...any) (TunedParams, error) {
	chosen, _, err := o.describeTuning(ctx, chosen, args)
	return chosen, err
}

// describeTuning sets the fields of chosen that describe the call, and returns the digest of the library that the call runs.
func (o *Op) describeTuning(ctx context.Context, chosen TunedParams, args []any) (_ TunedParams, library string, err error) {
	v := o.current()
	buffer := new(callBuffer)
	dev, err := v.pack(buffer, args)
	if err != nil {
		return chosen, "", err
	}
	if _, err := o.WithParams(dev, chosen.Params); err != nil {
		return chosen, "", err
	}
	b, err := v.binding(ctx, dev, v.key(args))
	if err != nil {
		return chosen, "", err
	}
	if chosen.Device, chosen.Driver, err = o.reg.tunedDevice(dev); err != nil {
		return chosen, "", err
	}
	chosen.Op, chosen.Time = o.name, time.Now()
	chosen.Class = hex.EncodeToString(appendClass(nil, buffer.packed, args))
	chosen.Shapes = classWords(v.decl.Schema, buffer.packed, args)
	return chosen, b.library, nil
}

// tunedDevice returns the name and the driver of a device, as records have them. In place of a driver the CPU has the number of
// processors and the settings on which the launch plans of its kernels depend.
func (r *Registry) tunedDevice(dev tensor.Device) (name, driver string, err error) {
	drv, err := r.devices.Driver(dev.Type)
	if err != nil {
		return "", "", err
	}
	info, err := drv.Info(int(dev.ID))
	return info.Name, driverWords(info), err
}

func driverWords(info device.Info) string {
	if !info.Device.IsHost() {
		return info.Driver
	}
	words := fmt.Sprintf("%d processors", runtime.NumCPU())
	for _, name := range []string{"AITER_NUM_THREADS", "AITER_CPU_ISA"} { // kernels read these variables of the process
		if v := os.Getenv(name); v != "" {
			words += " " + name + "=" + v
		}
	}
	return words
}

// tunedCalls maps codes of shape classes to launch parameters.
type tunedCalls map[string]*ffi.Params

// of returns the launch parameters for the shape class of packed arguments, nil for none.
func (c tunedCalls) of(packed []ffi.Any, args []any) *ffi.Params {
	var memory [384]byte // avoids an allocation
	return c[string(appendClass(memory[:0], packed, args))]
}

// loadTuned reads the launch parameters for calls of a library on a device. It leaves out those that the configuration does not
// declare.
func (o *opVersion) loadTuned(dev tensor.Device, mod *loadedModule) (tunedCalls, error) {
	name, driver, err := o.reg.tunedDevice(dev)
	if err != nil {
		return nil, err
	}
	var calls tunedCalls
	for _, e := range tuning.Load(o.reg.Manager().Cache(), mod.digest) {
		class, err := hex.DecodeString(e.Class)
		if err != nil || e.Op != o.Name() || e.Device != name || e.Driver != driver || len(e.Params) == 0 || !o.declares(mod, e.Params) {
			continue
		}
		if calls == nil {
			calls = tunedCalls{}
		}
		calls[string(class)] = newParams(e.Params)
	}
	return calls, nil
}

func (o *opVersion) declares(mod *loadedModule, params map[string]int64) bool {
	for name, value := range params {
		if o.decl.CheckLaunchParam(mod.target, name, value) != nil {
			return false
		}
	}
	return true
}
