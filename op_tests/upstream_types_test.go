//go:build linux

package optests_test

import (
	"slices"
	"testing"
	"testing/fstest"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/internal/testenv"
	"github.com/aiter-go/aiter/jit"
	targets "github.com/aiter-go/aiter/jit/target"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

const upstreamTypesConfig = `
[module.module_types]
include = ["${AITER_CHECKOUT}/csrc/include"]
targets = ["hip"]
flags.hip = ["-std=c++20", "-O1", "-DAITER_NO_TORCH_TYPES=1", "-DENABLE_CK=0", "-DUSE_ROCM=1", "-include", "unordered_map",
  "-DhipDeviceAttributePciChipId=hipDeviceAttributePciBusId", "-fvisibility=hidden"]
link_flags.hip = ["-Wl,--as-needed", "-static-libstdc++", "-static-libgcc", "-Wl,--exclude-libs,ALL"]
[[module.module_types.source]]
path = "types.hip"
[[module.module_types.op]]
name = "kind"
schema = "(Tensor x, int[] list, str text='') -> int"
[[module.module_types.op]]
name = "same"
schema = "(Tensor x, Tensor? y=None) -> bool"
[[module.module_types.op]]
name = "half"
schema = "(Tensor x, float v) -> float"
[[module.module_types.op]]
name = "twice"
schema = "(Tensor x, float? v=None) -> float"
`

const upstreamTypesSource = `
#include <aiter/upstream.h>
namespace aiter::upstream {
static int kind(const aiter_tensor_t& x, const std::vector<int64_t>& list, const std::string& text) {
  AITER_CHECK(list.size() < 4, "list: expected less than 4 integers");
  int64_t sum = int64_t(text.size());
  for (int64_t v : list) sum += v;
  return int(x.dtype()) * 1000 + int(sum);
}
static bool same(const aiter_tensor_t& x, std::optional<aiter_tensor_t> y) { return y && x.dtype() == y->dtype(); }
static float half(const aiter_tensor_t&, double v) { return float(v / 2); }
static float twice(const aiter_tensor_t&, std::optional<float> v) {
  AITER_CHECK(!v || *v < 4, "v: expected less than 4");
  return v.value_or(-1) * 2;
}
}
AITER_UPSTREAM(kind, aiter::upstream::kind, arg("x"), arg("list"), text("text", ""))
AITER_UPSTREAM(same, aiter::upstream::same, arg("x"), none("y"))
AITER_UPSTREAM(half, aiter::upstream::half, arg("x"), arg("v"))
AITER_UPSTREAM(twice, aiter::upstream::twice, arg("x"), none("v"))
`

// TestUpstreamTypes builds functions with AIter's types that return numbers, and calls them on the machine's ROCm device.
func TestUpstreamTypes(t *testing.T) {
	testenv.SkipRace(t)
	checkout := upstreamCheckout(t)
	env := upstreamEnv(t, checkout)
	files := fstest.MapFS{"opt_compiler.toml": {Data: []byte(upstreamTypesConfig)}, "types.hip": {Data: []byte(upstreamTypesSource)}}
	own, dev := targets.Target{}, tensor.Device{}
	reg, err := registry.Open(t.Context(), registry.Options{Getenv: env, Modules: []registry.Source{{Files: files, Name: "types"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer reg.Close()
	all, err := reg.Devices().All()
	if err != nil {
		t.Log(err)
	}
	i := slices.IndexFunc(all, func(d device.Info) bool { return d.Device.Type == tensor.ROCM })
	if i < 0 {
		if own, err = targets.Parse("gfx942"); err != nil {
			t.Fatal(err)
		}
		if _, err := reg.Manager().Build(t.Context(), jit.Request{Module: "module_types", Target: own}); err != nil {
			t.Fatal(err)
		}
		t.Log("no ROCm device: the module is built, not called")
		return
	}
	own, dev = all[i].Target, all[i].Device
	upload := func(dt tensor.DType) *tensor.Tensor {
		x, err := tensor.New(dt, 2)
		if err == nil {
			x, err = reg.Devices().Upload(t.Context(), x, dev)
		}
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	call := func(name string, args ...any) func() (any, error) {
		return func() (any, error) {
			op, err := reg.Lookup(name)
			if err != nil {
				t.Fatal(err)
			}
			return op.CallReturning(t.Context(), args...)
		}
	}
	float8 := registry.Float8E4M3(own)
	// AIter's numbers of element types.
	kinds := map[tensor.DType]int64{float8: 0, tensor.Float8E8M0FNU: 1, tensor.Float16: 2, tensor.BFloat16: 3, tensor.Float32: 4,
		tensor.Int4x2:         5,
		tensor.Float4E2M1FNx2: 6, tensor.UInt32: 7, tensor.Int32: 8, tensor.Int16: 9, tensor.Int8: 10, tensor.UInt8: 11, tensor.Bool: 11,
		tensor.Int64: 12, tensor.UInt64: 13}
	for dt, kind := range kinds {
		if got, err := call("kind", upload(dt), []int64{4, -1, 2}, "xy")(); err != nil || got != kind*1000+7 {
			t.Errorf("%s: got %v, %v, want %d", dt, got, err, kind*1000+7)
		}
	}
	x := upload(tensor.Float32)
	for _, c := range []struct {
		call func() (any, error)
		want any
	}{{call("kind", x, []int64{}), int64(4000)},
		{call("same", x, upload(tensor.Float32)), true}, {call("same", x, upload(tensor.Int32)), false},
		{call("same", x), false}, {call("half", x, 3.0), 1.5},
		{call("twice", x, 1.5), 3.0}, {call("twice", x, nil), -2.0}, {call("twice", x), -2.0}} {
		if got, err := c.call(); err != nil || got != c.want {
			t.Errorf("got %v, %v, want %v", got, err, c.want)
		}
	}
	other := map[tensor.DType]tensor.DType{tensor.Float8E4M3FN: tensor.Float8E4M3FNUZ, tensor.Float8E4M3FNUZ: tensor.Float8E4M3FN}[float8]
	for words, c := range map[string]func() (any, error){
		"argument 'list': expected less than 4 integers, got 4 integers":              call("kind", x, []int64{1, 2, 3, 4}),
		"argument 'x': expected dtype " + float8.String() + ", the 8-bit float":       call("kind", upload(other), []int64{}),
		"argument 'x': AIter has no element type with DLPack's code 12, 8 bits and 1": call("kind", upload(tensor.Float8E5M2), []int64{}),
		"argument 'v': expected a number of 4 bytes, got 1e+300":                      call("twice", x, 1e300),
		"argument 'v': expected less than 4, got 5":                                   call("twice", x, 5.0),
	} {
		checkError(t, words, func() error { _, err := c(); return err })
	}
}
