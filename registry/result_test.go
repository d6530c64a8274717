//go:build linux

package registry_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

const typesConfig = `
[module.module_types]
defaults = false
include = ["csrc/include"]
flags.common = ["-O1", "-std=c++17"]
[[module.module_types.source]]
path = "csrc/types.cpp"
[[module.module_types.op]]
name = "pick"
schema = "(Tensor(a!) out, Tensor x, str mode, int[] at, int[2]? range=None) -> int"
[[module.module_types.op]]
name = "widen"
schema = "(Tensor(a!) out, Tensor x) -> int"
args.out = { shape = "(N)", output = true }
args.x = { shape = "(N)", dtype = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2"] }
split = ["N"]
[[module.module_types.op]]
name = "ordered"
schema = "(int[] list, int[]? more=[3]) -> bool"
[[module.module_types.op]]
name = "counter"
schema = "(int[] list) -> int"
[[module.module_types.op]]
name = "kind"
schema = "(Tensor x) -> int"
args.x = { dtype = ["float8_e8m0fnu", "float4_e2m1fn_x2", "int4x2"] }
[[module.module_types.op]]
name = "nothing"
schema = "(Tensor x) -> ()"
`

// typesSource exports ordered without a signature, so that its schema may have a default that the C++ code lacks.
const typesSource = `
#include <aiter/check.h>
#include <aiter/ffi.h>
namespace aiter {
static Result<int64_t> pick(TensorView out, TensorView x, StringView mode, IntListView at, Optional<IntListView> range) {
  AITER_TRY(check_float(x));
  const bool negate = mode.size == 6 && !__builtin_memcmp(mode.data, "negate", 6);
  if (!negate && mode.size != 4) return value_error("argument 'mode': expected copy or negate, got %.*s", int(mode.size), mode.data);
  int64_t n = 0;
  for (size_t i = 0; i < at.size(); i++) {
    if (at[i] < 0 || at[i] >= x.size(0)) return value_error("argument 'at': %lld is out of range", static_cast<long long>(at[i]));
    if (range && (at[i] < (*range)[0] || at[i] >= (*range)[1])) continue;
    const float v = x.as<float>()[at[i]];
    out.as<float>()[n++] = negate ? -v : v;
  }
  return n;
}
// widen computes the values of 8-bit floats from their bits, and returns the number of finite ones.
static Result<int64_t> widen(TensorView out, TensorView x) {
  const int code = x.raw_dtype().code, man_bits = code == 12 ? 2 : 3, bias = code == 12 ? 15 : code == 11 ? 8 : 7;
  if (x.raw_dtype().bits != 8 || code < 10 || code > 12) return type_error("argument 'x': got %s", dtype_text(x).data);
  int64_t finite = 0;
  for (int64_t i = 0; i < x.size(0); i++) {
    const int bits = x.as<unsigned char>()[i], exp = (bits & 127) >> man_bits, man = bits & ((1 << man_bits) - 1);
    float v = exp ? 1 + float(man) / float(1 << man_bits) : float(man) / float(1 << man_bits);
    v = __builtin_ldexpf(v, (exp ? exp : 1) - bias);
    if (bits & 128) v = -v;
    if (code == 10 && (bits & 127) == 127) v = __builtin_nanf("");
    if (code == 11 && bits == 128) v = __builtin_nanf("");
    if (code == 12 && exp == 31) v = man ? __builtin_nanf("") : bits & 128 ? -__builtin_inff() : __builtin_inff();
    finite += v - v == 0;
    out.as<float>()[i] = v;
  }
  return finite;
}
static Result<bool> ordered(IntListView list, IntListView more) {
  for (size_t i = 1; i < list.size(); i++)
    if (list[i - 1] > list[i]) return false;
  return more.size() == 1 && (!list.size() || list[list.size() - 1] <= more[0]);
}
// kind returns the type and the first byte of a tensor.
static Result<int64_t> kind(TensorView x) {
  const DLDataType d = x.raw_dtype();
  return int64_t(d.code) << 24 | int64_t(d.bits) << 16 | int64_t(d.lanes) << 8 | static_cast<const unsigned char*>(x.data())[0];
}
static Status nothing(TensorView) { return Status(); }
static Result<int64_t> counter(IntListView) {
  static int64_t calls = 0;
  return ++calls;
}
}
AITER_EXPORT(counter, counter, arg("list"))
AITER_EXPORT(pick, pick, arg("out"), arg("x"), arg("mode"), arg("at"), none("range"))
AITER_EXPORT(widen, widen, arg("out"), arg("x"))
AITER_EXPORT(kind, kind, arg("x"))
AITER_EXPORT(nothing, nothing, arg("x"))
extern "C" __attribute__((visibility("default"))) int32_t __tvm_ffi_ordered(void*, const aiter::TVMFFIAny* args, int32_t n,
                                                                            aiter::TVMFFIAny* result) {
  static const aiter::ArgSpec specs[] = {aiter::arg("list"), aiter::arg("more")};
  return aiter::call("ordered", aiter::ordered, specs, args, n, result);
}
`

