// The general forward kernel with adjacent channels (channel-last).
//
// Tiling: a thread owns C channels (16 bytes of them; 8 for filters wider than 4 in 16-bit types; one channel where rows are not
// aligned) and walks a strip of positions, with the last W-1 positions in registers and the loads of the next
// kPositionsInFlight in flight. It computes kPositionsInFlight positions at a time, without tests if all exist and
// all taps are visible.
// Halo: the W-1 positions before a strip are loaded again, from cache.
// Bytes: x once (the halo again), out once; sequence numbers or query_start_loc once a strip (from cache), states once.
// Reduction: over the width, in one thread's fp32 registers, the newest value first.
#pragma once

#include "mask_policy.h"

namespace aiter::conv1d {

// Positions whose loads are in flight: small loads, and threads that are few because of their registers, need more to hide the
// latency.
template <class T, int W, int C>
constexpr int kPositionsInFlight = AITER_CUDA && (sizeof(T) == 2 || C == 1 || W > 4) ? 8 : 4;

// kChannelLastBlocks blocks of a multiprocessor, or waves of an AMD SIMD unit, leave a thread 100 registers, or 168 for wide
// filters, 56 for one channel without masks; on AMD 256 with a mask.
template <int W, int C, class Mask>
constexpr int kChannelLastBlocks = AITER_HIP ? (Mask::kMasked ? 2 : 3) : C == 1 && !Mask::kMasked ? 9 : W > 4 ? 3 : 5;

// Channels of a thread where rows are aligned.
template <class T, int W> constexpr int kChannels = W > 4 || AITER_CUDA ? 4 : kVecElems<T>;

// ChannelVec is C neighbouring channels of a position.
template <class T, int C> struct ChannelVec {
  static constexpr int kWords = C == 1 ? 1 : C / kWordElems<T>;

  // load loads one position; with C = 1 the channel's bits are in the low end of a word.
  static AITER_DEVICE Words<kWords> load(const T* p) {
    if constexpr (C > 1) return load_readonly<kWords>(p);
    else return {uint32_t(load_readonly_element(reinterpret_cast<const bits_of<T>*>(p)))};
  }

  static AITER_DEVICE void floats(const Words<kWords>& w, float* v) {
    if constexpr (C == 1) {
      float pair[2];
      unpack_word<T>(w.word[0], pair);
      v[0] = pair[0];
    } else {
      AITER_UNROLL
      for (int i = 0; i < kWords; i++) unpack_word<T>(w.word[i], v + i * kWordElems<T>);
    }
  }

  // store writes the first `some` channels of a position.
  static AITER_DEVICE void store(T* p, int some, const float* y) {
    if constexpr (C == 1) {
      const float pair[2] = {y[0], 0.0f};
      if (some > 0) *reinterpret_cast<bits_of<T>*>(p) = bits_of<T>(pack_word<T>(pair));
    } else {
      Words<kWords> w;
      AITER_UNROLL
      for (int i = 0; i < kWords; i++) w.word[i] = pack_word<T>(y + i * kWordElems<T>);
      if (some >= C) return store_words<kWords>(p, w);
      T v[C];
      __builtin_memcpy(v, &w, sizeof v);
      AITER_UNROLL
      for (int c = 0; c < C; c++)
        if (c < some) p[c] = v[c];
    }
  }
};

// position_sum computes the outputs of C channels of a position from the values of the W positions up to it. kMasked: bit m of
// `visible` is set if the position m before it is visible; pads: hidden positions count as zeros.
template <bool kMasked, class Filter, int C>
AITER_DEVICE void position_sum(const Filter& filter, const float (*x)[C], uint32_t visible, bool pads, bool silu, float* y) {
  constexpr int W = Filter::kTaps;
  AITER_UNROLL
  for (int c = 0; c < C; c++) y[c] = filter.bias[c];
  AITER_UNROLL
  for (int k = W - 1; k >= 0; k--) {
    if (!filter.has_tap(k)) continue;
    if (kMasked && k < W - 1 && !(visible >> (W - 1 - k) & 1)) {
      if (!pads) continue;  // otherwise a tap that is not finite makes NaN
      AITER_UNROLL
      for (int c = 0; c < C; c++) y[c] = fmaf(filter.weight[c][k], 0.0f, y[c]);
      continue;
    }
    AITER_UNROLL
    for (int c = 0; c < C; c++) y[c] = fmaf(filter.weight[c][k], x[k][c], y[c]);
  }
  if (silu) {
    AITER_UNROLL
    for (int c = 0; c < C; c++) y[c] *= sigmoid(y[c]);
  }
  if (kMasked) {
    AITER_UNROLL
    for (int c = 0; c < C; c++) y[c] = visible & 1 ? y[c] : 0.0f;
  }
}

// StripWalk is one thread's strip.
template <class T, int W, int C, class Mask> class StripWalk {
 public:
  AITER_DEVICE StripWalk(const ConvParams& a, const KernelParam<Mask, ConvParams>& source, int64_t b, int64_t d)
      : a_(a), source_(source), b_(b), d_(d) {}

  AITER_DEVICE void run(int64_t first, int64_t end) {
    const T* x = a_.x.row<T>(b_, d_);
    T* out = a_.out.row<T>(b_, d_) + first * a_.out.last;
    const int some = a_.dim - d_ < C ? int(a_.dim - d_) : C;
    int left = int(end - first);
    filter_.load(a_, d_);
    issue_first(x, first, left);
    x += (first + A) * a_.x.last;
    fill_window(first);
    for (int64_t t = first; left > 0; t += A, left -= A) {
      if (some == C && left >= A && (!Mask::kMasked || !(hidden_ >> (t & 31) & ((1u << A) - 1)))) run_unmasked(x, out, left);
      else run_masked(x, out, t, left, some);
    }
    if constexpr (Mask::kMasked) {
      if (end < a_.seqlen) return;
      const Mask& source = reload_kernarg(source_);
      AITER_ROLLED
      for (int c = 0; c < some; c++) source.template write_final_states<T, W>(b_, d_ + c);
    }
  }

 private:
  using Raw = Words<ChannelVec<T, C>::kWords>;
  static constexpr int A = kPositionsInFlight<T, W, C>;

  // issue_first issues the loads of the first positions and of those before them.
  AITER_DEVICE void issue_first(const T* x, int64_t first, int left) {
    AITER_UNROLL
    for (int u = 0; u < A; u++) {
      raw_[u] = {};
      if (u >= left) continue;
      raw_[u] = ChannelVec<T, C>::load(x + (first + u) * a_.x.last);
    }
    AITER_UNROLL
    for (int k = 0; k < W - 1; k++) {
      const int64_t u = first - (W - 1) + k;
      past_[k] = {};
      if (u >= 0) past_[k] = ChannelVec<T, C>::load(x + u * a_.x.last);
    }
    if constexpr (Mask::kMasked) find_mask(reload_kernarg(source_), first, left);
  }

  // find_mask computes the mask of the strip's n positions, which do not cross a multiple of 32: position t has bit t % 32.
  AITER_DEVICE void find_mask(const Mask& source, int64_t t, int n) {
    pads_ = source.multiplies_padding();
    mask_ = mask_.uniform(source.masks() ? 0 : ~0u);
    if (source.masks()) source.template find_mask<W, 32, 8>(b_, t, 0, n, {int(max64(-t, -32)), n}, int(t & 31), &mask_);
    hidden_ = ~mask_.fully_visible();
  }

  // fill_window converts the positions before the strip.
  AITER_DEVICE void fill_window(int64_t first) {
    filter_.convert(a_);
    AITER_UNROLL
    for (int k = 0; k < W - 1; k++) ChannelVec<T, C>::floats(past_[k], x_[k]);
    if constexpr (Mask::kMasked) {
      if (first > 0) return;
      const Mask& source = reload_kernarg(source_);
      AITER_ROLLED
      for (int k = 0; k < W - 1; k++) {  // registers cannot be indexed: all move by one
        AITER_UNROLL
        for (int c = 0; c < C; c++) {
          AITER_UNROLL
          for (int i = 0; i + 1 < W - 1; i++) x_[i][c] = x_[i + 1][c];
          x_[W - 2][c] = source.template initial_state<T>(b_, d_ + c < a_.dim ? d_ + c : d_, k - (W - 1));
        }
      }
    }
  }

  // run_unmasked computes A positions that exist, with all taps visible.
  AITER_DEVICE void run_unmasked(const T*& x, T*& out, int left) {
    AITER_UNROLL
    for (int u = 0; u < A; u++) {
      const Raw raw = raw_[u];
      if (u + A < left) raw_[u] = ChannelVec<T, C>::load(x);
      run_position<false>(raw, ~0u, out, C);
      x += a_.x.last, out += a_.out.last;
    }
  }

  // run_masked computes up to A positions one by one.
  AITER_DEVICE void run_masked(const T*& x, T*& out, int64_t t, int left, int some) {
    AITER_ROLLED
    for (int u = 0; u < A && u < left; u++) {  // registers cannot be indexed: all move by one
      const Raw raw = raw_[0];
      uint32_t visible = ~0u, skip = 0;
      if constexpr (Mask::kMasked) visible = mask_.of((t + u) & 31), skip = mask_.skip() >> ((t + u) & 31) & 1;
      AITER_UNROLL
      for (int k = 0; k + 1 < A; k++) raw_[k] = raw_[k + 1];
      if (u + A < left) raw_[A - 1] = ChannelVec<T, C>::load(x);
      run_position<Mask::kMasked>(raw, visible, out, skip ? 0 : some);
      x += a_.x.last, out += a_.out.last;
    }
  }

  // run_position computes a position and stores its first `some` channels.
  template <bool kMasked> AITER_DEVICE void run_position(const Raw& raw, uint32_t visible, T* out, int some) {
    float y[C];
    ChannelVec<T, C>::floats(raw, x_[W - 1]);
    position_sum<kMasked>(filter_, x_, visible, pads_, a_.silu, y);
    ChannelVec<T, C>::store(out, some, y);
    AITER_UNROLL
    for (int k = 0; k < W - 1; k++)
      AITER_UNROLL
      for (int c = 0; c < C; c++) x_[k][c] = x_[k + 1][c];
  }

  const ConvParams& a_;
  const KernelParam<Mask, ConvParams>& source_;
  const int64_t b_, d_;
  Filter<T, W, C, FilterKind::kStrided> filter_;
  Raw raw_[A], past_[W - 1];
  float x_[W][C];
  SeqMask<W, 32> mask_;
  uint32_t hidden_;
  bool pads_ = false;
};

// run_channel_last is a thread's work. Neighbouring threads take neighbouring channels. a and source are the kernel's arguments.
template <class T, int W, int C, class Mask>
AITER_DEVICE void run_channel_last(const ConvParams& a, const KernelParam<Mask, ConvParams>& source, uint32_t index) {
  const uint32_t q = a.inner.quotient(index), b = a.outer.quotient(q);
  const int64_t d = (a.group0 + (index - q * a.inner.divisor)) * C, first = (a.tile0 + (q - b * a.outer.divisor)) * a.strip;
  const int64_t end = first + a.strip < a.seqlen ? first + a.strip : a.seqlen;
  StripWalk<T, W, C, Mask>(a, source, a.batch0 + b, d).run(first, end);
}

// channels_aligned reports whether each position's channels are aligned to `bytes` bytes.
inline bool channels_aligned(const Array3& x, int64_t batch, int64_t seqlen, int64_t size, int64_t bytes) {
  return x.dim == 1 && is_aligned(x.data, bytes) && (batch == 1 || x.batch * size % bytes == 0) &&
         (seqlen == 1 || x.last * size % bytes == 0);
}

// channel_last_extent chooses the strip and counts threads of C channels. Long strips read less twice; short strips keep the
// memory of all threads close together and make more threads: up to 32 positions of 2 bytes or 16 of 4.
inline WorkExtent channel_last_extent(ConvParams* a, int64_t batch, int64_t channels, int64_t size) {
  const int64_t groups = (a->dim + channels - 1) / channels, most = 64 / size;
  const auto enough = [&](int64_t threads) { return threads >= 1 << (size == 2 && a->strip == 8 ? 16 : 18); };
  a->strip = 8;  // more than any halo
  while (a->strip < most && enough(groups * batch * (a->seqlen / (2 * a->strip)))) a->strip *= 2;
  a->strip = int32_t(tuned_among("strip", a->strip, 8, 16, 32));  // a mask has 32 positions
  return {batch, groups, (a->seqlen + a->strip - 1) / a->strip, false};
}

}  // namespace aiter::conv1d
