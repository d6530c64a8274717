// What the kernels of causal_conv1d_bwd are made of: packed loads and stores, the
// slope of SiLU, a neighbouring lane's value, and sums over a block in one order.
#pragma once

#include <type_traits>

#include <aiter/gpu.h>

#include "causal_conv1d.h"

namespace aiter::conv1d::bwd {

// AITER_BOUNDS: threads of a block, and blocks that an NVIDIA multiprocessor is to
// hold. AMD's compilers find the balance of registers and waves themselves, from two
// waves a SIMD unit on.
#if AITER_CUDA
#define AITER_BOUNDS(threads, blocks) __launch_bounds__(threads, blocks)
#else
#define AITER_BOUNDS(threads, blocks) __launch_bounds__(threads, 2)
#endif

// Launch is the problem, and how it is cut. A *team* of neighbouring threads walks a
// *strip* of positions of one channel (rows), or a thread a strip of several channels
// (columns). Strips of a channel in one block are summed there; those in different
// blocks, the segments, go through slots of a workspace. Whatever is divided on the GPU
// is below 2^31.
struct Launch {
  Backward p;
  const uint8_t* seen;  // rows with sequence numbers: what each position sees
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
  int unit;           // columns: positions of a unit
  uint32_t longs;     // columns: so many segments have such strips; the others'
  int brief;          // have so many units
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

template <class T> constexpr bool kIsBf16 = std::is_same_v<T, bf16_t>;

// Words is N neighbouring elements of type T as memory holds them.
template <class T, int N> struct alignas(N * sizeof(T) < 4 ? 4 : N * sizeof(T) < 16 ? N * sizeof(T) : 16) Words {
  static constexpr int kElements = N, kBytes = N * int(sizeof(T)), kCount = kBytes < 4 ? 1 : kBytes / 4;
  uint32_t word[kCount];

  AITER_DEVICE void clear() {
    AITER_UNROLL
    for (int i = 0; i < kCount; i++) word[i] = 0;
  }
  AITER_DEVICE T get(int i) const {
    T v;
    if constexpr (sizeof(T) == 4) __builtin_memcpy(&v, &word[i], 4);
    else v.bits = uint16_t(word[i / 2] >> (i % 2 * 16));
    return v;
  }
  AITER_DEVICE float value(int i) const;

  // within clears the elements whose index is not in [from, to).
  AITER_DEVICE void within(int from, int to) {
    AITER_UNROLL
    for (int i = 0; i < N; i++) {
      const uint32_t bits = sizeof(T) == 4 ? 0xffffffffu : 0xffffu << (i % 2 * 16);
      if (i < from || i >= to) word[i * int(sizeof(T)) / 4] &= ~bits;
    }
  }
  AITER_DEVICE void set(int i, T v) {  // on top of zero
    if constexpr (sizeof(T) == 4) __builtin_memcpy(&word[i], &v, 4);
    else word[i / 2] |= uint32_t(v.bits) << (i % 2 * 16);
  }
  AITER_DEVICE void insert(int i, T v) {  // the same where i is not known, or not of these
    uint32_t bits = 0;
    __builtin_memcpy(&bits, &v, sizeof(T));
    if (sizeof(T) == 2) bits <<= (i & 1) * 16, i >>= 1;
    AITER_UNROLL
    for (int w = 0; w < kCount; w++) word[w] |= w == i ? bits : 0;
  }
};

template <class T, int N> AITER_DEVICE float Words<T, N>::value(int i) const {
  if constexpr (sizeof(T) == 2) {
    if constexpr (kIsBf16<T>) return bits_to_float(i % 2 ? word[i / 2] & 0xffff0000u : word[i / 2] << 16);
  }
  return to_float(get(i));
}

// Vector is what one instruction moves.
#if AITER_HIP
typedef uint32_t Vector4 __attribute__((ext_vector_type(4), may_alias));
typedef uint32_t Vector2 __attribute__((ext_vector_type(2), may_alias));
#else
typedef uint4 Vector4;
typedef uint2 Vector2;
#endif
typedef uint32_t __attribute__((may_alias)) Vector1;
typedef uint16_t __attribute__((may_alias)) VectorHalf;

// Global is a pointer to what is not shared memory. Where AMD's compilers cannot tell,
// they use slower instructions, which wait for shared memory too.
#if AITER_HIP
template <class V> using Global = __attribute__((address_space(1))) V*;
#else
template <class V> using Global = V*;
#endif

// fetch and put move N elements whose address suits their size, 16 bytes at a time.
template <class T, int N> AITER_DEVICE Words<T, N> fetch(const T* p) {
  Words<T, N> w;
  if constexpr (Words<T, N>::kBytes == 2) w.word[0] = *(Global<const VectorHalf>)(p);
  if constexpr (Words<T, N>::kBytes == 4) w.word[0] = *(Global<const Vector1>)(p);
  if constexpr (Words<T, N>::kBytes == 8) {
    const Vector2 v = *(Global<const Vector2>)(p);
    w.word[0] = v.x, w.word[1] = v.y;
  }
  if constexpr (Words<T, N>::kBytes >= 16) {
    AITER_UNROLL
    for (int i = 0; i < w.kCount; i += 4) {
      const Vector4 v = ((Global<const Vector4>)(p))[i / 4];
      w.word[i] = v.x, w.word[i + 1] = v.y, w.word[i + 2] = v.z, w.word[i + 3] = v.w;
    }
  }
  return w;
}

// fetch_loose is fetch of 16 bytes that lie anywhere, for processors that load such.
template <class T, int N> AITER_DEVICE Words<T, N> fetch_loose(const T* p) {
#if AITER_HIP
  typedef uint32_t Loose __attribute__((ext_vector_type(Words<T, N>::kCount), may_alias, aligned(sizeof(T))));
  const Loose v = *(Global<const Loose>)(p);
  Words<T, N> w;
  AITER_UNROLL
  for (int i = 0; i < w.kCount; i++) w.word[i] = v[i];
  return w;
#else
  return fetch<T, N>(p);
#endif
}

template <class T, int N> AITER_DEVICE void put(T* p, const Words<T, N>& w) {
  constexpr int kBytes = Words<T, N>::kBytes;
  if constexpr (kBytes == 2) *(Global<VectorHalf>)(p) = uint16_t(w.word[0]);
  if constexpr (kBytes == 4) *(Global<Vector1>)(p) = w.word[0];
  if constexpr (kBytes == 8) *(Global<Vector2>)(p) = Vector2{w.word[0], w.word[1]};
#if AITER_CUDA
  // As C++ nvcc makes four stores of it in some places.
  if constexpr (kBytes == 16)
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(w.word[0]), "r"(w.word[1]), "r"(w.word[2]),
                 "r"(w.word[3]) : "memory");
#else
  if constexpr (kBytes == 16) *(Global<Vector4>)(p) = Vector4{w.word[0], w.word[1], w.word[2], w.word[3]};
#endif
}

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

// pair rounds two values to T, the first in the low half.
template <class T> AITER_DEVICE uint32_t pair(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t w;
  if constexpr (kIsBf16<T>) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(high), "f"(low));
  else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(high), "f"(low));
  return w;
