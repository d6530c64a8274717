// What the causal_conv1d operators on the CPU share, compiled for each instruction set (cpu/fwd_levels.h), and the copies of tiles
// from and to memory.

#include "cpu.h"

#define AITER_CPU_FILE <../kernels/causal_conv1d/cpu/fwd_levels.h>
#include <aiter/cpu_each.h>

namespace aiter::conv1d {

const Kernels& kernels(DType dtype) { return AITER_CPU_CALL(conv1d::kernels(dtype)); }

void tile_sums(const Problem& p, const Filter& filter, int64_t b, int64_t t, int64_t n, const float* x, float* y, bool activate) {
  AITER_CPU_CALL(conv1d::tile_sums(p, filter, b, t, n, x, y, activate));
}

void ChannelLastFilter::read(const Problem& p, int64_t d, int64_t count) {
  width = p.width, channels = count, silu = p.silu;
  for (int64_t k = 0; k <= width; k++) {
    const Array2& a = k < width ? p.weight : p.bias;
    float* to = k < width ? weight + k * count : bias;
    if (!a.data) memset(to, 0, count * sizeof(float));
    else if (dtype_size(a.dtype) == 4) column<float>(a, d, k % width, to);
    else column<half_t>(a, d, k % width, to);
  }
}

// column reads tap k. T is any type of the elements' size.
template <class T> void ChannelLastFilter::column(const Array2& a, int64_t d, int64_t k, float* to) const {
  const T* from = static_cast<const T*>(a.data) + d * a.first + k * a.last;
  const Kernels& table = kernels(a.dtype);
  T some[64];
  for (int64_t c = 0, n; c < channels; c += n) {
    n = least(64, channels - c);
    for (int64_t i = 0; i < n; i++) some[i] = from[(c + i) * a.first];
    table.widen(some, n, to + c);
  }
}

template <class T>
static void gather_columns(const Array3& a, const Channels& c, int64_t from, int64_t n, float* rows) {
  for (int j = 0; j < c.count; j++) {
    const T* p = a.row<T>(c.b, c.d + j) + from * a.last;
    for (int64_t i = 0; i < n; i++) rows[i * kChannels + j] = to_float(p[i * a.last]);
  }
}

template <class T>
static void scatter_columns(const Array3& a, const Channels& c, int64_t from, int64_t n, const float* rows) {
  for (int j = 0; j < c.count; j++) {
    T* p = a.row<T>(c.b, c.d + j) + from * a.last;
    for (int64_t i = 0; i < n; i++) p[i * a.last] = round_to<T>(rows[i * kChannels + j]);
  }
}

// position returns the address of element (b, d, t).
static char* position(const Array3& a, DType dtype, const Channels& c, int64_t t) {
  return static_cast<char*>(a.data) + (c.b * a.batch + c.d * a.dim + t * a.last) * dtype_size(dtype);
}

void gather(const Array3& a, DType dtype, const Channels& c, int64_t from, int64_t n, float* rows) {
  if (c.count < kChannels) memset(rows, 0, n * kChannels * sizeof(float));
  if (a.dim == 1) return kernels(dtype).widen_tile(position(a, dtype, c, from), a.last, n, c.count, rows);
  if (dtype == DType::F32) gather_columns<float>(a, c, from, n, rows);
  else if (dtype == DType::F16) gather_columns<half_t>(a, c, from, n, rows);
  else gather_columns<bf16_t>(a, c, from, n, rows);
}

void scatter(const Array3& a, DType dtype, const Channels& c, int64_t from, int64_t n, const float* rows) {
  if (a.dim == 1) return kernels(dtype).narrow_tile(rows, n, c.count, position(a, dtype, c, from), a.last);
  if (dtype == DType::F32) scatter_columns<float>(a, c, from, n, rows);
  else if (dtype == DType::F16) scatter_columns<half_t>(a, c, from, n, rows);
  else scatter_columns<bf16_t>(a, c, from, n, rows);
}

}  // namespace aiter::conv1d
