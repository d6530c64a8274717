// causal_conv1d_varlen_fwd and causal_conv1d_varlen_states on the GPU, for hipcc
// and nvcc.
//
// Tiling: the first width-1 positions of a sequence and its state are one
// thread's, a block 64 to 128 channels of one sequence. All other positions know
// nothing of states: they are rows as in causal_conv1d_fwd.hip, wherever sequences
// begin and end in them. Both kinds of blocks are in one launch. Without
// conv_states there are rows alone. Filters wider than 8 take a thread for a few
// positions.
// Bytes: x once (the halo again, from cache), out once, states once;
// query_start_loc by binary search, once for kRows vectors or a strip and once for
// each sequence in them.
// Reduction: over the width, in one thread's fp32 registers.
// varlen_states: a thread copies up to 8 values of a channel; x and states once.

#include <aiter/dispatch.h>
#include <aiter/ffi.h>

#include "causal_conv1d_first_gpu.h"
#include "causal_conv1d_last_gpu.h"
#include "causal_conv1d_state_gpu.h"

namespace aiter::conv1d::varlen {

constexpr int kRun = 8;  // positions computed together

// Stretch is the sequence around a position, or a stretch without any.
struct Stretch {
  int64_t first, end;
  bool live;

  AITER_DEVICE bool has(int64_t t) const { return t >= first && t < end; }
};

// find looks t up. Whatever starts holds, the answer has t or is not live; where
// sequences are out of order it may miss one.
AITER_DEVICE Stretch find(const Stateful& p, int64_t t) {
  int64_t low = 0;
  AITER_ROLLED
  for (int64_t n = p.batch; n > 1; n -= n / 2)  // the last that starts by t is one of n
    if (p.starts[low + n / 2] <= t) low += n / 2;
  if (p.batch == 0 || p.starts[low] > t) return {t, t + 1, false};
  const Sequence s = p.sequence(low);
  const Stretch found{s.start, s.start + s.len, s.live};
  return found.has(t) ? found : Stretch{t, t + 1, false};
}

// bits_from has the bits from n on, of which it has N at least.
AITER_DEVICE uint32_t bits_from(int n) { return n < 0 ? ~0u : n > 31 ? 0 : ~0u << n; }

// Packed is the gate of rows that hold sequences. The first `head` positions of
// each are not theirs.
class Packed {
 public:
  static constexpr bool kPlain = false;

  explicit AITER_SHARED Packed(const Stateful& p) : p_(p), head_(p.keeps ? p.width - 1 : 0) {}

  template <class T> AITER_DEVICE float before(int64_t, int64_t, int64_t) const { return 0.0f; }
  template <class T, int W> AITER_DEVICE void finish(int64_t, int64_t) const {}

  // Ids are the sequence in which a vector of N positions begins.
  template <int W, int N> struct Ids {
    Stretch begin;
    bool all;

    AITER_DEVICE void load(const Packed& g, int64_t, int64_t start, int t, const Bounds&) {
      const int64_t first = start + t;
      begin = find(g.p_, first < 0 ? 0 : first);
      all = begin.live && first - (W - 1) >= begin.first && first >= begin.first + g.head_ && first + N <= begin.end;
    }

    AITER_DEVICE bool whole(const Packed&) const { return all; }

    AITER_DEVICE Sight<W> sight(const Packed& g, int64_t start, int t) const {
      Sight<W> sight{};
      const int64_t first = start + t, end = least(first + N, g.p_.seqlen);
      Stretch s = begin;
      AITER_ROLLED
      for (int64_t u = first < 0 ? 0 : first; u < end; u = s.end) {
        if (!s.has(u)) s = find(g.p_, u);
        if (!s.live) continue;
        const int since = int(larger(s.first - first, -32)), till = int(least(s.end - first, N));  // 32 reach any filter
        const uint32_t own = bits_from(int(u - first)) & ~bits_from(till);
        sight.live |= own;
        sight.skip |= own & ~bits_from(since + int(least(g.head_, 32)));
        AITER_UNROLL
        for (int m = 1; m < W; m++) sight.see[m - 1] |= own & bits_from(since + m);
      }
      return sight;
    }
  };

  template <int W> AITER_DEVICE void start(int64_t, int64_t t) { at_ = find(p_, t); }
  AITER_DEVICE void fetch(int64_t, int64_t, int) {}

  // whole says whether A positions from t on see all.
  template <int W, int A> AITER_DEVICE bool whole(int64_t t) {
    if (!at_.has(t)) at_ = find(p_, t);
    return at_.live && t - (W - 1) >= at_.first && t >= at_.first + head_ && t + A <= at_.end;
  }

