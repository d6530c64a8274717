// The products of the two groups of bwd/wide_pipeline.h. The formulation is that of bwd/wide_group_engine.h, with the Toeplitz matrices A_s
// and V_s in shared memory too, so that the products of a span do not wait for taps.
//
// A_s and V_s consist of blocks of 8 x 8 elements. Block (g, c) has rows 8 g to 8 g + 7 and columns 8 c to 8 c + 7, c = 0 or 1. That of A_s
// has number 2 s + g - c; row r of block n has 8 taps from w[W-1 + 48 - 8 n - r] on. So one list of blocks has c = 0 of all steps, and a
// second list, shifted by one block, c = 1. In V_s the number is 2 (S-1 - s) + g - c, with 8 taps from v[16 (S-1) - 8 n - r] on.
#pragma once

#include "wide_group_engine.h"

namespace aiter::conv1d::bwd {

// PipelineTaps is the taps of filters of up to kTaps taps, and the matrices of both groups. It has three buffers of taps: the first group
// stores those of span n + 1 while the second one may still read those of spans n - 1 and n. 129 taps: the width is at least 64.
template <class T, int kTaps> class PipelineTaps {
 public:
  using Shape = GroupGradShape<kTaps>;
  static constexpr int kSteps = Shape::kSteps, kRows = 8 * (2 * kSteps + 6);  // of a list of blocks
  static constexpr int kListBytes = kRows * 16, kMatrixBytes = 2 * kListBytes, kBufferBytes = 2 * Shape::kPitch * 2;
  static constexpr int kBuffers = 3, kBytes = 2 * kMatrixBytes + kBuffers * kBufferBytes;

#if AITER_WGMMA
  static constexpr int kMost = (kTaps + wide::kGroupThreads - 1) / wide::kGroupThreads;  // taps of a thread
  // Fetched is a thread's part of a channel's taps and bias, as loaded. Conversions would wait for the loads.
  struct Fetched {
    uint32_t taps[kMost], bias;
  };

  AITER_DEVICE PipelineTaps(const Problem& p, char* memory)
      : p_(p), memory_(memory), buffers_(reinterpret_cast<T*>(memory + 2 * kMatrixBytes) + Shape::kZeros) {}

  // clear writes the zeros around the taps, and fetch starts to read the taps of channel d.
  AITER_DEVICE void clear() const {
    AITER_ROLLED
    for (int buffer = 0; buffer < kBuffers; buffer++) {
      AITER_ROLLED
      for (int i = wide::group_thread(); i < Shape::kZeros + 64; i += wide::kGroupThreads)
        set(buffer, i < Shape::kZeros ? i - Shape::kZeros : width() + i - Shape::kZeros, T{});
    }
  }
  AITER_DEVICE void fetch(int64_t d, Fetched& f) const {
    const TapReader taps(p_, d, 0);
    AITER_UNROLL
    for (int k = 0; k < kMost; k++) {
      const int i = wide::group_thread() + k * wide::kGroupThreads;
      f.taps[k] = i < width() ? uint32_t(((GlobalPtr<const Bits16>)(taps.data))[i * taps.step]) : 0;
    }
    f.bias = read_bias_bits(p_, d);
  }
  // store writes taps to a buffer and returns the bias.
  AITER_DEVICE float store(int buffer, const Fetched& f) const {
    AITER_UNROLL
    for (int k = 0; k < kMost; k++) {
      const int i = wide::group_thread() + k * wide::kGroupThreads;
      if (i < width()) set(buffer, i, T{uint16_t(f.taps[k])});
    }
    return element_to_float(p_.bias.dtype, f.bias);
  }
  // build writes the matrices of one group from a buffer's taps: A_s, or, with kReversed, V_s. matrix returns their address.
  template <bool kReversed> AITER_DEVICE void build(int buffer) const {
    const uint32_t from = shared_address(buffers_ + buffer * 2 * Shape::kPitch), to = matrix<kReversed>();
    AITER_UNROLL
    for (int k = 0; k < (kRows + 8 + wide::kGroupThreads - 1) / wide::kGroupThreads; k++) {
      // The taps of a row are w[least] to w[least + 7]. V_s has them in reverse order.
      const int row = wide::group_thread() + k * wide::kGroupThreads - 8;
      const int least = kReversed ? width() - 8 - 16 * (kSteps - 1) + row : width() + 47 - row, odd = least & 1;
      if (row >= kRows) break;
      const uint32_t pairs = from + uint32_t(2 * (odd * (Shape::kPitch - 1) + least));
      Words<4> v;
      AITER_UNROLL
      for (int i = 0; i < 4; i++) {
        const uint32_t pair = load_shared<Words<1>>(pairs + uint32_t(4 * i)).word[0];
        if (kReversed) v.word[3 - i] = pair << 16 | pair >> 16;
        else v.word[i] = pair;
      }
      if (row >= 0) store_shared(to + uint32_t(row * 16), v);
      if (row < kRows - 8) store_shared(to + uint32_t(kListBytes + (row + 8) * 16), v);
    }
  }
  // get_transposed reads this lane's part of V_s.
  AITER_DEVICE void get_transposed(int s, uint32_t (&v)[4]) const {
    const int lane = wide::group_thread() & 31, block = 2 * (kSteps - 1 - s) + 2 * (wide::group_thread() >> 5) + (lane >> 3 & 1);
    load_matrices<false>(matrix<true>() + uint32_t((lane >> 4) * kListBytes + block * 128 + (lane & 7) * 16), v);
  }
  template <bool kReversed> AITER_DEVICE uint32_t matrix() const { return shared_address(memory_) + (kReversed ? kMatrixBytes : 0); }

 private:
  AITER_DEVICE int width() const { return int(p_.width); }
  // set writes element i of a buffer. A buffer is two arrays: in the first one even elements are at multiples of 4 bytes, in the second
  // one odd elements. So build reads pairs from any element on.
  AITER_DEVICE void set(int buffer, int i, T v) const {
    T* const to = buffers_ + buffer * 2 * Shape::kPitch + i;
    wide::set_shared(to, v);
    if (i > -Shape::kZeros) wide::set_shared(to + Shape::kPitch - 1, v);
  }

  const Problem& p_;
  char* memory_;
  T* buffers_;
#endif
};

#if AITER_WGMMA
// GroupSums is a lane's part of 64 x 64 sums. place returns the offset in a tile that this lane passes to ldmatrix and stmatrix for the
// first 16 columns.
struct GroupSums {
  float v[32];

