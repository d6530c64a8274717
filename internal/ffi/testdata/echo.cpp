// A module of small operators for the tests of internal/ffi.

#include <aiter/check.h>
#include <aiter/ffi.h>
#include <aiter/tuning.h>

namespace aiter {

static Status noop(TensorView, TensorView, TensorView, Optional<TensorView>, bool, int64_t, double, bool) { return Status(); }

// fail raises an error of its own for every n, so that mixed-up errors show.
static Status fail(int64_t n) { return value_error("number %lld", static_cast<long long>(n)); }

// values writes what it was given, or its defaults, into out.
static Status values(TensorView out, int64_t i, bool b, Optional<TensorView> t) {
  int32_t* p = out.as<int32_t>();
  p[0] = int32_t(i), p[1] = b, p[2] = t.given;
  return Status();
}

static Status real(TensorView out, double v) {
  *out.as<float>() = float(v);
  return Status();
}

// presets writes a number, and a text's length and last byte.
static Status presets(TensorView out, double v, StringView s) {
  float* p = out.as<float>();
  p[0] = float(v), p[1] = float(s.size), p[2] = s.size ? float(s.data[s.size - 1]) : 0;
  return Status();
}

// list returns the sum of the numbers times their positions from 1 on, -1 for no list, and an error if first is negative.
static Result<int64_t> list(Optional<IntListView> numbers) {
  if (!numbers) return -1;
  int64_t sum = 0;
  for (size_t i = 0; i < numbers->size(); i++) sum += int64_t(i + 1) * (*numbers)[i];
  if (numbers->size() && (*numbers)[0] < 0) return value_error("first is %lld", static_cast<long long>((*numbers)[0]));
  return sum;
}

static Result<bool> both(bool a, bool b) { return a && b; }
static Result<double> half(double v) { return v / 2; }

// stream writes the number of the device's stream.
static Status stream(TensorView out, int64_t type, int64_t id) {
  *out.as<int32_t>() = int32_t(reinterpret_cast<intptr_t>(TVMFFIEnvGetStream(int32_t(type), int32_t(id))));
  return Status();
}

// convert rounds in to out's type, element by element, and back if in is not float32.
static Status convert(TensorView out, TensorView in) {
  for (int64_t i = 0; i < in.size(0); i++) store(out.data(), out.dtype(), i, load(in.data(), in.dtype(), i));
  return Status();
}

// meet writes whether a and b share memory, and whether a meets itself.
static Status meet(TensorView out, TensorView a, TensorView b) {
  AITER_TRY(check_float(a));
  AITER_TRY(check_float(b));
  out.as<int32_t>()[0] = overlaps(a, dtype_size(a.dtype()), b, dtype_size(b.dtype()));
  out.as<int32_t>()[1] = overlaps_itself(a, dtype_size(a.dtype()));
  return Status();
}

static_assert(dtype_size(DType::Other) == 0 && dtype_size(DType::Bool) == 1, "a type that no operator computes with has no size here");

// element writes which DType a type of DLPack's is, -1 if no operator computes with it.
static Status element(TensorView out, int64_t code, int64_t bits, int64_t lanes) {
  const DLTensor t = {nullptr, {kCPU, 0}, 0, {uint8_t(code), uint8_t(bits), uint16_t(lanes)}, nullptr, nullptr, 0};
  const DType type = TensorView(&t, "t").dtype();
  out.as<int32_t>()[0] = type == DType::Other ? -1 : int32_t(type);
  return Status();
}

// layout checks that of a float32 tensor of two dimensions.
static Status layout(int64_t data, int64_t rows, int64_t row, int64_t columns, int64_t column) {
  int64_t shape[] = {rows, columns}, strides[] = {row, column};
  const DLTensor t = {reinterpret_cast<void*>(data), {kCPU, 0}, 2, {2, 32, 1}, shape, strides, 0};
  return check_layout(TensorView(&t, "t"));
}

// packed is the same of three dimensions without strides.
static Status packed(int64_t a, int64_t b, int64_t c) {
  int64_t shape[] = {a, b, c};
  const DLTensor t = {reinterpret_cast<void*>(8), {kCPU, 0}, 3, {2, 32, 1}, shape, nullptr, 0};
  return check_layout(TensorView(&t, "t"));
}

// crowd checks n times the same tensor.
static Status crowd(TensorView t, int64_t n) {
  Tensors all;
  for (int64_t i = 0; i < n; i++) all.input(t);
  return all.check();
}

// wide checks an output of two int64 elements and an input of one, which starts so many bytes behind the output.
static Status wide(int64_t distance) {
  alignas(8) static char memory[64];
  int64_t two[] = {2}, one[] = {1};
  const DLTensor out = {memory, {kCPU, 0}, 1, {0, 64, 1}, two, nullptr, 0};
  const DLTensor in = {memory + distance, {kCPU, 0}, 1, {0, 64, 1}, one, nullptr, 0};
  const TensorView a(&out, "out"), b(&in, "in");
  Tensors all;
  all.output(a), all.input(b);
  return all.check();
}

// launch_param writes the value of the launch parameter "width", -1 without one.
static Status launch_param(TensorView out) {
  *out.as<float>() = float(tuned("width", -1));
  return Status();
}

}  // namespace aiter

AITER_EXPORT(launch_param, launch_param, arg("out"))
AITER_EXPORT(crowd, crowd, arg("t"), arg("n"))
AITER_EXPORT(wide, wide, arg("distance"))
AITER_EXPORT(noop, noop, arg("a"), arg("b"), arg("c"), none("d"), flag("e", false), integer("f", -1), arg("g"), arg("h"))
AITER_EXPORT(fail, fail, arg("n"))
AITER_EXPORT(values, values, arg("out"), integer("i", -7), flag("b", true), none("t"))
AITER_EXPORT(list, list, arg("numbers"))
AITER_EXPORT(both, both, arg("a"), arg("b"))
AITER_EXPORT(half, half, arg("v"))
AITER_EXPORT(real, real, arg("out"), arg("v"))
AITER_EXPORT(presets, presets, arg("out"), real("v", -2.5), text("s", "abc"))
AITER_EXPORT(stream, stream, arg("out"), arg("type"), arg("id"))
AITER_EXPORT(convert, convert, arg("out"), arg("in"))
AITER_EXPORT(meet, meet, arg("out"), arg("a"), arg("b"))
AITER_EXPORT(element, element, arg("out"), arg("code"), arg("bits"), arg("lanes"))
AITER_EXPORT(layout, layout, arg("data"), arg("rows"), arg("row"), arg("columns"), arg("column"))
AITER_EXPORT(packed, packed, arg("a"), arg("b"), arg("c"))

// silent fails without raising anything.
extern "C" __attribute__((visibility("default"))) int32_t __tvm_ffi_silent(void*, const aiter::TVMFFIAny*, int32_t,
                                                                           aiter::TVMFFIAny*) {
  return -1;
}
