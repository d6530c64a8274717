// What the kernels of causal_conv1d_bwd have in common: the launch, the filter's taps, the
// slope of SiLU, and sums over a block in one order, kept where they belong.
#pragma once

#include "../common/problem.h"
#include "warp_reduce.h"
#include "packed_vector.h"

namespace aiter::conv1d::bwd {

// AITER_BOUNDS: threads of a block, and blocks that an NVIDIA multiprocessor is to
// hold. AMD's compilers find the balance of registers and waves themselves, from two
// waves a SIMD unit on.
#if AITER_CUDA
#define AITER_BOUNDS(threads, blocks) __launch_bounds__(threads, blocks)
#else
#define AITER_BOUNDS(threads, blocks) __launch_bounds__(threads, 2)
#endif

// What positions see by their sequence numbers is a byte each: bit j says whether a position sees the one j before
// it. A row of them has some before the first position's and behind the last one's, which are looked up there.
constexpr int kSeenBefore = 16, kSeenBehind = 24;
AITER_SHARED constexpr int64_t seen_row(int64_t seqlen) { return (kSeenBefore + seqlen + kSeenBehind + 15) & ~int64_t(15); }

// Launch is the problem, and how it is cut. A *team* of neighbouring threads walks a
// *strip* of positions of one channel (rows), or a thread a strip of several channels
// (columns). Strips of a channel in one block are summed there; those in different
// blocks, the segments, go through slots of a workspace. Whatever is divided on the GPU
// is below 2^31.
struct Launch {
  Backward p;
  const uint8_t* seen;  // what each position sees, or of whole rows Planes of each vector, if the kernel before this looks it up
  float* slots;       // (segments, width+1, dim) sums; null: one segment, written where it belongs
  uint32_t items;     // blocks, however many are launched: segments x groups of channels
  uint32_t segments;  // blocks that share a channel
  uint32_t cluster;   // columns: segments that add up among themselves; 1: none do
  uint32_t total;     // chunks (rows) or units (columns) of a channel
  Divisor split;      // segments, or for columns without clusters groups
  Divisor parts;      // of a row: rows: chunks; columns: units
  int lane_bits;      // of threads: rows: of a team, 2^lane_bits; columns: side by side along the channels
  int channel_bits;   // rows: threads of a channel, one team or more
  int block_bits;     // rows: threads of a block
  int strip;          // rows: chunks of a strip; columns: units
  int in_flight;      // rows: chunks of a team, where shared memory has them
  int unit;           // columns: positions of a unit
  uint32_t longs;     // columns: so many segments have such strips; the others'
  int brief;          // have so many units
  uint32_t grid;      // rows: blocks that are launched
  int64_t step_x, step_dout, step_dx;  // columns, on NVIDIA: bytes from one position to the next
  bool dx_aligned;    // rows: positions of dx are neighbours
  bool peel;          // rows: not every row of dx starts on 16 bytes
  bool adjacent;      // rows: positions of x and of dout are neighbours
  bool aligned;       // rows: x, dout and dx lie alike towards 16 bytes
  bool whole;         // rows: so they do, all are whole vectors, for 2 taps or more, without what such kernels do not take

  // clustered: the segments of a channel are a cluster of blocks.
  AITER_DEVICE bool clustered() const { return AITER_CUDA && cluster > 1; }

