// The positions of a sequence that read its slot, on the GPU: one thread a channel.
#pragma once

#include "any_width.h"
#include "filter_gpu.h"
#include "state.h"

namespace aiter::conv1d {

// SequenceRange is the sequence of a position, or a range without a sequence.
struct SequenceRange {
  int64_t first, end;
  bool live;

  AITER_DEVICE bool has(int64_t t) const { return t >= first && t < end; }
};

// find_sequence finds the sequence of t in a packed row. For any content of starts the result contains t or is not live; if
// sequences are out of order it may miss one. *number is the sequence's.
AITER_DEVICE SequenceRange find_sequence(const Stateful& p, int64_t t, int64_t* number = nullptr) {
  int64_t low = 0;
  AITER_ROLLED
  for (int64_t n = p.batch; n > 1; n -= n / 2)  // the last sequence that starts by t is one of n
    if (p.starts[low + n / 2] <= t) low += n / 2;
  if (p.batch == 0 || p.starts[low] > t) return {t, t + 1, false};
  const Sequence s = p.sequence(low);
  const SequenceRange found{s.start, s.start + s.len, s.live};
  if (number) *number = low;
  return found.has(t) ? found : SequenceRange{t, t + 1, false};
}

// SequenceHead computes the first positions of a sequence and then its state.
template <class T, int W> class SequenceHead {
 public:
  // load issues all loads of the first position.
  AITER_DEVICE void load(const Stateful& p, const Sequence& s, int64_t d) {
    next_ = s.len > 0 ? p.inputs<T>(s, d)[0] : round_to<T>(0.0f);
    AITER_UNROLL
    for (int k = 0; k < W - 1; k++) x_[k] = p.before<T>(s, d, k - (W - 1));
    filter_.load(strided_filter(p, W), d);
  }

  // run computes n positions, then writes the state.
  AITER_DEVICE void run(const Stateful& p, const Sequence& s, int64_t d, int64_t n) {
    const T* x = p.inputs<T>(s, d);
    T* out = p.outputs<T>(s, d);
    filter_.convert(strided_filter(p, W));
    AITER_ROLLED
    for (int64_t t = 0; t < n; t++) {
      x_[W - 1] = next_;
      if (t + 1 < n) next_ = x[(t + 1) * p.x.last];
      float y = filter_.bias[0];
      AITER_UNROLL
      for (int k = 0; k < W; k++) y = fmaf(filter_.weight[0][k], to_float(x_[k]), y);
      out[t * p.out.last] = round_to<T>(apply_activation(p.silu, y));
      AITER_UNROLL
      for (int k = 0; k < W - 1; k++) x_[k] = x_[k + 1];
    }
    if (p.cache_seqlens.data || p.length != W - 1 || n != s.len) return p.store_state<T>(s, d);
    T* slot = p.state.row<T>(s.slot, d);  // the window is the new state
    AITER_UNROLL
    for (int k = 0; k < W - 1; k++) slot[k * p.state.last] = x_[k];
  }

 private:
  Filter<float, W, 1, FilterKind::kStrided> filter_;
  T x_[W], next_;
};

template <class T> class SequenceHead<T, 0> {
 public:
  AITER_DEVICE void load(const Stateful&, const Sequence&, int64_t) {}
  AITER_DEVICE void run(const Stateful&, const Sequence&, int64_t, int64_t) {}
};

// run_any_width is SequenceHead for any width, with all values from memory.
template <class T>
AITER_DEVICE void run_any_width(const KernelParam<Stateful>& a, const Sequence& s, int64_t d, int64_t n) {
  const Stateful& p = reload_kernarg(a);
  const T* x = p.inputs<T>(s, d);
  T* out = p.outputs<T>(s, d);
  AITER_ROLLED
  for (int64_t t = 0; t < n; t++) {
    const float y = filter_output(p, d, t, [&](int64_t u, float* v) {
      *v = to_float(u < 0 ? p.before<T>(s, d, u) : x[u * p.x.last]);
      return true;
    });
    out[t * p.out.last] = round_to<T>(apply_activation(p.silu, y));
  }
  reload_kernarg(a).store_state<T>(s, d);
}

// SlotUsers finds out, with a whole block, whether two sequences of the batch name the same slot. Its first loads are in flight
// while the block does other work. A thread reads four adjacent indices at a time, with one load if they are packed.
template <class P> class SlotUsers {
 public:
  AITER_DEVICE explicit SlotUsers(const P& p) {
    if (p.indices.data) read(p, Index(threadIdx.x * kMany));
  }

  // share_slot reports whether another sequence names the slot of sequence b. A kernel calls it once.
  AITER_DEVICE bool share_slot(const P& p, int64_t b, int64_t slot) {
    if (!p.indices.data) return false;
    int found = 0;
    AITER_ROLLED
    for (Index first = Index(threadIdx.x * kMany);;) {
      AITER_UNROLL
      for (int k = 0; k < kMany; k++) found += slots_[k] == slot;
      found -= uint32_t(Index(b) - first) < kMany;  // sequence b itself
      first += Index(kMany * blockDim.x);
      if (first - Index(threadIdx.x * kMany) >= p.batch) break;
      read(p, first);
    }
    return block_any(found > 0);
  }

 private:
  using Index = std::remove_cv_t<decltype(P::batch)>;
  static constexpr int kMany = 4;

  AITER_DEVICE void read(const P& p, Index i) {
    if (p.indices.packed() && i + kMany <= p.batch) {
      const auto four = load_vec<float, kMany>(static_cast<const float*>(static_cast<const void*>(p.indices.data)) + i);
      AITER_UNROLL
      for (int k = 0; k < kMany; k++) slots_[k] = int32_t(four.word[k]);
    } else {
      AITER_UNROLL
      for (int k = 0; k < kMany; k++) slots_[k] = i + k < p.batch ? p.indices[i + k] : INT32_MIN;
    }
  }

  int32_t slots_[kMany];
};

// next_with_slot returns the first sequence from b on, before end, that has the slot, or end.
template <class P, class I> AITER_DEVICE I next_with_slot(const P& a, int64_t slot, I b, I end) {
  AITER_ROLLED
  while (b < end && a.indices[b] != slot) b++;
  return b;
}

// earlier_sequence_has_slot reports whether an earlier sequence has the slot: its thread then computes this one too.
AITER_DEVICE bool earlier_sequence_has_slot(const Stateful& p, int64_t b, int64_t slot) {
  AITER_ROLLED
  for (int64_t i = 0; i < b; i++)
    if (p.indices[i] == slot && p.sequence(i).live) return true;
  return false;
}

// run_head computes up to `most` positions of sequence b, which is live, and then of the sequences that share its slot, in order.
// All threads of a block call it with the same b. A filter of W taps takes a SequenceHead; W = 0: none does. p is the
// kernel's first argument. computed: positions of sequences that share no slot are computed already.
template <class T, int W>
AITER_DEVICE void run_head(const KernelParam<Stateful>& p, int64_t b, int64_t d, int64_t most, bool computed = false) {
  SlotUsers<Stateful> others(reload_kernarg(p));
  const Sequence first = reload_kernarg(p).sequence(b);
  const bool fixed_width = W > 0 && p.width == W;
  SequenceHead<T, W> head;
  if (fixed_width) head.load(reload_kernarg(p), first, d < p.dim ? d : 0);
  const bool shared = others.share_slot(reload_kernarg(p), b, first.slot);
  if (computed && !shared) most = 0;
  if (d >= p.dim || (shared && earlier_sequence_has_slot(reload_kernarg(p), b, first.slot))) return;
  if (fixed_width) head.run(reload_kernarg(p), first, d, min64(first.len, most));
  AITER_ROLLED
  for (int64_t i = fixed_width ? b + 1 : b, end = shared ? p.batch : b + 1; i < end; i++) {
    const Sequence s = reload_kernarg(p).sequence(i);
    if (s.live && s.slot == first.slot) run_any_width<T>(p, s, d, min64(s.len, most));
  }
}

}  // namespace aiter::conv1d
