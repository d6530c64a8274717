// The products of a span in backward by a group of four warps, which multiplies with wgmma (sm_90a).
//
// A span is 64 columns of 64 positions (wide/group.h), lines of shared memory. Products have x or g in shared memory as the right
// factor. Distances j are from 0 to W-1, and the tap of distance j is v[j] = w[W-1-j].
//
//   sum[i][q]     = sum over s of A_s X_s     A_s[i][k] = w[W-1 + 48 - 16 s - i + k], X_s[k][q] = x[64 q + 48 - 16 s + k]
//   dx[i][q]      = sum over s of V_s G_s     V_s[i][k] = v[16 s - i + k],            G_s[k][q] = g[64 q + 16 s + k]
//   dweight[r][c] = sum over q of x[64 q + r] g[64 q + c]                             distance c - r: a diagonal
//
// x of negative positions is the line in front; g behind the last position of a column is the line behind. dweight contracts over the
// columns: of x and g the matrix cores read rows, not columns. A lane reads its part of x, 64 x 64 elements, once for both tiles of g. A
// diagonal has the products of all 64 positions of a column, so that 64 (W + 63) products are computed for 64 W.
#pragma once

#include "wide_group_sums.h"
#include "wide_params.h"

namespace aiter::conv1d::bwd {

// GroupGradShape is what filters of up to kTaps taps have in common: steps of a convolution, lines of a halo, zeros around the taps, and
// the elements between two copies of the taps. There are kCopies of a part of the taps: as they are and in reverse order, each from an even
// and from an odd element on.
template <int kTaps> struct GroupGradShape {
  static constexpr int kSteps = (kTaps + 78) / 16, kHalo = (kTaps + 62) / 64, kZeros = kTaps > 129 ? 192 : 128;
  static constexpr int kPitch = (kTaps + kZeros + 64 + 63) / 64 * 64 + 32, kCopies = 4;
};

#if AITER_WGMMA
// GroupGradEngine is for filters of up to kTaps taps.
template <class T, int kTaps> class GroupGradEngine {
 public:
  using Args = KernelParam<WideParams>;
  using Shape = GroupGradShape<kTaps>;
  static constexpr int kThreads = wide::kGroupThreads;
  using WeightGrad = GroupWeightGrad<kTaps>;
  static constexpr int kMost = (kTaps + kThreads - 1) / kThreads;  // taps of a thread
  // kTight: the sums leave few registers. kRolled: the steps are a loop. kStage is the steps of a convolution that start together, kDepth
  // those of dweight.
  static constexpr bool kTight = kTaps != 65 && kTaps != 129, kRolled = kTaps > 129;
  static constexpr int kStage = kTaps > 65 && kTaps <= 129 ? 4 : 2, kDepth = 1;
  static constexpr int kSumBytes = WeightGrad::kSumBytes, kScratchBytes = kSumBytes + 16;

  // Fetched is a thread's part of a channel's taps and bias, as loaded. Conversions would wait for the loads.
  struct Fetched {
    uint32_t taps[kMost], bias;
  };

  AITER_DEVICE GroupGradEngine(const Args& a, char* memory) : a_(a), taps_(reinterpret_cast<T*>(memory)) {
    const int thread = int(threadIdx.x), lane = thread & 31, warp = thread >> 5;
    place_ = uint32_t(((lane >> 4) * 8 + (lane & 7)) * 128 + ((2 * warp + (lane >> 3 & 1)) ^ (lane & 7)) * 16);
    convolve_ = first_pair(0, width() - 1 + 48), transpose_ = first_pair(1, 16 * (Shape::kSteps - 1));
    AITER_ROLLED
    for (int copy = 0; copy < 2 * parts(); copy++) {
      AITER_ROLLED
      for (int i = thread; i < Shape::kZeros + 64; i += kThreads) {
        set_bits(copy, i < pad(copy) ? i - pad(copy) : width() + i - pad(copy), T{});
      }
    }
  }

  // fetch starts to read the taps of channel d, and set_taps stores them and clears dweight.
  AITER_DEVICE void fetch(int64_t d, Fetched& f) const {
    const Problem& p = a_.p;
    const TapReader taps(p, d, 0);
    if (taps.dtype == DType::F32) fetch_taps<Bits32>(taps, width(), f);
    else fetch_taps<Bits16>(taps, width(), f);
    f.bias = read_bias_bits(p, d);
  }
  AITER_DEVICE void set_taps(const Fetched& f) {
    AITER_UNROLL
    for (int k = 0; k < kMost; k++) {
      const int i = int(threadIdx.x) + k * kThreads;
      if (i < width()) set_tap(i, f.taps[k]);
    }
    bias_ = element_to_float(a_.p.bias.dtype, f.bias);
    dweight_.clear();
  }

  // Taps is a lane's part of the first steps of a convolution.
  struct Taps {
    uint32_t left[kStage][4];
  };
  AITER_DEVICE void get_convolve_taps(Taps& f) const { get(f, convolve_, 0); }
  AITER_DEVICE void get_transposed_taps(Taps& f) const { get(f, transpose_, 0); }

  // convolve sets the sums to the bias and the products with x, whose column 0 is at `own`.
  AITER_DEVICE void convolve(Taps& f, uint32_t own) {
    start(bias_);
    multiply(f, convolve_, own + 96);
    if (parts() > 1) get(f, convolve_ + kPart, 0), multiply(f, convolve_ + kPart, own + 96);
  }
  // make_g sets the sums to g, and the tiles of dout and of g's low part to its two parts. It returns the sum of this thread's g.
  AITER_DEVICE float make_g(uint32_t dout, uint32_t low) {
    float total[2] = {};
    uint32_t all[4][4];
    AITER_UNROLL
    for (int k = 0; k < 4; k++)
      if (!kTight) load_matrices<true>(dout + place_ + uint32_t(k * 2048), all[k]);
    AITER_UNROLL
    for (int c = 0; c < 64; c += 16) {
      uint32_t(&word)[4] = all[c / 16], rest[4];
      if (kTight) load_matrices<true>(dout + place_ + uint32_t(c * 128), word);
      AITER_UNROLL
      for (int i = 0; i < 4; i++) {
        const float* y = &sums_[c / 2 + 2 * i];
        float v[2], near[2];
        unpack_word<T>(word[i], v);
        AITER_UNROLL
        for (int k = 0; k < 2; k++) v[k] *= silu_grad(y[k]), total[k] += v[k];
        word[i] = pack_pair<T>(v[0], v[1]);
        unpack_word<T>(word[i], near);
        rest[i] = pack_pair<T>(v[0] - near[0], v[1] - near[1]);
      }
      store_matrices<true>(dout + place_ + uint32_t(c * 128), word);
      store_matrices<true>(low + place_ + uint32_t(c * 128), rest);
    }
    return total[0] + total[1];
  }
  // sum_tile returns the sum of this thread's part of a tile.
  AITER_DEVICE float sum_tile(uint32_t own) const {
    float total[2] = {};
    AITER_UNROLL
    for (int c = 0; c < 64; c += 16) {
      uint32_t word[4];
      load_matrices<true>(own + place_ + uint32_t(c * 128), word);
      AITER_UNROLL
      for (uint32_t w : word) {
        float v[2];
        unpack_word<T>(w, v);
        total[0] += v[0], total[1] += v[1];
      }
    }
    return total[0] + total[1];
  }

  // multiply_g sets the sums to dx, and adds to dweight. g has kTiles tiles, `distance` bytes apart. When it returns, dweight's
  // products may be running: finish_products waits for them.
  template <int kTiles> AITER_DEVICE void multiply_g(Taps& f, uint32_t x, uint32_t g, uint32_t distance, wide::NonFinite<T>& found) {
    start(0.0f);
    constexpr uint32_t kLast = 32 * (Shape::kSteps - 1);
    if (parts() > 1) {
      Taps rest;
      get(rest, transpose_ + kPart, 0);
      multiply_both<kTiles, false>(rest, transpose_ + kPart, x, g, g + kLast, distance, found);
    }
    multiply_both<kTiles, true>(f, transpose_, x, g, g + kLast, distance, found);
    hold();
  }
  AITER_DEVICE void finish_products() { wgmma_wait<0>(); }

  // store_dx writes dx to a tile.
  AITER_DEVICE void store_dx(uint32_t own, wide::NonFinite<T>& found) const {
    AITER_UNROLL
    for (int c = 0; c < 64; c += 16) {
      uint32_t word[4];
      AITER_UNROLL
      for (int i = 0; i < 4; i++) {
        word[i] = pack_pair<T>(sums_[c / 2 + 2 * i], sums_[c / 2 + 2 * i + 1]);
        found.check(word[i]);
      }
      store_matrices<true>(own + place_ + uint32_t(c * 128), word);
    }
  }

  template <class Keep> AITER_DEVICE void finish(float* scratch, Keep keep) const { dweight_.template finish<0>(scratch, width(), keep); }

 private:
  static constexpr uint32_t kPart = Shape::kCopies * Shape::kPitch * 2;  // bytes from one part of the taps to the other
  AITER_DEVICE int width() const { return int(a_.p.width); }
  AITER_DEVICE int parts() const { return a_.split ? 2 : 1; }
  template <class Bits> static AITER_DEVICE void fetch_taps(const TapReader& taps, int count, Fetched& f) {
    AITER_UNROLL
    for (int k = 0; k < kMost; k++) {
      const int i = int(threadIdx.x) + k * kThreads;
      f.taps[k] = i < count ? uint32_t(((GlobalPtr<const Bits>)(taps.data))[i * taps.step]) : 0;
    }
  }
  // set_tap writes tap i to all copies of the filter.
  AITER_DEVICE void set_tap(int i, uint32_t bits) const {
    if (parts() == 1) return set_part(0, i, T{uint16_t(bits)});
    const float w = element_to_float(a_.p.weight.dtype, bits);
    const T high = round_to<T>(w);
    set_part(0, i, high), set_part(1, i, round_to<T>(w - to_float(high)));
  }
  AITER_DEVICE void set_part(int part, int i, T v) const { set_bits(2 * part, i, v), set_bits(2 * part + 1, width() - 1 - i, v); }
  // pad returns the zeros in front of a copy: kZeros of the taps as they are, 64 of those in reverse order; the others are behind it.
  static AITER_DEVICE int pad(int copy) { return copy & 1 ? 64 : Shape::kZeros; }
  AITER_DEVICE void set_bits(int copy, int i, T v) const {
    T* const to = taps_ + copy * 2 * Shape::kPitch + pad(copy) + i;
    wide::set_shared(to, v);
    if (i > -pad(copy)) wide::set_shared(to + Shape::kPitch - 1, v);
  }
  // first_pair returns the address of a lane's first pair of taps in a convolution: tap `first` - 16 w - g + 2 t.
  AITER_DEVICE uint32_t first_pair(int copy, int first) const {
    const int lane = int(threadIdx.x) & 31, warp = int(threadIdx.x) >> 5;
    const int c = first - 16 * warp - (lane >> 2) + 2 * (lane & 3) + pad(copy), odd = c & 1;
    return shared_address(taps_ + (2 * copy + odd) * Shape::kPitch + (c - odd));
  }

  static AITER_DEVICE uint32_t pair(uint32_t t) { return load_shared<Words<1>>(t).word[0]; }

  // multiply_both adds dx's products, whose first taps are in f, and, with kRows, those of dweight. Stages of both alternate: while one
  // runs, the operands of the other are read. dweight's last stage may be running at the end.
  template <int kTiles, bool kRows>
  AITER_DEVICE void multiply_both(Taps& f, uint32_t t, uint32_t x, uint32_t g, uint32_t right, uint32_t distance,
                                  wide::NonFinite<T>& found) {
    constexpr int kTransposed = (Shape::kSteps + kStage - 1) / kStage, kParts = kRows ? 4 / kDepth : 0,
        kTurns = kTransposed > kParts ? kTransposed : kParts;
    uint32_t left[kDepth][4];
    AITER_UNROLL
    for (int n = 0; n < kTurns; n++) {
      if (n < kTransposed) {
        if (n > 0) get(f, t, n * kStage);
        add_steps<kTiles>(f, n * kStage, right, distance);
        if (n > 0 && n <= kParts) wgmma_wait<1>();  // for dweight's stage before
        if (n >= kParts) wgmma_wait<0>();
      } else {
        wgmma_wait<0>();
      }
      if (n < kParts) {
        add_rows<kTiles>(left, n * kDepth, x, g, distance, found);
        if (n < kTransposed) wgmma_wait<1>();  // for dx's stage
      }
    }
  }
  // add_steps starts the products of kStage steps of a convolution from `first` on.
  template <int kTiles> AITER_DEVICE void add_steps(Taps& f, int first, uint32_t right, uint32_t distance) {
    wgmma_start();
    AITER_UNROLL
    for (int k = 0; k < kStage && (kRolled || first + k < Shape::kSteps); k++) {
      AITER_UNROLL
      for (int i = 0; i < kTiles; i++) {
        wgmma<T, 64>(f.left[k], wgmma_columns(right - uint32_t(32 * (first + k)) + uint32_t(i) * distance), sums_);
      }
    }
    wgmma_commit();
  }
  // add_rows starts the products of 16 kDepth columns, from column 16 `first` on, of dweight.
  template <int kTiles>
  AITER_DEVICE void add_rows(uint32_t (&left)[kDepth][4], int first, uint32_t x, uint32_t g, uint32_t distance, wide::NonFinite<T>& found) {
    AITER_UNROLL
    for (int k = 0; k < kDepth; k++) {
      load_matrices<true>(x + place_ + uint32_t((first + k) * 2048), left[k]);
      if constexpr (kTiles == 1) {  // with SiLU an infinity or NaN in x makes g one
        AITER_UNROLL
        for (int i = 0; i < 4; i++) found.check(left[k][i]);
      }
    }
    wgmma_start();
    AITER_UNROLL
    for (int k = 0; k < kDepth; k++) {
      AITER_UNROLL
      for (int i = 0; i < kTiles; i++) {
        const uint64_t right = wgmma_rows(g + uint32_t((first + k) * 2048) + uint32_t(i) * distance);
        wgmma<T, WeightGrad::kFirst, true>(left[k], right, dweight_.first);
        if constexpr (WeightGrad::kMore > 0)
          wgmma<T, WeightGrad::kMore, true>(left[k], right + (WeightGrad::kFirst / 64 * 128 >> 4), dweight_.more);
      }
    }
    wgmma_commit();
  }

  // get reads the taps of the steps from `first` on. A lane has pairs of taps 8 elements apart, the first one at t; steps go 16 elements
  // back.
  static AITER_DEVICE void get(Taps& f, uint32_t t, int first) {
    uint32_t near = pair(t + 16 - uint32_t(32 * first));
    AITER_UNROLL
    for (int k = 0; k < kStage && (kRolled || first + k < Shape::kSteps); k++) {
      const uint32_t middle = pair(t - uint32_t(32 * (first + k))), far = pair(t - uint32_t(32 * (first + k) + 16));
      wgmma_copy(f.left[k][0], middle), wgmma_copy(f.left[k][1], far), wgmma_copy(f.left[k][2], near), wgmma_copy(f.left[k][3], middle);
      near = far;
    }
  }
  // multiply adds the products of a Toeplitz matrix, whose first taps are in f, and the tile whose first step is at `right`. While a stage
  // runs, the taps of the next one are read.
  AITER_DEVICE void multiply(Taps& f, uint32_t t, uint32_t right) {
    static_assert(!kRolled || Shape::kSteps % kStage == 0);
    if constexpr (kTight) {
#pragma unroll (kRolled ? 1 : Shape::kSteps)
      for (int first = 0; first < Shape::kSteps; first += kStage) {
        if (first > 0) get(f, t, first);
        add_steps<1>(f, first, right, 0);
        wgmma_wait<0>();
      }
    } else {
      Taps other;
      AITER_UNROLL
      for (int first = 0; first < Shape::kSteps; first += kStage) {
        const bool even = first / kStage % 2 == 0;
        add_steps<1>(even ? f : other, first, right, 0);
        if (first > 0) wgmma_wait<1>();
        if (first + kStage < Shape::kSteps) get(even ? other : f, t, first + kStage);
      }
      wgmma_wait<0>();
    }
    hold();
  }
  AITER_DEVICE void start(float v) {
    AITER_UNROLL
    for (int i = 0; i < 32; i++) sums_[i] = v;
    hold();
  }
  // hold keeps uses of the sums on their side of this call. Otherwise ptxas would copy sums while products run, and wait for these.
  AITER_DEVICE void hold() {
    AITER_UNROLL
    for (int i = 0; i < 32; i++) asm volatile("" : "+f"(sums_[i])::"memory");
  }

  const Args& a_;
  T* taps_;
  uint32_t place_;             // of what this lane reads and writes of 16 columns
  uint32_t convolve_, transpose_;   // of this lane's taps
  float bias_ = 0.0f;
  float sums_[32];
  WeightGrad dweight_;
};
#endif

}  // namespace aiter::conv1d::bwd
