package device_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/tensor"
)

func node(version string) *fstest.MapFile {
	return &fstest.MapFile{Data: []byte("cpu_cores_count 0\ngfx_target_version " + version + "\n")}
}

func devices(t *testing.T, o device.Options) *device.Devices {
	t.Helper()
	if o.KFD == nil {
		o.KFD = fstest.MapFS{}
	}
	if o.HIPLibraries == nil {
		o.HIPLibraries = []string{"/nonexistent/libamdhip64.so"}
	}
	if o.CUDALibraries == nil {
		o.CUDALibraries = []string{"/nonexistent/libcuda.so"}
	}
	d, err := device.Open(o)
	must(t, err)
	t.Cleanup(func() { must(t, d.Close()) })
	return d
}

func TestNative(t *testing.T) {
	hip, cuda := []string{fake(t, "fakehip")}, []string{fake(t, "fakecuda")}
	kfd := fstest.MapFS{
		"0/properties": node("0"), "1/properties": node("90402"), "2/properties": node("90402"), "10/properties": node("110000"),
	}
	for _, c := range []struct {
		name string
		opts device.Options
		want []string
	}{
		{"nothing", device.Options{}, []string{"cpu"}},
		{"kernel files", device.Options{KFD: kfd}, []string{"gfx942", "gfx1100"}},
		{"kernel files before the library", device.Options{KFD: kfd, HIPLibraries: hip}, []string{"gfx942", "gfx1100"}},
		{"only cpu nodes", device.Options{KFD: fstest.MapFS{"0/properties": node("0")}}, []string{"cpu"}},
		{"hip library", device.Options{HIPLibraries: hip}, []string{"gfx90a:sramecc+:xnack-"}},
		{"cuda library", device.Options{CUDALibraries: cuda}, []string{"sm_90", "sm_91"}},
		{"both vendors", device.Options{KFD: kfd, CUDALibraries: cuda}, []string{"gfx942", "gfx1100", "sm_90", "sm_91"}},
		{"no working device", device.Options{CUDALibraries: []string{fake(t, "fakecuda", "-DINIT_ERROR=100")}}, []string{"cpu"}},
	} {
		got, err := devices(t, c.opts).Native(t.Context())
		must(t, err)
		var names []string
		for _, g := range got {
			names = append(names, g.String())
		}
		if !slices.Equal(names, c.want) {
			t.Errorf("%s: %v, want %v", c.name, names, c.want)
		}
	}
}

