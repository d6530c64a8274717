//go:build linux

package registry_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/aiter-go/aiter/registry"
	"github.com/aiter-go/aiter/tensor"
)

// presetConfig declares one signature twice: for code with aiter/ffi.h, and for plain code that
// has no defaults of its own.
const presetConfig = `
[module.module_preset]
defaults = false
include = ["csrc/include"]
flags.common = ["-O1", "-std=c++17"]
[[module.module_preset.source]]
path = "csrc/preset.cpp"
[[module.module_preset.op]]
name = "preset"
schema = '''(Tensor(a!) out, float eps=1e-6, int n=-3, bool flag=True, str mode="exact", str long="sixteen letters.",
    Tensor? more=None, float? scale=None) -> ()'''
[[module.module_preset.op]]
name = "preset_plain"
schema = '''(Tensor(a!) out, float eps=1e-6, int n=-3, bool flag=True, str mode="exact", str long="sixteen letters.",
    Tensor? more=None, float? scale=None) -> ()'''
`

const presetSource = `
#include <aiter/ffi.h>
namespace aiter {
// sum gives different texts different numbers.
static double sum(StringView s) {
  double n = 0;
  for (size_t i = 0; i < s.size; i++) n += double(i + 1) * (unsigned char)s.data[i];
  return n;
}
static Status preset(TensorView out, double eps, int64_t n, bool flag, StringView mode, StringView longer,
                     Optional<TensorView> more, Optional<double> scale) {
  double* p = out.as<double>();
  p[0] = eps, p[1] = double(n), p[2] = flag, p[3] = sum(mode), p[4] = sum(longer), p[5] = more.given, p[6] = scale.given ? *scale : -1;
  return Status();
}
static Status plain(const TVMFFIAny* args, int32_t n) {
  static const ArgSpec specs[] = {arg("out"), arg("eps"), arg("n"), arg("flag"), arg("mode"), arg("long"), arg("more"), arg("scale")};
  return Values<std::index_sequence<0, 1, 2, 3, 4, 5, 6, 7>, TensorView, double, int64_t, bool, StringView, StringView,
                Optional<TensorView>, Optional<double>>().pass(preset, specs, args, n);
}
}
AITER_EXPORT(preset, preset, arg("out"), real("eps", 1e-6), integer("n", -3), flag("flag", true), text("mode", "exact"),
             text("long", "sixteen letters."), none("more"), none("scale"))
extern "C" __attribute__((visibility("default"))) int32_t __tvm_ffi_preset_plain(void*, const aiter::TVMFFIAny* args, int32_t n,
                                                                                 aiter::TVMFFIAny*) {
  const aiter::Status s = aiter::plain(args, n);
  return s.failed() ? aiter::raise("preset_plain", s) : 0;
}
`

func sum(s string) (n float64) {
	for i, c := range []byte(s) {
		n += float64(i+1) * float64(c)
	}
	return n
}

// TestDefaultsOfEachType checks that a call may leave out an argument of any type with a default,
// whether or not the C++ code has the default too, and that a str reaches the code.
func TestDefaultsOfEachType(t *testing.T) {
	reg := open(t, registry.Options{Root: sourceTree(t, presetConfig, map[string]string{"csrc/preset.cpp": presetSource})})
	out, err := tensor.New(tensor.Float64, 7)
	if err != nil {
		t.Fatal(err)
	}
	exact, long := sum("exact"), sum("sixteen letters.")
	for _, name := range []string{"preset", "preset_plain"} {
		op, err := reg.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			args []any
			want []float64
		}{
			{nil, []float64{1e-6, -3, 1, exact, long, 0, -1}},
			{[]any{0.5}, []float64{0.5, -3, 1, exact, long, 0, -1}},
			{[]any{2, 7, false}, []float64{2, 7, 0, exact, long, 0, -1}},
			{[]any{2, 7, false, ""}, []float64{2, 7, 0, 0, long, 0, -1}},
			{[]any{2, 7, false, "é7bytes"}, []float64{2, 7, 0, sum("é7bytes"), long, 0, -1}},
			{[]any{2, 7, false, "7 bytes", "8 bytes."}, []float64{2, 7, 0, sum("7 bytes"), sum("8 bytes."), 0, -1}},
			{[]any{2, 7, false, "longer than eight bytes", "of another length, too", out, 4.5},
				[]float64{2, 7, 0, sum("longer than eight bytes"), sum("of another length, too"), 1, 4.5}},
		} {
			if err := op.Call(t.Context(), append([]any{out}, c.args...)...); err != nil {
				t.Errorf("%s%v: %v", name, c.args, err)
				continue
			}
			if got, err := out.Float64s(); err != nil || fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("%s%v: got %v, %v, want %v", name, c.args, got, err, c.want)
			}
		}
		var wrong *registry.TypeError
		err = op.Call(t.Context(), out, 0.5, 1, true, 5)
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), "argument 5 (mode): expected str, got int") {
			t.Errorf("%s with a number as text: %v", name, err)
		}
		err = op.Call(t.Context(), out, 0.5, 1, true, "a\x00b")
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), "argument 5 (mode): expected str, got string with a NUL byte") {
			t.Errorf("%s with a NUL: %v", name, err)
		}
	}
}
