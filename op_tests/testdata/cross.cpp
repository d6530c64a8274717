// Holds the CPU kernels to the formulas in double, in a program that needs neither Go
// nor Python: for processors that only an emulator has.

#include <aiter/ffi.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <initializer_list>

using namespace aiter;

#define OP(name) extern "C" int32_t __tvm_ffi_##name(void*, const TVMFFIAny*, int32_t, TVMFFIAny*) noexcept
OP(causal_conv1d_fwd);
OP(causal_conv1d_bwd);
OP(causal_conv1d_update);

static uint32_t seed = 1;
static float random_value() { return float((seed = seed * 1664525u + 1013904223u) >> 8) / float(1 << 23) - 1.0f; }

// Array is a tensor of rank 2 or 3 and its values.
struct Array {
  static constexpr int kMost = 1 << 15;
  DType type;
  int rank;
  int64_t shape[3], strides[3], count;
  DLTensor view;
  alignas(64) char memory[4 * kMost];

  void make(DType t, int64_t a, int64_t b, int64_t c, bool last) {
    type = t, rank = c < 0 ? 2 : 3;
    shape[0] = a, shape[1] = b, shape[2] = c < 0 ? 1 : c, count = a * b * shape[2];
    strides[0] = b * shape[2], strides[1] = last ? 1 : shape[2], strides[2] = last ? b : 1;
    if (count > kMost) abort();
    const bool wide = t == DType::F32;
    const uint8_t code = t == DType::BF16 ? 4 : 2, bits = wide ? 32 : 16;
    view = {memory + (wide ? 4 : 2), {kCPU, 0}, rank, {code, bits, 1}, shape, strides, 0};  // off by one element
    for (int64_t i = 0; i < count; i++) store(view.data, type, i, random_value());
  }
  double at(int64_t a, int64_t b, int64_t c) const { return load(view.data, type, a * strides[0] + b * strides[1] + c * strides[2]); }
  TVMFFIAny any() {
    TVMFFIAny v{};
    v.type_index = kDLTensorPtr, v.v_ptr = &view;
    return v;
  }
};

static TVMFFIAny yes(bool v) {
  TVMFFIAny a{};
  a.type_index = kBool, a.v_int64 = v;
  return a;
}

static Array x, dout, weight, bias, out, dx, dweight, dbias, state, next;
static int failures, checks;

static void near(const char* what, DType type, double got, double want) {
  const double rel = type == DType::F32 ? 3e-5 : type == DType::F16 ? 2e-3 : 1e-2;
  checks++;
  if (fabs(got - want) <= rel * fabs(want) + rel) return;
  if (failures++ < 10) printf("%s %s: got %g, want %g\n", what, dtype_name(type), got, want);
}

static double sum(int64_t b, int64_t d, int64_t t, int64_t W) {
  double y = bias.at(d, 0, 0);
  for (int64_t k = 0; k < W; k++)
    if (t - (W - 1) + k >= 0) y += weight.at(d, k, 0) * x.at(b, d, t - (W - 1) + k);
  return y;
}

static void forward_and_backward(DType type, int64_t B, int64_t D, int64_t L, int64_t W, bool silu, bool last) {
  x.make(type, B, D, L, last), dout.make(type, B, D, L, last), out.make(type, B, D, L, last), dx.make(type, B, D, L, last);
  weight.make(DType::F32, D, W, -1, false), bias.make(DType::F32, D, 1, -1, false);
  dweight.make(DType::F32, D, W, -1, false), dbias.make(DType::F32, D, 1, -1, false);
  bias.view.ndim = dbias.view.ndim = 1;
  const TVMFFIAny f[] = {out.any(), x.any(), weight.any(), bias.any(), yes(silu)};
  const TVMFFIAny g[] = {dx.any(), dweight.any(), dbias.any(), x.any(), weight.any(), bias.any(), dout.any(), yes(silu)};
  if (__tvm_ffi_causal_conv1d_fwd(nullptr, f, 5, nullptr) || __tvm_ffi_causal_conv1d_bwd(nullptr, g, 8, nullptr)) failures++;
  static double grad[Array::kMost];
  for (int64_t d = 0; d < D; d++) {
    double db = 0, dw[16] = {};
    for (int64_t b = 0; b < B; b++) {
      for (int64_t t = 0; t < L; t++) {
        const double p = sum(b, d, t, W), s = silu ? 1 / (1 + exp(-p)) : 1;
        near("out", type, out.at(b, d, t), p * s);
        grad[t] = dout.at(b, d, t) * (silu ? s * (1 + p * (1 - s)) : 1), db += grad[t];
        for (int64_t k = 0; k < W; k++)
          if (t - (W - 1) + k >= 0) dw[k] += grad[t] * x.at(b, d, t - (W - 1) + k);
      }
      for (int64_t t = 0; t < L; t++) {
        double want = 0;
        for (int64_t k = 0; k < W && t + k < L; k++) want += weight.at(d, W - 1 - k, 0) * grad[t + k];
        near("dx", type, dx.at(b, d, t), want);
      }
    }
    near("dbias", DType::F32, dbias.at(d, 0, 0), db);
    for (int64_t k = 0; k < W; k++) near("dweight", DType::F32, dweight.at(d, k, 0), dw[k]);
  }
}

static void update(DType type, int64_t B, int64_t D, int64_t W, bool last) {
  x.make(type, B, D, -1, false), out.make(type, B, D, -1, false), state.make(type, B, D, W - 1, last);
  weight.make(DType::F32, D, W, -1, false), bias.make(DType::F32, D, 1, -1, false);
  bias.view.ndim = 1;
  next = state, next.view.data = next.memory + (static_cast<char*>(state.view.data) - state.memory);
  next.view.shape = next.shape, next.view.strides = next.strides;
  const TVMFFIAny args[] = {out.any(), x.any(), next.any(), weight.any(), bias.any(), yes(true)};
  if (__tvm_ffi_causal_conv1d_update(nullptr, args, 6, nullptr)) failures++;
  for (int64_t b = 0; b < B; b++)
    for (int64_t d = 0; d < D; d++) {
      double p = bias.at(d, 0, 0) + weight.at(d, W - 1, 0) * x.at(b, d, 0);
      for (int64_t k = 0; k < W - 1; k++) {
        p += weight.at(d, k, 0) * state.at(b, d, k);
        const double want = k + 1 < W - 1 ? state.at(b, d, k + 1) : x.at(b, d, 0);
        if (next.at(b, d, k) != want) failures++;
      }
      near("update", type, out.at(b, d, 0), p / (1 + exp(-p)));
    }
}

int main() {
  const DType types[] = {DType::F32, DType::F16, DType::BF16};
  const int64_t sizes[][3] = {{1, 1, 1}, {2, 3, 17}, {1, 20, 64}, {2, 40, 67}, {1, 18, 300}, {1, 1, 9000}, {2, 33, 131}};
  for (DType type : types)
    for (const auto& s : sizes)
      for (int64_t W : {1, 4, 9})
        for (int last = 0; last < 2; last++) forward_and_backward(type, s[0], s[1], s[2], W, W != 1, last);
  for (DType type : types)
    for (int last = 0; last < 2; last++) update(type, 3, 150, 4, last), update(type, 2, 5, 2, last);
  printf("%d values, %d failures\n", checks, failures);
  return failures != 0;
}
