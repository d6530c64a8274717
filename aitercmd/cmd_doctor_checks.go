package aitercmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/internal/settings"
	"github.com/aiter-go/aiter/internal/spelling"
	"github.com/aiter-go/aiter/internal/toolchain"
	"github.com/aiter-go/aiter/jit"
	"github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/tensor"
)

// checkToolchains looks up the three compilers, each with a target of this machine, else
// a common target.
func (a *app) checkToolchains(ctx context.Context) []check {
	finder := &toolchain.Finder{Env: a.getenv} // without remembered digests, so that it reads all files
	own := a.nativeOrNone(ctx)
	list := []check{
		checkToolchain(ctx, finder, "C++ compiler", firstOfVendor(own, target.CPU, "cpu")),
		checkToolchain(ctx, finder, "hipcc", firstOfVendor(own, target.HIP, "gfx942")),
		checkToolchain(ctx, finder, "nvcc", firstOfVendor(own, target.CUDA, "sm_90")),
	}
	for i := range list {
		if list[i].err == nil && a.noCompile() {
			list[i].Detail += "; AITER_NO_COMPILE forbids builds"
		}
	}
	return list
}

// noCompile reports whether AITER_NO_COMPILE is set.
func (a *app) noCompile() bool {
	s, err := a.settings().Resolve()
	return err == nil && s.NoCompile
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
func checkToolchain(ctx context.Context, f *toolchain.Finder, name string, t target.Target) check {
	c := check{Name: name, Status: statusOK}
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

// checkPrebuilt checks that the caches hold at least one module with operators for this machine.
// Without a compiler, or with AITER_NO_COMPILE, no other module runs. compiler is the check of
// the C++ compiler.
func (a *app) checkPrebuilt(ctx context.Context, compiler check) check {
	c := check{Name: "prebuilt modules", Status: statusOK, required: true}
	found, err := a.prebuiltModules(ctx)
	if remote := a.getenv("AITER_JIT_REMOTE"); err == nil && len(found) == 0 && remote != "" {
		c.Status, c.Detail, c.required = statusWarning, "none; calls pull them from "+remote, false
		return c
	}
	if err == nil && len(found) == 0 {
		err = cmp.Or(compiler.err, error(&jit.NoCompileError{Target: target.Host()}))
	}
	if err != nil {
		c.fail(err)
		return c
	}
	c.Detail = strings.Join(found, ", ") + "; other modules cannot be built"
	return c
}

// prebuiltModules returns the modules with operators that the caches hold for the targets of
// this machine, each as "module_x for cpu".
func (a *app) prebuiltModules(ctx context.Context) ([]string, error) {
	store, err := a.openCache()
	if err != nil {
		return nil, err
	}
	m, err := a.openManager(ctx, func(s *settings.Settings) { s.NoCompile = true })
	if err != nil {
		return nil, err
	}
	defer m.Close()
	reqs, err := storedRequests(m.Config(), withReadOnly(store), nil)
	if err != nil {
		return nil, err
	}
	own := a.nativeOrNone(ctx)
	reqs = slices.DeleteFunc(reqs, func(r jit.Request) bool {
		module, err := m.Config().Module(r.Module)
		runs := slices.ContainsFunc(own, func(t target.Target) bool { return r.Target.Runs(t) })
		return err != nil || len(module.Ops) == 0 || !runs
	})
	results, err := m.Build(ctx, reqs...)
	var found []string
	for _, r := range results {
		if name := r.Module + " for " + r.Target.String(); r.Err == nil && !slices.Contains(found, name) {
			found = append(found, name)
		}
	}
	if len(found) > 0 {
		err = nil
	}
	return found, err
}

// checkCache checks the cache folder and the temporary folder that may replace it. A
// cache that cannot be written is a warning if builds use a temporary folder instead.
func (a *app) checkCache(context.Context) []check {
	items, err := a.caches()
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
			list = append(list, a.withoutStoring(c))
		}
	}
	return list
}

// withoutStoring returns the check of a cache that cannot be opened. It is a warning if kernels can
// be read from the read-only caches.
func (a *app) withoutStoring(c check) check {
	if c.err == nil {
		return c
	}
	o, err := a.cacheOptions()
	o.Logger = nil // the check reports the cache
	if err == nil {
		_, err = settings.OpenCache(o)
	}
	if err == nil {
		c.Status, c.err = statusWarning, nil
		c.Detail = "kernels are read from the read-only caches, and nothing can be built: " + c.Detail
	}
	return c
}

// withFallback returns the check of a cache that the folder temporary replaces.
func (c check) withFallback(temporary string) check {
	c.Status, c.err = statusWarning, nil
	c.Detail += "; builds go to the temporary folder " + temporary
	c.Hint = "give a permanent folder with --cache-dir DIR or AITER_JIT_DIR"
	return c
}

// checkReadOnlyCaches checks the caches of AITER_JIT_PATH.
func (a *app) checkReadOnlyCaches(context.Context) []check {
	items, err := a.caches()
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
	c.Detail = fmt.Sprintf("%s (%s, %s", x.Path, formatSize(x.Bytes), spelling.Count(x.Artifacts, "artifact"))
	if c.Detail += ")"; x.Use == "read" && name == "cache" {
		c.Detail += ", read-only"
	}
	return c
}