// TestListsAndResults builds operators with str, int[] and results, and calls them.
func TestListsAndResults(t *testing.T) {
	for _, verified := range []bool{false, true} {
		reg := open(t, registry.Options{Root: sourceTree(t, typesConfig, map[string]string{"csrc/types.cpp": typesSource}), Verify: verified})
		out, err := tensor.New(tensor.Float32, 4)
		if err != nil {
			t.Fatal(err)
		}
		x, err := tensor.Of([]float32{10, 11, 12, 13})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			op   string
			args []any
			want any // a value, or the text of the error
			fail bool
		}{
			{"pick", []any{out, x, "negate", []int64{3, 0}}, int64(2), false},
			{"pick", []any{out, x, "copy", []int{3, 0, 1}, []int32{1, 4}}, int64(2), false},
			{"pick", []any{out, x, "copy", []int64{}}, int64(0), false},
			{"pick", []any{out, x, "copy", []int64(nil), []int64(nil)}, int64(0), false},
			{"pick", []any{out, x, "copy", []int64{4}}, "argument 'at': 4 is out of range", true},
			{"pick", []any{out, x, "a longer mode", []int64{0}}, "expected copy or negate, got a longer mode", true},
			{"pick", []any{out, x, "copy", []float64{0}}, "argument 4 (at): expected int[], got []float64", true},
			{"pick", []any{out, x, "copy", 3}, "argument 4 (at): expected int[], got int", true},
			{"pick", []any{out, x, "copy", []int64{0}, []int64{1, 2, 3}}, "argument 5 (range): expected int[2]?", true},
			{"pick", []any{out, x, "copy", nil}, "argument 4 (at): expected int[]", true},
			{"ordered", []any{[]int64{1, 2}}, true, false},
			{"ordered", []any{[]int64{1, 4}}, false, false},
			{"ordered", []any{[]int64{2, 1}, []int{5}}, false, false},
			{"nothing", []any{x}, "nothing: result: its schema has the result (), expected int, bool or float", true},
		} {
			op, err := reg.Lookup(c.op)
			if err != nil {
				t.Fatal(err)
			}
			got, err := op.CallReturning(t.Context(), c.args...)
			if c.fail {
				if err == nil || !strings.Contains(err.Error(), c.want.(string)) {
					t.Errorf("%s%v: error %v, want %q", c.op, c.args, err, c.want)
				}
			} else if err != nil || got != c.want {
				t.Errorf("%s%v: got %v, %v, want %v", c.op, c.args, got, err, c.want)
			}
		}
		op, err := reg.Lookup("pick")
		if err != nil {
			t.Fatal(err)
		}
		if err := op.Call(t.Context(), out, x, "negate", []int64{2, 1}); err != nil {
			t.Error(err)
		}
		if got, _ := out.Float64s(); got[0] != -12 || got[1] != -11 {
			t.Errorf("Call wrote %v", got)
		}
		if op, err = reg.Lookup("counter"); err != nil {
			t.Fatal(err)
		}
		var differ *registry.ResultError
		got, err := op.CallReturning(t.Context(), []int64{})
		if verified && (!errors.As(err, &differ) || !strings.Contains(err.Error(), "counter: result: verification: ")) {
			t.Errorf("results that differ: %v, %v", got, err)
		}
		if n, ok := got.(int64); !verified && (err != nil || !ok || n < 1) {
			t.Errorf("counter: %v, %v", got, err)
		}
	}
}

// TestDeviceWithoutTensors calls an operator without tensors. The call runs on the device of the stream.
func TestDeviceWithoutTensors(t *testing.T) {
	for _, verified := range []bool{false, true} {
		reg := open(t, registry.Options{Root: sourceTree(t, typesConfig, map[string]string{"csrc/types.cpp": typesSource}), Verify: verified})
		op := lookup(t, reg, "ordered")
		on := func(dev tensor.Device) (any, error) {
			return op.CallReturning(device.WithStream(t.Context(), device.Stream{Device: dev}), []int64{1, 2})
		}
		if got, err := on(tensor.Host()); err != nil || got != true {
			t.Errorf("on the CPU: %v, %v", got, err)
		}
		var other *registry.StreamDeviceError
		if _, err := on(tensor.Device{Type: tensor.ROCM, ID: 99}); err == nil || errors.As(err, &other) {
			t.Errorf("on a device that is missing: %v", err)
		}
	}
}

