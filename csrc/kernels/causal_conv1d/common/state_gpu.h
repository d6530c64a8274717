// The part of a sequence that touches its slot, on the GPU: one thread a channel.
#pragma once

#include <aiter/gpu.h>

#include "state.h"

namespace aiter::conv1d {

// read_taps reads the weights of a channel; the type is looked at once.
template <int W, class T> AITER_DEVICE void read_taps(const T* p, int64_t stride, float* w) {
  AITER_UNROLL
  for (int k = 0; k < W; k++) w[k] = to_float(p[k * stride]);
}

template <int W> AITER_DEVICE void read_taps(const Array2& a, int64_t d, float* w) {
  switch (a.dtype) {
    case DType::F16: return read_taps<W>(static_cast<const half_t*>(a.data) + d * a.first, a.last, w);
    case DType::BF16: return read_taps<W>(static_cast<const bf16_t*>(a.data) + d * a.first, a.last, w);
    default: return read_taps<W>(static_cast<const float*>(a.data) + d * a.first, a.last, w);
  }
}

AITER_DEVICE float finish(bool silu, float y) { return silu ? y * sigmoid(y) : y; }

// Head computes the first positions of a sequence and then its state.
template <class T, int W> class Head {
 public:
  // load puts whatever it needs first on its way to registers.
  AITER_DEVICE void load(const Stateful& p, const Sequence& s, int64_t d) {
    next_ = s.len > 0 ? p.inputs<T>(s, d)[0] : round_to<T>(0.0f);
    AITER_UNROLL
    for (int k = 0; k < W - 1; k++) x_[k] = p.before<T>(s, d, k - (W - 1));
    read_taps<W>(p.weight, d, w_);
    bias_ = p.bias.data ? p.bias.get(d, 0) : 0.0f;
  }

  // run computes n positions, then leaves the state.
  AITER_DEVICE void run(const Stateful& p, const Sequence& s, int64_t d, int64_t n) {
    const T* x = p.inputs<T>(s, d);
    T* out = p.outputs<T>(s, d);
    AITER_ROLLED
    for (int64_t t = 0; t < n; t++) {
      x_[W - 1] = next_;
      if (t + 1 < n) next_ = x[(t + 1) * p.x.last];
      float y = bias_;
      AITER_UNROLL
      for (int k = 0; k < W; k++) y = fmaf(w_[k], to_float(x_[k]), y);
      out[t * p.out.last] = round_to<T>(finish(p.silu, y));
      AITER_UNROLL
      for (int k = 0; k < W - 1; k++) x_[k] = x_[k + 1];
    }
    if (p.cache_seqlens.data || p.length != W - 1 || n != s.len) return p.remember<T>(s, d);
    T* slot = p.state.row<T>(s.slot, d);  // the window is the new state
    AITER_UNROLL
    for (int k = 0; k < W - 1; k++) slot[k * p.state.last] = x_[k];
  }

 private:
  float w_[W], bias_;
  T x_[W], next_;
};

template <class T> class Head<T, 0> {
 public:
  AITER_DEVICE void load(const Stateful&, const Sequence&, int64_t) {}
  AITER_DEVICE void run(const Stateful&, const Sequence&, int64_t, int64_t) {}
};

// run_any does what a Head does for any width: everything from memory.
template <class T> AITER_DEVICE void run_any(const Stateful& a, const Sequence& s, int64_t d, int64_t n) {
  const Stateful& p = again(a);
  const T* x = p.inputs<T>(s, d);
  T* out = p.outputs<T>(s, d);
  AITER_ROLLED
  for (int64_t t = 0; t < n; t++) {
    float y = p.bias.data ? p.bias.get(d, 0) : 0.0f;
    AITER_ROLLED
    for (int64_t k = 0; k < p.width; k++) {
      const int64_t u = t - (p.width - 1) + k;
      y = fmaf(p.weight.get(d, k), to_float(u < 0 ? p.before<T>(s, d, u) : x[u * p.x.last]), y);
    }
    out[t * p.out.last] = round_to<T>(finish(p.silu, y));
  }
  again(a).remember<T>(s, d);
}

// Others looks, with a whole block, whether another of the batch names a slot. What
// it reads is on its way while other things are.
template <class P> class Others {
 public:
  AITER_DEVICE explicit Others(const P& p) {
    if (p.indices.data) read(p, Index(threadIdx.x));
  }

  // name says whether they name the slot of sequence b. A kernel calls it once.
  AITER_DEVICE bool name(const P& p, int64_t b, int64_t slot) {
    if (!p.indices.data) return false;
    bool found = false;
    AITER_ROLLED
    for (Index first = 0;;) {
      AITER_UNROLL
      for (int k = 0; k < kMany; k++) {
        const Index i = first + Index(threadIdx.x + k * blockDim.x);
        found |= i < p.batch && i != Index(b) && slots_[k] == slot;
      }
      first += Index(kMany * blockDim.x);
      if (first >= p.batch) break;
      read(p, first + Index(threadIdx.x));
    }
    return block_any(found);
  }

 private:
  using Index = std::remove_cv_t<decltype(P::batch)>;
  static constexpr int kMany = 4;

  AITER_DEVICE void read(const P& p, Index i) {
    AITER_UNROLL
    for (int k = 0; k < kMany; k++, i += Index(blockDim.x)) slots_[k] = i < p.batch ? p.indices[i] : 0;
  }

  int32_t slots_[kMany];
};

// follows says whether an earlier sequence has the slot: it then runs this one.
AITER_DEVICE bool follows(const Stateful& p, int64_t b, int64_t slot) {
  AITER_ROLLED
  for (int64_t i = 0; i < b; i++)
    if (p.indices[i] == slot && p.sequence(i).live) return true;
  return false;
}

AITER_SHARED int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// run_head does up to `most` positions of sequence b, and of those that share its
// slot, in order. All threads of a block come with the same b, which is live. A
// filter W wide is quick, W 0 says that there is none. p is the kernel's first argument.
template <class T, int W> AITER_DEVICE void run_head(const Stateful& p, int64_t b, int64_t d, int64_t most) {
  Others<Stateful> others(again(p));
  const Sequence first = again(p).sequence(b);
  const bool quick = W > 0 && p.width == W;
  Head<T, W> head;
  if (quick) head.load(again(p), first, d < p.dim ? d : 0);
  const bool shared = others.name(again(p), b, first.slot);
  if (d >= p.dim || (shared && follows(again(p), b, first.slot))) return;
  if (quick) head.run(again(p), first, d, least(first.len, most));
  AITER_ROLLED
  for (int64_t i = quick ? b + 1 : b, end = shared ? p.batch : b + 1; i < end; i++) {
    const Sequence s = again(p).sequence(i);
    if (s.live && s.slot == first.slot) run_any<T>(p, s, d, least(s.len, most));
  }
}

// A launch has so many blocks at most. A loop over more in the kernel would keep
// all its arguments in registers, where there is no room for them.
constexpr int64_t kMostBlocks = 1 << 21;

// threads_for is the size of a block for rows of dim channels.
inline unsigned threads_for(int64_t dim) { return dim <= 64 ? 64 : dim <= 128 ? 128 : 256; }

}  // namespace aiter::conv1d