#elif defined(__gfx950__)
  if constexpr (kIsBf16<T>) {
    typedef __bf16 Two __attribute__((ext_vector_type(2)));
    const Two v = {__bf16(low), __bf16(high)};
    uint32_t w;
    __builtin_memcpy(&w, &v, 4);
    return w;
  }
#endif
  return round_to<T>(low).bits | uint32_t(round_to<T>(high).bits) << 16;
}

template <class T, int N> AITER_DEVICE Words<T, N> pack(const float* v) {
  Words<T, N> w;
  AITER_UNROLL
  for (int i = 0; i < w.kCount; i++) {
    if constexpr (sizeof(T) == 4) w.word[i] = float_to_bits(v[i]);
    else if constexpr (N == 1) w.word[i] = round_to<T>(v[i]).bits;
    else w.word[i] = pair<T>(v[2 * i], v[2 * i + 1]);
  }
  return w;
}

// slope is the derivative of silu at p, within a few units of float's last place.
AITER_DEVICE float slope(float p) {
  const float q = sigmoid(p);
  return fmaf(q, fmaf(-p, q, p), q);
}

// lane_xor is v of the lane whose number differs in mask; next_lane is v of the lane
// behind, in a wave's last lane that of its first; wave_all, NVIDIA's alone, says to all
// whether p holds for all. All lanes of a wave take part.
#if AITER_HIP
AITER_DEVICE int wave() { return warpSize; }
AITER_DEVICE int wave_bits() { return wave() == 64 ? 6 : 5; }