// TestFloat8Arguments passes all codes of each type to C++, and compares its values with those of package tensor.
func TestFloat8Arguments(t *testing.T) {
	reg := open(t, registry.Options{Root: sourceTree(t, typesConfig, map[string]string{"csrc/types.cpp": typesSource})})
	op, err := reg.Lookup("widen")
	if err != nil {
		t.Fatal(err)
	}
	out, err := tensor.New(tensor.Float32, 256)
	if err != nil {
		t.Fatal(err)
	}
	finite := map[tensor.DType]int64{tensor.Float8E4M3FN: 254, tensor.Float8E4M3FNUZ: 255, tensor.Float8E5M2: 248}
	for dt, want := range finite {
		x, err := tensor.New(dt, 256)
		if err != nil {
			t.Fatal(err)
		}
		codes, err := x.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		for i := range codes {
			codes[i] = byte(i)
		}
		if n, err := op.CallReturning(t.Context(), out, x); err != nil || n != want {
			t.Errorf("%s: %v, %v, want %d", dt, n, err, want)
		}
		inC, errC := out.Float64s()
		inGo, errGo := x.Float64s()
		if err := errors.Join(errC, errGo); err != nil {
			t.Fatal(err)
		}
		for i, v := range inC {
			if v != inGo[i] && (v == v || inGo[i] == inGo[i]) {
				t.Errorf("%s %#x: %g in C++, %g in Go", dt, i, v, inGo[i])
			}
		}
	}
	x, err := tensor.New(tensor.Float8E8M0FNU, 4)
	if err != nil {
		t.Fatal(err)
	}
	var wrong *registry.ArgumentError
	if _, err := op.CallReturning(t.Context(), out, x); !errors.As(err, &wrong) || !strings.Contains(err.Error(), "float8_e8m0fnu") {
		t.Errorf("float8_e8m0fnu: %v", err)
	}
}

// TestSmallTypes passes the types of scales and of two numbers in a byte to C++.
func TestSmallTypes(t *testing.T) {
	reg := open(t, registry.Options{Root: sourceTree(t, typesConfig, map[string]string{"csrc/types.cpp": typesSource})})
	op := lookup(t, reg, "kind")
	for dt, want := range map[tensor.DType]int64{tensor.Float8E8M0FNU: 14<<24 | 8<<16 | 1<<8, tensor.Float4E2M1FNx2: 17<<24 | 4<<16 | 2<<8,
		tensor.Int4x2: 4<<16 | 2<<8} {
		x, err := tensor.New(dt, 3)
		if err != nil {
			t.Fatal(err)
		}
		codes, err := x.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		if codes[0] = 0x5a; len(codes) != 3 {
			t.Errorf("%s: %d bytes for 3 elements", dt, len(codes))
		}
		if got, err := op.CallReturning(t.Context(), x); err != nil || got != want|0x5a {
			t.Errorf("%s: got %#x, %v, want %#x", dt, got, err, want|0x5a)
		}
	}
	var wrong *registry.ArgumentError
	if _, err := op.CallReturning(t.Context(), host(t, tensor.Int8, 3)); !errors.As(err, &wrong) || !strings.Contains(err.Error(), "int4x2") {
		t.Errorf("int8: %v", err)
	}
}

// TestCallHostReturning makes calls on host memory. A call with a result is not split, because the operator counts all elements.
func TestCallHostReturning(t *testing.T) {
	root := sourceTree(t, typesConfig, map[string]string{"csrc/types.cpp": typesSource})
	for _, verified := range []bool{false, true} {
		reg := open(t, registry.Options{Root: root, Verify: verified})
		op, err := reg.Lookup("widen")
		if err != nil {
			t.Fatal(err)
		}
		out, x := host(t, tensor.Float32, 256), host(t, tensor.Float8E4M3FN, 256)
		codes, err := x.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		for i := range codes {
			codes[i] = byte(i)
		}
		if units := op.Axes(out, x); len(units) != 1 || units[0] != 256 {
			t.Fatalf("units %v: a call without a result can be split", units)
		}
		for name, call := range map[string]func(...any) (any, error){
			"in pieces": func(args ...any) (any, error) {
				return op.CallPiecesReturning(t.Context(), registry.HostOptions{Piece: 64}, args...)
			},
			"on the CPU": func(args ...any) (any, error) { return op.CallHostReturning(t.Context(), tensor.Host(), args...) },
		} {
			if err := out.SetFloat64s(make([]float64, 256)); err != nil {
				t.Fatal(err)
			}
			n, err := call(out, x)
			if got, _ := out.Float64s(); err != nil || n != int64(254) || got[0x08] != 1.0/64 || got[0xf8] != -256 {
				t.Errorf("%s: %v, %v, want 254; 0x08 is %v", name, n, err, got[8])
			}
			var wrong *registry.ArgumentError
			if _, err := call(out, host(t, tensor.Float32, 256)); !errors.As(err, &wrong) {
				t.Errorf("%s: a wrong type: %v", name, err)
			}
		}
		if op, err = reg.Lookup("nothing"); err != nil {
			t.Fatal(err)
		}
		var none *registry.ResultError
		if _, err := op.CallHostReturning(t.Context(), tensor.Device{Type: tensor.ROCM}, x); !errors.As(err, &none) {
			t.Errorf("an operator without a result: %v", err)
		}
	}
}
