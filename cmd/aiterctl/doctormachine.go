package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/internal/toolchain"
	"github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// checkToolchains looks for the three compilers, each with a target that this
// machine has, or else a common one.
func (a *app) checkToolchains(ctx context.Context) []check {
	finder := &toolchain.Finder{Env: a.getenv} // without a memo: it looks at everything anew
	here := a.native(ctx)
	return []check{
		checkToolchain(ctx, finder, "C++ compiler", pick(here, target.CPU, "cpu"), true),
		checkToolchain(ctx, finder, "hipcc", pick(here, target.HIP, "gfx942"), false),
		checkToolchain(ctx, finder, "nvcc", pick(here, target.CUDA, "sm_90"), false),
	}
}

func (a *app) native(ctx context.Context) []target.Target {
	devs, err := a.openDevices()
	if err != nil {
		return nil // checkDevices says so
	}
	defer devs.Close()
	here, err := nativeTargets(ctx, devs)
	if err != nil {
		return nil
	}
	return here
}

// pick is the first target of a vendor, else the one called preset.
func pick(list []target.Target, v target.Vendor, preset string) target.Target {
	for _, t := range list {
		if t.Vendor() == v {
			return t
		}
	}
	t, err := target.Parse(preset)
	if err != nil {
		return target.Target{}
	}
	return t
}

func checkToolchain(ctx context.Context, f *toolchain.Finder, name string, t target.Target, required bool) check {
	c := check{Name: name, Status: statusOK, required: required}
	tc, err := f.Find(ctx, t)
	var missing *toolchain.NotFoundError
	if err != nil {
		c.fail(err)
		if errors.As(err, &missing) {
			c.Status, c.Detail = statusMissing, "looked at "+strings.Join(missing.Looked, ", ")
			c.Hint = installHint(t.Vendor())
		}
		return c
	}
	c.Detail = fmt.Sprintf("%s builds for %s: %s", tc.Compiler, t, tc.VersionLine)
	if tc.Root != "" {
		c.Detail += "; its root is " + tc.Root
	}
	if tc.Unknown != "" {
		c.Detail += "; not all files that it reads are known: " + tc.Unknown
	}
	return c
}

// checkDevices looks at the kernel driver's files and the vendors' libraries.
func (a *app) checkDevices(ctx context.Context) []check {
	devs, err := a.openDevices()
	if err != nil {
		c := check{Name: "devices"}
		c.fail(err)
		return []check{c}
	}
	defer devs.Close()
	list := []check{
		checkKFD(os.DirFS(kfdNodes)),
		checkDriver(devs, "HIP runtime", tensor.ROCM),
		checkDriver(devs, "CUDA driver", tensor.CUDA),
	}
	c := check{Name: "native", Status: statusOK}
	here, err := devs.Native(ctx)
	if err != nil {
		c.fail(err)
	} else {
		c.Detail = "--arch native is " + join(here)
	}
	return append(list, c)
}

// kfdNodes is where the AMD kernel driver lists its devices.
const kfdNodes = "/sys/class/kfd/kfd/topology/nodes"

func checkKFD(nodes fs.FS) check {
	c := check{Name: "AMD kernel driver", Status: statusOK}
	found, err := target.FromKFD(nodes)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.Status, c.Detail = statusMissing, "no "+kfdNodes
	case err != nil:
		c.fail(err)
	case len(found) == 0:
		c.Status, c.Detail = statusMissing, "it lists no GPU"
	default:
		c.Detail = join(found)
	}
	return c
}

func checkDriver(devs *device.Devices, name string, kind tensor.DeviceType) check {
	c := check{Name: name, Status: statusOK}
	drv, err := devs.Driver(kind)
	var none *device.UnavailableError
	if errors.As(err, &none) && none.Library == "" {
		c.Status, c.Detail = statusMissing, "no library "+strings.Join(none.Tried, ", ")
		return c
	}
	if err != nil {
		c.fail(err)
		return c
	}
	var found []string
	for i := range drv.Count() {
		info, err := drv.Info(i)
		if err != nil {
			c.fail(err)
			return c
		}
		found = append(found, fmt.Sprintf("%s:%d %s (%s, %s)", kind, i, info.Name, info.Target, sizeWords(info.Memory)))
	}
	if c.Detail = strings.Join(found, ", "); len(found) == 0 {
		c.Status, c.Detail = statusMissing, "the library "+drv.Library()+" finds none"
	}
	return c
}

// checkHostPath builds and loads the support library, as the first call of any
// operator does.
func (a *app) checkHostPath(ctx context.Context) check {
	c := check{Name: "build for cpu", Status: statusOK, required: true}
	p := a.newProgress()
	defer p.close()
	reg, err := a.openRegistry(ctx, registry.Options{Observer: p})
	if err != nil {
		c.fail(err)
		return c
	}
	defer reg.Close()
	reqs := supportRequest(reg.Manager().Config())
	results, err := reg.Manager().Build(ctx, reqs...)
	if err != nil {
		c.fail(err)
		return c
	}
	for _, r := range results {
		c.Detail = fmt.Sprintf("%s: %s in %.2f s", r.Module, r.Status, r.Seconds)
		if err := reg.LoadSupport(ctx); err != nil {
			c.fail(err)
		}
	}
	return c
}
