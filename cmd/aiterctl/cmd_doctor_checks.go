package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/internal/settings"
	"github.com/aiter-go/aiter/internal/toolchain"
	"github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/tensor"
)

// checkToolchains looks up the three compilers, each with a target of this machine, else
// a common target.
func (a *app) checkToolchains(ctx context.Context) []check {
	finder := &toolchain.Finder{Env: a.getenv} // without remembered digests, so that it reads all files
	own := a.nativeOrNone(ctx)
	return []check{
		checkToolchain(ctx, finder, "C++ compiler", firstOfVendor(own, target.CPU, "cpu"), true),
		checkToolchain(ctx, finder, "hipcc", firstOfVendor(own, target.HIP, "gfx942"), false),
		checkToolchain(ctx, finder, "nvcc", firstOfVendor(own, target.CUDA, "sm_90"), false),
	}
}

// nativeOrNone returns the targets of this machine, none after an error.
func (a *app) nativeOrNone(ctx context.Context) []target.Target {
	devs, err := a.openDevices()
	if err != nil {
		return nil // checkDevices reports it
	}
	defer devs.Close()
	targets, err := nativeTargets(ctx, devs)
	if err != nil {
		return nil
	}
	return targets
}

// firstOfVendor returns the first target of a vendor, else the target called preset.
func firstOfVendor(list []target.Target, v target.Vendor, preset string) target.Target {
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

// checkToolchain looks up the compiler for t.
func checkToolchain(ctx context.Context, f *toolchain.Finder, name string, t target.Target, required bool) check {
	c := check{Name: name, Status: statusOK, required: required}
	tc, err := f.Find(ctx, t)
	var missing *toolchain.NotFoundError
	if err != nil {
		c.fail(err)
		if errors.As(err, &missing) {
			c.Status, c.Detail = statusMissing, "not found; tried "+strings.Join(missing.Looked, ", ")
			c.Hint = installHint(t.Vendor())
		}
		return c
	}
	c.Detail = fmt.Sprintf("%s builds for %s: %s", tc.Compiler, t, tc.VersionLine)
	if tc.Root != "" {
		c.Detail += "; its root folder is " + tc.Root
	}
	if tc.Unknown != "" {
		c.Detail += "; some files that it reads are unknown: " + tc.Unknown
	}
	return c
}

// checkDevices checks the kernel driver's files and the vendors' libraries.
func (a *app) checkDevices(ctx context.Context) []check {
	devs, err := a.openDevices()
	if err != nil {
		c := check{Name: "devices"}
		c.fail(err)
		return []check{c}
	}
	defer devs.Close()
	list := []check{
		checkKFD(os.DirFS(target.KFDFolder)),
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

// checkKFD reads the files of AMD's kernel driver.
func checkKFD(nodes fs.FS) check {
	c := check{Name: "AMD kernel driver", Status: statusOK}
	found, err := target.FromKFD(nodes)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.Status, c.Detail = statusMissing, "no "+target.KFDFolder
	case err != nil:
		c.fail(err)
	case len(found) == 0:
		c.Status, c.Detail = statusMissing, "the driver lists no GPU"
	default:
		c.Detail = join(found)
	}
	return c
}

// checkDriver opens a vendor's library and lists its devices.
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
		found = append(found, fmt.Sprintf("%s:%d %s (%s, %s)", kind, i, info.Name, info.Target, formatSize(info.Memory)))
	}
	if c.Detail = strings.Join(found, ", "); len(found) == 0 {
		c.Status, c.Detail = statusMissing, "the library "+drv.Library()+" lists no device"
	}
	return c
}

// checkHostBuild builds and loads the support library, as the first call of an operator
// does.
func (a *app) checkHostBuild(ctx context.Context) check {
	c := check{Name: "build for cpu", Status: statusOK, required: true}
	p := a.newProgress()
	defer p.close()
	reg, err := a.openRegistry(ctx, p)
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

// checkCache checks the cache folder and the temporary folder that may replace it. A
// cache that cannot be written is a warning if builds use a temporary folder instead.
func (a *app) checkCache(ctx context.Context) []check {
	items, err := a.caches(ctx)
	if err != nil {
		c := check{Name: "cache", required: true}
		c.fail(err)
		return []check{c}
	}
	var list []check
	temporary := ""
	if x := items[0]; x.role == temporaryCache {
		temporary = x.Path
		list = append(list, x.check("temporary cache", true))
		if _, err := settings.CacheDir(a.cacheDir, a.getenv); err != nil {
			c := check{Name: "cache"}
			c.fail(err)
			list = append(list, c.withFallback(temporary))
		}
	}
	for _, x := range items {
		if c := x.check("cache", temporary == ""); x.role == ownCache && temporary != "" {
			list = append(list, c.withFallback(temporary))
		} else if x.role == ownCache {
			list = append(list, c)
		}
	}
	return list
}

// withFallback returns the check of a cache that the folder temporary replaces.
func (c check) withFallback(temporary string) check {
	c.Status, c.err = statusWarning, nil
	c.Detail += "; builds go to the temporary folder " + temporary
	c.Hint = "give a permanent folder with --cache-dir DIR or AITER_JIT_DIR"
	return c
}

// checkReadOnlyCaches checks the caches of AITER_JIT_PATH.
func (a *app) checkReadOnlyCaches(ctx context.Context) []check {
	items, err := a.caches(ctx)
	if err != nil {
		return nil // checkCache reports it
	}
	var list []check
	for _, x := range items {
		if x.role == readOnlyCache {
			list = append(list, x.check("read-only cache", x.Status == statusFailed))
		}
	}
	return list
}

// check returns the check of a cache folder.
func (x cacheItem) check(name string, required bool) check {
	c := check{Name: name, Status: statusOK, required: required}
	if x.err != nil {
		c.fail(x.err)
		c.Status = x.Status
		return c
	}
	c.Detail = fmt.Sprintf("%s (%s, %s", x.Path, formatSize(x.Bytes), plural(x.Artifacts, "artifact"))
	if c.Detail += ")"; x.Use == "read" && name == "cache" {
		c.Detail += ", read-only"
	}
	return c
}