AITER_DEVICE void wave_barrier() {}
AITER_DEVICE float lane_xor(float v, int mask) { return __shfl_xor(v, mask); }
AITER_DEVICE float next_lane(float v) {
#if defined(__HIP_DEVICE_COMPILE__)
  // Not through the local data share's crossbar, which __shfl takes.
  int bits = int(float_to_bits(v));
#if defined(__GFX9__)
  bits = __builtin_amdgcn_update_dpp(bits, bits, 0x134, 0xf, 0xf, false);  // wave_rol:1
#else
  const int other = __builtin_amdgcn_permlanex16(bits, bits, 0, 0, false, false);  // the first of the other 16
  bits = __builtin_amdgcn_update_dpp(other, bits, 0x101, 0xf, 0xf, false);         // row_shl:1; the 16th keeps other
#endif
  v = bits_to_float(uint32_t(bits));
#endif
  return v;
}
#else
AITER_DEVICE int wave() { return 32; }
AITER_DEVICE int wave_bits() { return 5; }
// wave_barrier lets lanes see what others of their wave have put into shared memory.
AITER_DEVICE void wave_barrier() { __syncwarp(); }
AITER_DEVICE float lane_xor(float v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
AITER_DEVICE float next_lane(float v) { return __shfl_sync(0xffffffffu, v, (int(threadIdx.x) + 1) & 31); }
AITER_DEVICE bool wave_all(bool p) { return __all_sync(0xffffffffu, p); }
#endif

// A cluster is blocks that see one another's shared memory. peer_value is what the block
// of that rank has where p is in this one; between the barriers nobody writes.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
AITER_DEVICE void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
}
AITER_DEVICE float peer_value(const float* p, uint32_t rank) {
  uint32_t place = uint32_t(__cvta_generic_to_shared(p));
  float v;
  asm volatile("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(place) : "r"(rank));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(place) : "memory");
  return v;
}
#else
AITER_DEVICE void cluster_barrier() {}
AITER_DEVICE float peer_value(const float* p, uint32_t) { return *p; }
#endif

// fold_wave adds up the sums of lanes that differ in the bits from..to of their
// number. All lanes take part, and get the total.
template <int N> AITER_DEVICE void fold_wave(float (&sums)[N], int from, int to) {
  AITER_ROLLED
  for (int mask = from; mask < to; mask *= 2) {
    AITER_UNROLL
    for (int k = 0; k < N; k++) sums[k] += lane_xor(sums[k], mask);
  }
}

// fold_apart adds up N sums over a wave of 32 lanes, or the lanes that differ in mask and the bits
// below it, and is one of them: that of the number which. A lane passes on what the others are
// to have, so that 8 values go from lane to lane, where fold_wave has 25, if there are 5.
template <int N> AITER_DEVICE float fold_apart(const float (&sums)[N], int lane, int& which, int mask = 16) {
  if constexpr (N == 1) {
    which = 0;
    float sum = sums[0];
    for (; mask > 0; mask /= 2) sum += lane_xor(sum, mask);
    return sum;
  } else {
    const bool odd = lane & mask;
    float half[(N + 1) / 2];
    AITER_UNROLL
    for (int i = 0; i < N / 2; i++)
      half[i] = (odd ? sums[2 * i + 1] : sums[2 * i]) + lane_xor(odd ? sums[2 * i] : sums[2 * i + 1], mask);
    if (N % 2) half[N / 2] = sums[N - 1] + lane_xor(sums[N - 1], mask);
    const float sum = fold_apart(half, lane, which, mask / 2);
    which = N % 2 && which == N / 2 ? N - 1 : 2 * which + odd;
    return sum;
  }
}

// finish_rows adds up the sums of each channel of a block over its threads, and keeps them.
template <int N>
AITER_DEVICE void finish_rows(const Launch& a, float (&sums)[N], uint32_t segment, int64_t first, float* shared) {
  const int bits = a.channel_bits < wave_bits() ? a.channel_bits : wave_bits(), self = int(threadIdx.x);
  int which = -1;
  float sum = 0.0f;
  if (AITER_CUDA && bits == 5) sum = fold_apart(sums, self, which);
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

// Raw is elements of a tensor whose type is known at run time, as memory holds them: all
// that are needed are read before the first is converted.
struct Raw {
  DType dtype;
  uint32_t bits;

  AITER_DEVICE float value() const {
    if (dtype == DType::F16) return to_float(half_t{uint16_t(bits)});
    return bits_to_float(dtype == DType::BF16 ? bits << 16 : bits);
  }
};

// read_raw reads N elements of row d, zeros before the one of index skip, which is the row's first.
template <int N> AITER_DEVICE void read_raw(const Array2& from, int64_t d, int skip, Raw* raw) {
  const int size = from.dtype == DType::F32 ? 4 : 2;
  const char* base = static_cast<const char*>(from.data) + d * from.first * size;
  AITER_UNROLL
  for (int k = 0; k < N; k++) {
    raw[k] = {from.dtype, 0};
    if (k < skip) continue;
    if (size == 4) raw[k].bits = *(Global<const Vector1>)(base);
    else raw[k].bits = *(Global<const VectorHalf>)(base);
    base += from.last * size;
  }
}

// read_taps reads the taps and the bias of channel d, the bias last, zeros before the
// first of p.width < W taps, unless there are always W; get_taps converts them.
template <int W, bool kAll = false> AITER_DEVICE void read_taps(const Backward& p, int64_t d, Raw* raw) {
  read_raw<W>(p.weight, d, kAll ? 0 : W - int(p.width), raw);
  raw[W] = {DType::F32, 0};
  if (p.bias.data) read_raw<1>(p.bias, d, 0, raw + W);
}
template <int W, bool kAll = false> AITER_DEVICE void get_taps(const Backward& p, int64_t d, float (&taps)[W + 1]) {
  Raw raw[W + 1];
  read_taps<W, kAll>(p, d, raw);
  AITER_UNROLL
  for (int k = 0; k <= W; k++) taps[k] = raw[k].value();
}

}  // namespace aiter::conv1d::bwd