  // keep puts the sum for tap k (width: the bias) of channel d where it belongs.
  AITER_DEVICE void keep(uint32_t segment, int64_t d, int k, float sum) const;
};

AITER_DEVICE void Launch::keep(uint32_t segment, int64_t d, int k, float sum) const {
  const bool tap = k < int(p.width);
  Array2 to = tap ? p.dweight : p.dbias;
  int64_t at = d * to.first + (tap ? k * to.last : 0);
  if (slots) to.data = slots, to.dtype = DType::F32, at = (int64_t(segment) * (p.width + 1) + k) * p.dim + d;
  if (!to.data) return;
  const auto whole = (Global<Vector1>)(to.data);
  const auto half = (Global<VectorHalf>)(to.data);
  if (to.dtype == DType::F32) whole[at] = float_to_bits(sum);
  else half[at] = to.dtype == DType::F16 ? to_half(sum).bits : to_bf16(sum).bits;
}

// rarely keeps the compiler from doing always what is done seldom.
AITER_DEVICE void rarely() {
#if AITER_CUDA
  asm volatile("");
#endif
}

// kept is v, which NVIDIA's compiler keeps in a register: else it computes it again every time.
AITER_DEVICE int kept(int v) {
#if AITER_CUDA
  asm volatile("" : "+r"(v));
#endif
  return v;
}
template <class T> AITER_DEVICE T* kept(T* p) {
#if AITER_CUDA
  asm volatile("" : "+l"(p));
#endif
  return p;
}

// slope is the derivative of silu at p, within a few units of float's last place.
AITER_DEVICE float slope(float p) {
  const float q = sigmoid(p);
  return fmaf(q, fmaf(-p, q, p), q);
}

// finite reports whether no value is an infinity or NaN.
template <int N> AITER_DEVICE bool finite(const float (&v)[N]) {
  float sum = 0.0f;
  AITER_UNROLL
  for (int i = 0; i < N; i++) sum = fmaf(v[i], 0.0f, sum);
  return sum == 0.0f;
}
AITER_DEVICE bool finite(float v) { return (float_to_bits(v) & 0x7f800000u) != 0x7f800000u; }

// finish_rows adds up the sums of each channel of a block over its threads, and keeps them.
template <int N>
AITER_DEVICE void finish_rows(const Launch& a, float (&sums)[N], uint32_t segment, int64_t first, float* shared) {
  const int bits = a.channel_bits < wave_bits() ? a.channel_bits : wave_bits(), self = int(threadIdx.x);
  int which = -1;
  float sum = 0.0f;
  if (AITER_CUDA && bits == 5) fold_apart(sums, self, 1, [&](int k, float v) { which = k, sum = v; });
  else fold_wave(sums, 1, 1 << bits);
  block_barrier();  // no thread needs its tiles any more
  if (which >= 0) shared[(self >> bits) * N + which] = sum;
  AITER_UNROLL
  for (int k = 0; k < N; k++)
    if (which < 0 && (self & ((1 << bits) - 1)) == 0) shared[(self >> bits) * N + k] = sums[k];
  block_barrier();
  const int skip = N - 1 - int(a.p.width), parts = 1 << (a.channel_bits - bits), threads = 1 << a.block_bits;
  AITER_ROLLED
  for (int n = self; n < (threads >> a.channel_bits) * N; n += threads) {
    const int k = n % N;
    const float* from = shared + n / N * parts * N + k;
    sum = from[0];
#pragma unroll 4
    for (int i = 1; i < parts; i++) sum += from[i * N];
    if (k >= skip && first + n / N < a.p.dim) a.keep(segment, first + n / N, k - skip, sum);
  }
  block_barrier();
}

// raw_value is an element of a tensor whose type is known at run time, of the bits that memory holds.
AITER_DEVICE float raw_value(DType dtype, uint32_t bits) {
  if (dtype == DType::F16) return to_float(half_t{uint16_t(bits)});
  return bits_to_float(dtype == DType::BF16 ? bits << 16 : bits);
}

// read_bits reads N elements, of 4 bytes or of 2, from base on, zeros before the one of index skip, which is the first there.
template <int N, bool kWide> AITER_DEVICE void read_bits(const char* base, int64_t step, int skip, uint32_t* bits) {
  base -= skip * step;
  AITER_UNROLL
  for (int k = 0; k < N; k++, base += step) {
    bits[k] = 0;
    if (k < skip) continue;
    if (kWide) bits[k] = *(Global<const Vector1>)(base);
    else bits[k] = *(Global<const VectorHalf>)(base);
  }
}

// read_raw reads them of row d of a tensor. The type is asked once, by a branch: as two loads into one register, of which one does
// nothing, NVIDIA's second would wait for the first, a latency for each element.
template <int N> AITER_DEVICE void read_raw(const Array2& from, int64_t d, int skip, uint32_t* bits) {
  const char* base = static_cast<const char*>(from.data);
  if (from.dtype == DType::F32) {
    rarely();  // else it is no branch
    read_bits<N, true>(base + d * from.first * 4, from.last * 4, skip, bits);
  } else {
    read_bits<N, false>(base + d * from.first * 2, from.last * 2, skip, bits);
  }
}

// RawTaps is the taps and the bias of a channel, the bias last, zeros before the first of p.width < W taps, unless
// there are always W: all that are needed are read before the first is converted.
template <int W, bool kAll = false> struct RawTaps {
  uint32_t bits[W + 1];

  AITER_DEVICE void read(const Backward& p, int64_t d) {
    read_raw<W>(p.weight, d, kAll ? 0 : W - int(p.width), bits);
    bits[W] = 0;
    if (p.bias.data) read_raw<1>(p.bias, d, 0, bits + W);
  }
  AITER_DEVICE float value(const Backward& p, int k) const { return raw_value((k < W ? p.weight : p.bias).dtype, bits[k]); }
};
template <int W, bool kAll = false> AITER_DEVICE void get_taps(const Backward& p, int64_t d, float (&taps)[W + 1]) {
  RawTaps<W, kAll> raw;
  raw.read(p, d);
  AITER_UNROLL
  for (int k = 0; k <= W; k++) taps[k] = raw.value(p, k);
}

}  // namespace aiter::conv1d::bwd