  // next says what position t sees: a bit a tap, bit 7 that it has a sequence.
  template <int W, int A> AITER_DEVICE uint32_t next(int64_t t, bool* skip) {
    if (!at_.has(t)) at_ = find(p_, t);
    if (!at_.live) return 0;
    const int64_t since = t - at_.first;
    *skip = since < head_;
    return since >= W - 1 ? 0xff : 0x80 | (0x7f << (W - 1 - int(since)) & 0x7f);
  }

 private:
  Stateful p_;
  int64_t head_;
  Stretch at_{0, 0, false};
};

// Heads are the blocks for heads in a launch, before those for rows.
struct Heads {
  int64_t first, groups;
  uint32_t blocks;
};

template <class T, int W> AITER_DEVICE void heads(const Stateful& p, const Heads& h) {
  const Split at = split(h.first + blockIdx.x, h.groups);
  if (!p.sequence(at.quotient).live) return;
  const int64_t d = at.remainder * blockDim.x + threadIdx.x;
  if (W == 4 && p.width == 4) run_head<T, 4>(p, at.quotient, d, p.width - 1);
  else run_head<T, 0>(p, at.quotient, d, p.width - 1);
}

template <class T, int W>
__global__ void __launch_bounds__(kThreads) causal_conv1d_varlen_first_kernel(Stateful p, Rows a, Heads h) {
  if (blockIdx.x < h.blocks) return heads<T, W>(p, h);
  const uint32_t i = (blockIdx.x - h.blocks) * blockDim.x + threadIdx.x;
  if (i < a.total) run_groups<T, W>(a, Packed(p), i);
}

template <class T, int W, int C>
__global__ void __launch_bounds__(kThreads, (kWalking<W, Packed>)) causal_conv1d_varlen_last_kernel(Stateful p, Rows a, Heads h) {
  if (blockIdx.x < h.blocks) return heads<T, W>(p, h);
  const uint32_t i = (blockIdx.x - h.blocks) * blockDim.x + threadIdx.x;
  if (i < a.total) run_tokens<T, W, C>(a, Packed(p), i);
}

// A thread does a few positions of one channel, of any width, all from memory.
template <class T> __global__ void __launch_bounds__(kThreads) causal_conv1d_varlen_any_kernel(Stateful p, Rows a, Heads h) {
  if (blockIdx.x < h.blocks) return heads<T, 0>(p, h);
  const uint32_t i = (blockIdx.x - h.blocks) * blockDim.x + threadIdx.x;
  if (i >= a.total) return;
  const uint32_t q = a.inner.quotient(i), n = a.outer.quotient(q), near = i - q * a.inner.by, far = q - n * a.outer.by;
  const int64_t d = a.group0 + (p.channel_last ? near : far), first = (a.tile0 + (p.channel_last ? far : near)) * kRun;
  const T* x = p.x.row<T>(0, d);
  T* out = p.out.row<T>(0, d);
  AITER_ROLLED
  for (int64_t t = first; t < least(first + kRun, p.seqlen); t++) {
    const Stretch s = find(p, t);
    if (s.live && p.keeps && t < s.first + p.width - 1) continue;
    float y = s.live && p.bias.data ? p.bias.get(d, 0) : 0.0f;
    AITER_ROLLED
    for (int64_t k = p.width - 1; s.live && k >= 0; k--) {
      const int64_t u = t - (p.width - 1) + k;
      if (u >= s.first) y = fmaf(p.weight.get(d, k), to_float(x[u * p.x.last]), y);
    }
    out[t * p.out.last] = round_to<T>(finish(p.silu, y));
  }
}

// Launcher launches rows and, with the first of them, heads.
template <class T> struct Launcher {
  const Stateful& p;
  gpu_stream_t stream;

  void run() const {
    if (p.dim == 0) return;
    if (p.width > 8) return any();
    return p.width > 4 ? run<8>() : run<4>();
  }

 private:
  // launch calls kernel with the blocks for heads and those for an extent of rows.
  template <class K> void launch(const Rows& rows, const Extent& e, K&& kernel) const {
    Heads h{0, (p.dim + kThreads - 1) / kThreads, 0};
    int64_t left = p.keeps ? p.batch * h.groups : 0;
    for (; left > kMostBlocks; left -= kMostBlocks, h.first += kMostBlocks) {
      h.blocks = uint32_t(kMostBlocks);
      kernel<<<h.blocks, kThreads, 0, stream>>>(p, Rows{}, h);
    }
    h.blocks = uint32_t(left);
    if (p.seqlen == 0 && h.blocks) kernel<<<h.blocks, kThreads, 0, stream>>>(p, Rows{}, h);
    if (p.seqlen == 0) return;
    for_parts(rows, e, [&](const Rows& part, unsigned, unsigned) {
      kernel<<<h.blocks + (part.total + kThreads - 1) / kThreads, kThreads, 0, stream>>>(p, part, h);
      h.blocks = 0;
    });
  }

  template <int W> void run() const {
    Rows a = rows_of(p, p.out);
    const int64_t size = sizeof(T), bytes = kChannels<T, W> * size;
    if (!p.channel_last && p.x.last == 1 && p.out.last == 1) return first<W>(a);
    if (tokens_aligned(p.x, 1, p.seqlen, size, bytes) && tokens_aligned(p.out, 1, p.seqlen, size, bytes))
      return last<W, kChannels<T, W>>(a);
    last<W, 1>(a);
  }

  template <int W> void first(Rows a) const {
    const Extent e = extent_of_groups<T>(&a, 1);
    launch(a, e, causal_conv1d_varlen_first_kernel<T, W>);
  }

  template <int W, int C> void last(Rows a) const {
    const Extent e = extent_of_tokens(&a, 1, C, sizeof(T));
    launch(a, e, causal_conv1d_varlen_last_kernel<T, W, C>);
  }

  void any() const {
    const Extent e{1, p.dim, (p.seqlen + kRun - 1) / kRun, !p.channel_last};
    launch(rows_of(p, p.out), e, causal_conv1d_varlen_any_kernel<T>);
  }
};

static Status forward(TensorView out, TensorView x, TensorView weight, Optional<TensorView> bias, bool use_silu,
                      TensorView query_start_loc, Optional<TensorView> conv_states, Optional<TensorView> cache_indices,
                      Optional<TensorView> has_initial_state, int64_t pad_slot_id) {
  Stateful p{};
  AITER_TRY(check_varlen({out, x, weight, conv_states, given(bias), {}, cache_indices, {true, query_start_loc},
                          has_initial_state}, use_silu, pad_slot_id, &p));
  DeviceGuard guard;
  AITER_TRY(guard.enter(x.device()));
  const auto stream = static_cast<gpu_stream_t>(TVMFFIEnvGetStream(x.device().type, x.device().id));
  return dispatch_float(x, [&](auto zero) {
    Launcher<decltype(zero)>{p, stream}.run();
    return check_launch("causal_conv1d_varlen_fwd");
  });
}

template <class U> __global__ void __launch_bounds__(256) causal_conv1d_varlen_states_kernel(Tails p, int64_t runs) {
  const int64_t total = p.batch * p.dim * runs, step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < total; i += step) {
    const Split inner = split(i, p.dim), outer = split(inner.quotient, runs);
    const int64_t first = outer.remainder * kRun;
    for (int64_t j = first; j < least(first + kRun, p.length); j++) p.copy<U>(outer.quotient, inner.remainder, j);
  }
}