  static AITER_DEVICE uint32_t place() {
    const int lane = wide::group_thread() & 31, warp = wide::group_thread() >> 5;
    return uint32_t(((lane >> 4) * 8 + (lane & 7)) * 128 + ((2 * warp + (lane >> 3 & 1)) ^ (lane & 7)) * 16);
  }
  // hold keeps uses of the sums on their side of this call. Otherwise ptxas would copy sums while products run, and wait for these.
  AITER_DEVICE void hold() {
    AITER_UNROLL
    for (int i = 0; i < 32; i++) asm volatile("" : "+f"(v[i])::"memory");
  }
};

// MakeG computes g of a span.
template <class T, int kTaps> struct MakeG {
  using Taps = PipelineTaps<T, kTaps>;

  // make_g computes the sums before the activation, and writes g to the tile of dout and its low part to another one. While the
  // products run it calls meanwhile. It returns the sum of this thread's g.
  template <class Meanwhile>
  static AITER_DEVICE float make_g(const Taps& taps, float bias, uint32_t x, uint32_t dout, uint32_t low, Meanwhile meanwhile) {
    GroupSums sums;
    AITER_UNROLL
    for (int i = 0; i < 32; i++) sums.v[i] = bias;
    sums.hold();
    const uint64_t matrix = wgmma_blocks(taps.template matrix<false>(), Taps::kListBytes), right = wgmma_columns(wgmma_uniform(x));
    wgmma_start();
    AITER_UNROLL
    for (int s = 0; s < Taps::kSteps; s++)
      wgmma_shared<T, 64>(wgmma_further(matrix, 256 * s), wgmma_further(right, 96 - 32 * s), sums.v);
    wgmma_commit();
    meanwhile();
    uint32_t words[4][4];
    const uint32_t place = GroupSums::place();
    AITER_UNROLL
    for (uint32_t c = 0; c < 4; c++) load_matrices<true>(dout + place + c * 2048, words[c]);
    wgmma_wait<0>();
    sums.hold();
    AITER_UNROLL
    for (float& y : sums.v) y = silu_grad(y);
    float total[2] = {};
    AITER_UNROLL
    for (int c = 0; c < 64; c += 16) {
      uint32_t(&word)[4] = words[c / 16], rest[4];
      AITER_UNROLL
      for (int i = 0; i < 4; i++) {
        const float* slope = &sums.v[c / 2 + 2 * i];
        float v[2], near[2];
        unpack_word<T>(word[i], v);
        AITER_UNROLL
        for (int k = 0; k < 2; k++) v[k] *= slope[k], total[k] += v[k];
        word[i] = pack_pair<T>(v[0], v[1]);
        unpack_word<T>(word[i], near);
        rest[i] = pack_pair<T>(v[0] - near[0], v[1] - near[1]);
      }
      store_matrices<true>(dout + place + uint32_t(c * 128), word);
      store_matrices<true>(low + place + uint32_t(c * 128), rest);
    }
    return total[0] + total[1];
  }
};

// UseG computes dx of spans and dweight of a segment.
template <class T, int kTaps> struct UseG {
  using Taps = PipelineTaps<T, kTaps>;
  GroupWeightGrad<kTaps> dweight;
  GroupSums sums;

  // The products overwrite these zeros. Without them ptxas would reserve the registers from the start of the kernel on.
  AITER_DEVICE UseG() {
    dweight.clear();
    for (float& v : sums.v) v = 0.0f;
  }

  // multiply sets dweight, or, with `add`, adds to it, and writes dx in the place of x. It calls between while dweight's products run.
  // A warp overwrites only the positions of x that are its own rows of dweight's left factor, so that no barrier is needed.
  template <class Between>
  AITER_DEVICE void multiply(const Taps& taps, uint32_t x, uint32_t g, uint32_t low, bool add, Between between) {
    static_assert(GroupWeightGrad<kTaps>::kMore == 0);
    constexpr int kColumns = GroupWeightGrad<kTaps>::kColumns;
    g = wgmma_uniform(g), low = wgmma_uniform(low);
    const uint64_t rows = wgmma_rows(wgmma_uniform(x)), right[2] = {wgmma_rows(g), wgmma_rows(low)};
    wgmma_start();
    AITER_UNROLL
    for (int n = 0; n < 4; n++) {
      AITER_UNROLL
      for (int i = 0; i < 2; i++)
        wgmma_shared<T, kColumns, true>(wgmma_further(rows, n * 2048), wgmma_further(right[i], n * 2048), dweight.first,
                                        n + i > 0 || add);
    }
    wgmma_commit();
    between();
    multiply_g(taps, g, low);
    wgmma_wait<0>();
    sums.hold();
    AITER_UNROLL
    for (float& v : dweight.first) asm volatile("" : "+f"(v)::"memory");
    AITER_UNROLL
    for (int c = 0; c < 64; c += 16) {
      uint32_t word[4];
      AITER_UNROLL
      for (int i = 0; i < 4; i++) word[i] = pack_pair<T>(sums.v[c / 2 + 2 * i], sums.v[c / 2 + 2 * i + 1]);
      store_matrices<true>(x + GroupSums::place() + uint32_t(c * 128), word);
    }
  }

 private:
  // multiply_g starts the products of dx. Both parts of g have the same left factors. Where registers suffice, a lane reads its part of
  // them once for both, because the products keep shared memory busy. Those of the first step, which set the sums, stay in shared memory.
  AITER_DEVICE void multiply_g(const Taps& taps, uint32_t g, uint32_t low) {
    constexpr int kHeld = kTaps <= 65 ? Taps::kSteps : 1;
    uint32_t left[kHeld][4];
    AITER_UNROLL
    for (int s = 1; s < kHeld; s++) taps.get_transposed(s, left[s]);
    wgmma_start();
    const uint64_t matrix = wgmma_blocks(taps.template matrix<true>(), Taps::kListBytes);
    const uint64_t columns[2] = {wgmma_columns(g), wgmma_columns(low)};
    AITER_UNROLL
    for (int s = 0; s < Taps::kSteps; s++) {
      AITER_UNROLL
      for (int i = 0; i < 2; i++) {
        const uint64_t column = wgmma_further(columns[i], 32 * s);
        if (s > 0 && s < kHeld) wgmma<T, 64>(left[s], column, sums.v);
        else wgmma_shared<T, 64>(wgmma_further(matrix, 256 * (Taps::kSteps - 1 - s)), column, sums.v, s + i > 0);
      }
    }
    wgmma_commit();
  }
};
#endif

}  // namespace aiter::conv1d::bwd
