// Rows whose channels are adjacent in memory (channel-last), on the GPU.
//
// Tiling: a thread owns C channels (16 bytes of them, 8 for filters wider than 4
// in 16-bit types; one channel where rows are not aligned) and walks a strip of
// positions, the last W-1 of them in registers and the loads of the next kAhead on
// their way. It takes kAhead positions at a time, without a look at any of them
// where all exist and see all.
// Halo: the W-1 positions before a strip are loaded again, from cache.
// Bytes: x once (the halo again), out once; where there are any, sequence numbers or
// query_start_loc once a strip (from cache), states once.
// Reduction: over the width, in one thread's fp32 registers, the newest value first.
#pragma once

#include "../common/filter_gpu.h"

namespace aiter::conv1d {

// kAhead is how many positions' loads are on their way. Where they are small, or
// where registers leave room for few threads, it takes more to hide the latency.
template <class T, int W, int C> constexpr int kAhead = AITER_CUDA && (sizeof(T) == 2 || C == 1 || W > 4) ? 8 : 4;

// kWalking blocks of a multiprocessor, or waves of an AMD SIMD unit, leave a thread
// 100 registers, or 168 where what it holds needs that; on AMD 256 with a gate.
template <int W, class Gate> constexpr int kWalking = AITER_HIP ? (Gate::kPlain ? 3 : 2) : W > 4 ? 3 : 5;

// kChannels is how many a thread owns where rows are aligned.
template <class T, int W> constexpr int kChannels = W > 4 || AITER_CUDA ? 4 : kVector<T>;

// Tokens is the memory of C neighbouring channels of one row.
template <class T, int C> struct Tokens {
  static constexpr int kWords = C == 1 ? 1 : C / kPer<T>;

  // load reads one position; of one channel, its bits in the low end of a word.
  static AITER_DEVICE Words<kWords> load(const T* p) {
    if constexpr (C > 1) return load_words<kWords>(p);
    else return {uint32_t(load_item(reinterpret_cast<const bits_of<T>*>(p)))};
  }

  static AITER_DEVICE void floats(const Words<kWords>& w, float* v) {
    if constexpr (C == 1) {
      float pair[2];
      unpack<T>(w.word[0], pair);
      v[0] = pair[0];
    } else {
      AITER_UNROLL
      for (int i = 0; i < kWords; i++) unpack<T>(w.word[i], v + i * kPer<T>);
    }
  }

  // store writes the first `some` channels of a position.
  static AITER_DEVICE void store(T* p, int some, const float* y) {
    if constexpr (C == 1) {
      const float pair[2] = {y[0], 0.0f};
      if (some > 0) *reinterpret_cast<bits_of<T>*>(p) = bits_of<T>(pack<T>(pair));
    } else {
      Words<kWords> w;
      AITER_UNROLL
      for (int i = 0; i < kWords; i++) w.word[i] = pack<T>(y + i * kPer<T>);
      if (some >= C) return store_words<kWords>(p, w);
      T v[C];
      __builtin_memcpy(v, &w, sizeof v);
      AITER_UNROLL
      for (int c = 0; c < C; c++)
        if (c < some) p[c] = v[c];
    }
  }
};

// Walk is one thread's strip.
template <class T, int W, int C, class Gate> class Walk {
 public:
  AITER_DEVICE Walk(const Rows& a, const Gate& gate, int64_t b, int64_t d) : a_(a), gate_(gate), b_(b), d_(d) {}

  AITER_DEVICE void run(int64_t first, int64_t end) {
    const T* x = a_.x.row<T>(b_, d_);
    T* out = a_.out.row<T>(b_, d_) + first * a_.out.last;
    const int some = a_.dim - d_ < C ? int(a_.dim - d_) : C;
    int left = int(end - first);
    filter_.fetch(a_, d_);
    fill(x, first, left);
    x += (first + A) * a_.x.last;
    begin(first);
    for (int64_t t = first; left > 0; t += A, left -= A) {
      if (some == C && left >= A && strip_.template whole<A>(t)) simple(x, out, left);
      else careful(x, out, t, left, some);
    }
    if constexpr (!Gate::kPlain) {
      if (end < a_.seqlen) return;
      const Gate& gate = again_after<Rows>(gate_);
      AITER_ROLLED
      for (int c = 0; c < some; c++) gate.template finish<T, W>(b_, d_ + c);
    }
  }

 private:
  using Raw = Words<Tokens<T, C>::kWords>;
  static constexpr int A = kAhead<T, W, C>;

  // fill puts the loads of the first positions, and of those before, on their way.
  AITER_DEVICE void fill(const T* x, int64_t first, int left) {
    AITER_UNROLL
    for (int u = 0; u < A; u++) {
      raw_[u] = {};
      if (u >= left) continue;
      raw_[u] = Tokens<T, C>::load(x + (first + u) * a_.x.last);
    }
    AITER_UNROLL
    for (int k = 0; k < W - 1; k++) {
      const int64_t u = first - (W - 1) + k;
      past_[k] = {};
      if (u >= 0) past_[k] = Tokens<T, C>::load(x + u * a_.x.last);
    }
    if constexpr (!Gate::kPlain) strip_.look(again_after<Rows>(gate_), b_, first, left);
  }

  // begin makes the window of what lies before the strip.
  AITER_DEVICE void begin(int64_t first) {
    filter_.settle(a_);
    AITER_UNROLL
    for (int k = 0; k < W - 1; k++) Tokens<T, C>::floats(past_[k], x_[k]);
    if constexpr (!Gate::kPlain) {
      if (first > 0) return;
      const Gate& gate = again_after<Rows>(gate_);
      AITER_ROLLED
      for (int k = 0; k < W - 1; k++) {  // registers have no index: all move on by one
        AITER_UNROLL
        for (int c = 0; c < C; c++) {
          AITER_UNROLL
          for (int i = 0; i + 1 < W - 1; i++) x_[i][c] = x_[i + 1][c];
          x_[W - 2][c] = gate.template before<T>(b_, d_ + c < a_.dim ? d_ + c : d_, k - (W - 1));
        }
      }
    }
  }

  // simple does A positions that exist and see all.
  AITER_DEVICE void simple(const T*& x, T*& out, int left) {
    AITER_UNROLL
    for (int u = 0; u < A; u++) {
      const Raw raw = raw_[u];
      if (u + A < left) raw_[u] = Tokens<T, C>::load(x);
      token<false>(raw, ~0u, out, C);
      x += a_.x.last, out += a_.out.last;
    }
  }

  // careful does up to A positions one by one.
  AITER_DEVICE void careful(const T*& x, T*& out, int64_t t, int left, int some) {
    AITER_ROLLED
    for (int u = 0; u < A && u < left; u++) {  // registers have no index: all move on by one
      const Raw raw = raw_[0];
      uint32_t see = ~0u;
      bool skip = false;
      if constexpr (!Gate::kPlain) see = strip_.next(t + u, &skip);
      AITER_UNROLL
      for (int k = 0; k + 1 < A; k++) raw_[k] = raw_[k + 1];
      if (u + A < left) raw_[A - 1] = Tokens<T, C>::load(x);
      token<!Gate::kPlain>(raw, see, out, skip ? 0 : some);
      x += a_.x.last, out += a_.out.last;
    }
  }

  // token does a position, of which it stores the first `some` channels.
  template <bool kGated> AITER_DEVICE void token(const Raw& raw, uint32_t see, T* out, int some) {
    float y[C];
    Tokens<T, C>::floats(raw, x_[W - 1]);
    AITER_UNROLL
    for (int c = 0; c < C; c++) y[c] = filter_.bias[c];
    AITER_UNROLL
    for (int k = W - 1; k >= 0; k--) {
      if (!filter_.has(k)) continue;
      if (kGated && k < W - 1 && !(see >> k & 1)) {
        if (!(see >> 8)) continue;  // else a tap that is not finite makes NaN
        AITER_UNROLL
        for (int c = 0; c < C; c++) y[c] = fmaf(filter_.weight[c][k], 0.0f, y[c]);
        continue;
      }
      AITER_UNROLL
      for (int c = 0; c < C; c++) y[c] = fmaf(filter_.weight[c][k], x_[k][c], y[c]);
    }
    if (a_.silu) {
      AITER_UNROLL
      for (int c = 0; c < C; c++) y[c] *= sigmoid(y[c]);
    }
    if constexpr (kGated) {
      AITER_UNROLL
      for (int c = 0; c < C; c++) y[c] = see >> 7 & 1 ? y[c] : 0.0f;
    }
    Tokens<T, C>::store(out, some, y);
    AITER_UNROLL
    for (int k = 0; k < W - 1; k++)
      AITER_UNROLL
      for (int c = 0; c < C; c++) x_[k][c] = x_[k + 1][c];
  }

  const Rows& a_;
  const Gate& gate_;
  const int64_t b_, d_;
  Filter<T, W, C> filter_;
  typename Gate::template Strip<W> strip_;
  Raw raw_[A], past_[W - 1];
  float x_[W][C];
};

// run_tokens is what one thread does. Neighbours take neighbouring channels. a and gate
// are the kernel's arguments.
template <class T, int W, int C, class Gate> AITER_DEVICE void run_tokens(const Rows& a, const Gate& gate, uint32_t index) {
  const uint32_t q = a.inner.quotient(index), b = a.outer.quotient(q);
  const int64_t d = (a.group0 + (index - q * a.inner.by)) * C, first = (a.tile0 + (q - b * a.outer.by)) * a.strip;
  const int64_t end = first + a.strip < a.seqlen ? first + a.strip : a.seqlen;
  Walk<T, W, C, Gate>(a, gate, a.batch0 + b, d).run(first, end);
}

// tokens_aligned says whether every position's channels are aligned to so many bytes.
inline bool tokens_aligned(const Array3& x, int64_t batch, int64_t seqlen, int64_t size, int64_t bytes) {
  return x.dim == 1 && is_aligned(x.data, bytes) && (batch == 1 || x.batch * size % bytes == 0) &&
         (seqlen == 1 || x.last * size % bytes == 0);
}

// extent_of_tokens chooses the strip and counts threads of C channels. Long strips
// read less twice; short ones keep what all threads touch together close, and many
// threads hide more: up to 32 positions of 2 bytes or 16 of 4.
inline Extent extent_of_tokens(Rows* a, int64_t batch, int64_t channels, int64_t size) {
  const int64_t groups = (a->dim + channels - 1) / channels, most = 64 / size;
  const auto enough = [&](int64_t threads) { return threads >= 1 << (size == 2 && a->strip == 8 ? 16 : 18); };
  a->strip = 8;  // more than what lies before a row
  while (a->strip < most && enough(groups * batch * (a->seqlen / (2 * a->strip)))) a->strip *= 2;
  return {batch, groups, (a->seqlen + a->strip - 1) / a->strip, false};
}

}  // namespace aiter::conv1d