template <class U> void launch_states(const Tails& p, gpu_stream_t stream) {
  const int64_t runs = (p.length + kRun - 1) / kRun, blocks = (p.batch * p.dim * runs + 255) / 256;
  causal_conv1d_varlen_states_kernel<U><<<grid_for(blocks), 256, 0, stream>>>(p, runs);
}

static Status states(TensorView states, TensorView x, TensorView cu_seqlens) {
  Tails p{};
  AITER_TRY(check_tails(states, x, cu_seqlens, &p));
  if (states.empty()) return Status();
  DeviceGuard guard;
  AITER_TRY(guard.enter(x.device()));
  const auto stream = static_cast<gpu_stream_t>(TVMFFIEnvGetStream(x.device().type, x.device().id));
  return dispatch_float(x, [&](auto zero) {
    launch_states<bits_of<decltype(zero)>>(p, stream);
    return check_launch("causal_conv1d_varlen_states");
  });
}

}  // namespace aiter::conv1d::varlen

AITER_EXPORT(causal_conv1d_varlen_fwd, conv1d::varlen::forward, arg("out"), arg("x"), arg("weight"), arg("bias"),
             arg("use_silu"), arg("query_start_loc"), none("conv_states"), none("cache_indices"),
             none("has_initial_state"), integer("pad_slot_id", -1))

AITER_EXPORT(causal_conv1d_varlen_states, conv1d::varlen::states, arg("states"), arg("x"), arg("cu_seqlens"))
