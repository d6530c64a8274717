// The taps and biases of the channels of a warp of fwd/wide_transposed.h.
#pragma once

#include "wide_transposed_items.h"

namespace aiter::conv1d::fwd {

#if AITER_CUDA && __CUDA_ARCH__ >= 900
// TransposedTaps loads the taps and biases of a warp's channels of a group: its own first one and every kTransposedWarps-th behind it.
// fetch starts the loads to registers, put writes them to shared memory.
template <class T, class RowSet> class TransposedTaps {
 public:
  using Args = KernelParam<WideParams<RowSet>>;
  static constexpr int kWarps = kTransposedWarps, kOwn = TransposedMemory::kGroup / kWarps;

  // Fetched is a lane's part of the taps and biases, as loaded: two taps of each round. The first round begins with the zeros in front of
  // the taps.
  static constexpr int kEach = 2, kRounds = (wide::transposed_pitch(8) + 32 * kEach - 1) / (32 * kEach);
  struct Fetched {
    uint32_t taps[kRounds][kOwn][kEach], bias;
  };

  AITER_DEVICE TransposedTaps(const Args& a, int warp, int lane) : a_(a), warp_(warp), lane_(lane) {}

  // bias and scale return the bias of channel k, and the power of two that its taps are multiplied with. All lanes call them.
  AITER_DEVICE float bias(int k) const { return __shfl_sync(0xffffffffu, bias_, k); }
  AITER_DEVICE float scale(int k) const { return kIsBf16<T> ? 1.0f : __shfl_sync(0xffffffffu, scale_, k); }

  // touch starts to load the taps and biases to the caches.
  AITER_DEVICE void touch(uint32_t group) const {
    const auto touch = [](const Array2& t, int64_t i) {
      uint16_t any;
      asm volatile("ld.global.u16 %0, [%1];" : "=h"(any) : "l"(static_cast<const char*>(t.data) + i * dtype_size(t.dtype)));
    };
    const int i = lane_ * 4;  // taps in a sector
    AITER_UNROLL
    for (int k = 0; k < kOwn; k++) {
      const int64_t d = channel(group, k);
      if (d >= a_.p.dim) break;
      if (a_.p.bias.data) touch(a_.p.bias, d * a_.p.bias.first);
      if (i < a_.launch.taps) touch(a_.p.weight, d * a_.p.weight.first + i * a_.p.weight.last);
    }
  }

  AITER_DEVICE void fetch(uint32_t group, Fetched& f) const {
    f.bias = lane_ < kOwn && channel(group, lane_) < a_.p.dim ? read_bias_bits(a_.p, channel(group, lane_)) : 0;
    if (dtype_size(a_.p.weight.dtype) == 4) load<Bits32>(group, f);
    else load<Bits16>(group, f);
  }
  AITER_DEVICE void put(uint32_t group, const Fetched& f, uint32_t to) {
    bias_ = element_to_float(a_.p.bias.dtype, f.bias);
    if (!kIsBf16<T> && a_.launch.split) choose_scales(group);
    warp_barrier();
    if (a_.launch.split) write<true>(f, to);
    else write<false>(f, to);
    warp_barrier();
  }

 private:
  AITER_DEVICE int own(int k) const { return warp_ + k * kWarps; }
  AITER_DEVICE int64_t channel(uint32_t group, int k) const { return int64_t(group) * TransposedMemory::kGroup + own(k); }
  AITER_DEVICE int blocks() const { return wide::transposed_blocks(a_.launch.taps); }
  AITER_DEVICE int pitch() const { return wide::transposed_pitch(blocks()); }
  AITER_DEVICE int first_tap() const { return lane_ * kEach - (wide::transposed_taps(blocks()) - a_.launch.taps + wide::kTransposedPad); }

  template <class Bits> AITER_DEVICE void load(uint32_t group, Fetched& f) const {
    const TapReader taps(a_.p, channel(group, 0), first_tap());
    AITER_UNROLL
    for (int r = 0; r < kRounds; r++) {
      AITER_UNROLL
      for (int k = 0; k < kOwn; k++) {
        AITER_UNROLL
        for (int n = 0; n < kEach; n++) {
          const int i = r * 32 * kEach + n;
          const bool exists = unsigned(first_tap() + i) < unsigned(a_.launch.taps) && channel(group, k) < a_.p.dim;
          f.taps[r][k][n] = exists ? uint32_t(((GlobalPtr<const Bits>)(taps.data))[k * kWarps * a_.p.weight.first + i * taps.step]) : 0;
        }
      }
    }
  }

  // choose_scales finds the power of two of each channel that brings its largest tap near 2^14.
  AITER_DEVICE void choose_scales(uint32_t group) {
    cold_branch();
    AITER_ROLLED
    for (int k = 0; k < kOwn; k++) {
      if (channel(group, k) >= a_.p.dim) break;
      const float scale = wide::scale_of_taps(a_.p, channel(group, k), lane_, 32);
      if (lane_ == k) scale_ = scale;
    }
  }

  // write writes both copies of the filters, of which the second one begins one tap later, in words of two taps; with kSplit the copies of
  // both parts.
  template <bool kSplit> AITER_DEVICE void write(const Fetched& f, uint32_t first) const {
    AITER_UNROLL
    for (int k = 0; k < kOwn; k++) {
      const float factor = kSplit ? scale(k) : 1.0f;
      uint32_t to = first + uint32_t(own(k) * a_.launch.taps_bytes + lane_ * kEach * 2);
      AITER_UNROLL
      for (int r = 0; r < kRounds; r++, to += 32 * kEach * 2) {
        if (r * 32 * kEach >= pitch()) break;
        const uint32_t after = r + 1 < kRounds ? f.taps[(r + 1) % kRounds][k][0] : 0;
        const uint32_t bits[3] = {f.taps[r][k][0], f.taps[r][k][1], __shfl_sync(0xffffffffu, lane_ ? f.taps[r][k][0] : after, lane_ + 1)};
        if (r * 32 * kEach + lane_ * kEach >= pitch()) continue;
        T v[3], rest[3];
        AITER_UNROLL
        for (int n = 0; n < 3; n++) {
          if constexpr (kSplit) {
            const float w = element_to_float(a_.p.weight.dtype, bits[n]) * factor;
            v[n] = round_to<T>(w), rest[n] = round_to<T>(w - to_float(v[n]));
          } else v[n].bits = uint16_t(bits[n]);
        }
        write_words(to, v);
        if (kSplit) write_words(to + pitch() * 4, rest);
      }
    }
  }
  AITER_DEVICE void write_words(uint32_t to, const T (&w)[3]) const {
    store_shared(to, Words<1>{w[0].bits | uint32_t(w[1].bits) << 16});
    store_shared(to + pitch() * 2, Words<1>{w[1].bits | uint32_t(w[2].bits) << 16});
  }

  const Args& a_;
  int warp_, lane_;
  float scale_ = 1.0f, bias_ = 0.0f;  // of channel own(lane)
};
#endif

}  // namespace aiter::conv1d::fwd