func TestNativeErrors(t *testing.T) {
	broken := fstest.MapFS{"1/properties": node("not a number")}
	if got, err := devices(t, device.Options{KFD: broken}).Native(t.Context()); err == nil {
		t.Errorf("broken kernel files gave %v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := devices(t, device.Options{}).Native(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

func TestTarget(t *testing.T) {
	d := devices(t, device.Options{CUDALibraries: []string{fake(t, "fakecuda")}})
	for dev, want := range map[tensor.Device]string{
		tensor.Host():              "cpu",
		{Type: tensor.CUDA, ID: 0}: "sm_90",
		{Type: tensor.CUDA, ID: 1}: "sm_91",
	} {
		if got, err := d.Target(dev); err != nil || got.String() != want {
			t.Errorf("Target(%s) = %s, %v", dev, got, err)
		}
	}
	var ie *device.IndexError
	if _, err := d.Target(tensor.Device{Type: tensor.CUDA, ID: 2}); !errors.As(err, &ie) {
		t.Errorf("a device that is not there: %v", err)
	}
	var ue *device.UnavailableError
	if _, err := d.Target(tensor.Device{Type: tensor.ROCM}); !errors.As(err, &ue) || ue.Vendor != target.HIP {
		t.Errorf("no library: %v", err)
	}
	var te *device.TypeError
	if _, err := d.Target(tensor.Device{Type: 12}); !errors.As(err, &te) {
		t.Errorf("a type without driver: %v", err)
	}
}

// all returns one device of every type, on fake libraries.
func all(t *testing.T) (*device.Devices, []tensor.Device) {
	t.Helper()
	d := devices(t, device.Options{HIPLibraries: []string{fake(t, "fakehip")}, CUDALibraries: []string{fake(t, "fakecuda")}})
	return d, []tensor.Device{
		tensor.Host(), {Type: tensor.CUDA}, {Type: tensor.CUDA, ID: 1}, {Type: tensor.ROCM}, {Type: tensor.ROCM, ID: 1},
	}
}

// A view with odd strides is copied between devices of all types.
func TestUpload(t *testing.T) {
	d, devs := all(t)
	base, err := tensor.Of([]float32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, 3, 4)
	must(t, err)
	part, err := base.Slice(1, 1, 3)
	must(t, err)
	view, err := part.Transpose(0, 1)
	must(t, err)
	for _, from := range devs {
		there, err := d.Upload(t.Context(), view, from)
		must(t, err)
		for _, to := range devs {
			moved, err := d.Upload(t.Context(), there, to)
			must(t, err)
			if moved.Device() != to || !slices.Equal(moved.Strides(), view.Strides()) || moved.Offset() != view.Offset() {
				t.Errorf("%s to %s: %s, strides %v, offset %d", from, to, moved, moved.Strides(), moved.Offset())
			}
			back, err := d.Download(t.Context(), moved)
			must(t, err)
			got, err := back.Float64s()
			must(t, err)
			if !slices.Equal(got, []float64{1, 5, 9, 2, 6, 10}) {
				t.Errorf("%s to %s: %v", from, to, got)
			}
			must(t, errors.Join(d.Free(moved), d.Free(back)))
		}
		must(t, d.Free(there))
	}
}

func TestUploadErrors(t *testing.T) {
	d, devs := all(t)
	x, err := d.New(devs[1], tensor.Float32, 4)
	must(t, err)
	if _, err := d.Upload(t.Context(), x, tensor.Device{Type: tensor.CUDA, ID: 9}); err == nil {
		t.Error("copy to a device that is not there gave no error")
	}
	must(t, d.Free(x))
	var fe *tensor.FreedError
	for _, dev := range devs {
		if _, err := d.Upload(t.Context(), x, dev); !errors.As(err, &fe) {
			t.Errorf("copy of a freed tensor to %s: %v", dev, err)
		}
	}
	if err := d.Free(x); !errors.As(err, &fe) {
		t.Errorf("second Free: %v", err)
	}
}

func TestDevicesClose(t *testing.T) {
	lib := fake(t, "fakehip")
	d := devices(t, device.Options{HIPLibraries: []string{lib}})
	x, err := d.New(tensor.Device{Type: tensor.ROCM, ID: 1}, tensor.BFloat16, 2, 3)
	must(t, err)
	if x.Storage().Size() != 12 {
		t.Errorf("%d bytes for %s", x.Storage().Size(), x)
	}
	must(t, errors.Join(d.Close(), d.Close()))
	if n := callFake(t, lib, "fake_alive"); n != 0 {
		t.Errorf("%d objects alive after Close", n)
	}
	var ce *device.ClosedError
	for _, kind := range []tensor.DeviceType{tensor.CPU, tensor.ROCM, tensor.CUDA} {
		if _, err := d.Driver(kind); !errors.As(err, &ce) {
			t.Errorf("Driver(%s) after Close: %v", kind, err)
		}
	}
}

func TestStreamInContext(t *testing.T) {
	if s, ok := device.StreamFrom(t.Context()); ok {
		t.Errorf("an empty context has stream %v", s)
	}
	want := device.Stream{Device: tensor.Device{Type: tensor.ROCM, ID: 1}, Handle: 77}
	if got, ok := device.StreamFrom(device.WithStream(t.Context(), want)); !ok || got != want {
		t.Errorf("got %v, %v", got, ok)
	}
}

func TestLibraryNames(t *testing.T) {
	env := func(k string) string {
		return map[string]string{"ROCM_PATH": "/opt/rocm-6.4", "ROCM_HOME": "relative", "CUDA_DRIVER_PATH": "/drv"}[k]
	}
	hip, cuda := device.HIPLibraries(env), device.CUDALibraries(env)
	if hip[0] != "/opt/rocm-6.4/lib/libamdhip64.so.7" || !slices.Contains(hip, "libamdhip64.so.6") ||
		slices.Contains(hip, "relative/lib/libamdhip64.so.7") {
		t.Errorf("%v", hip)
	}
	if cuda[0] != "/drv/libcuda.so.1" || cuda[1] != "libcuda.so.1" {
		t.Errorf("%v", cuda)
	}
}

// TestMachine tests the GPUs of this machine.
func TestMachine(t *testing.T) {
	d, err := device.Open(device.Options{})
	must(t, err)
	defer func() { must(t, d.Close()) }()
	native, err := d.Native(t.Context())
	must(t, err)
	t.Logf("native: %v", native)
	x, err := tensor.Of([]float32{1, 2, 3, 4, 5, 6}, 2, 3)
	must(t, err)
	for _, kind := range []tensor.DeviceType{tensor.CPU, tensor.CUDA, tensor.ROCM} {
		drv, err := d.Driver(kind)
		if err != nil {
			t.Logf("%s: %v", kind, err)
			continue
		}
		for i := range drv.Count() {
			there, err := d.Upload(t.Context(), x, tensor.Device{Type: kind, ID: int32(i)})
			must(t, err)
			back, err := d.Download(t.Context(), there)
			must(t, err)
			if got, err := back.Float64s(); err != nil || !slices.Equal(got, []float64{1, 2, 3, 4, 5, 6}) {
				t.Errorf("%s: %v, %v", there.Device(), got, err)
			}
			must(t, errors.Join(d.Free(there), d.Free(back)))
			target, err := d.Target(there.Device())
			if err != nil || !slices.Contains(native, target) && kind != tensor.CPU {
				t.Errorf("%s is %s, not among the native %v: %v", there.Device(), target, native, err)
			}
		}
	}
}
