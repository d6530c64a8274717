// causal_conv1d_varlen_fwd and causal_conv1d_varlen_states on the GPU, for hipcc
// and nvcc.
//
// Tiling: the first width-1 positions of a sequence and its state are one
// thread's, a block 64 to 256 channels of one sequence. All other positions know
// nothing of states: a thread takes one channel and a strip of 8 or 32 positions
// of x, wherever sequences begin and end in it, walked 8 at a time with the last
// width-1 values in registers. Both kinds of blocks are in one launch. Without
// conv_states there are strips alone. Neighbouring threads take neighbouring
// strips (positions adjacent in memory) or channels (channels adjacent).
// Bytes: x once (plus width-1 values a strip, from cache), out once, states once;
// query_start_loc by binary search, once a strip and once for each sequence in it.
// Reduction: over the width, in one thread's fp32 registers.
// varlen_states: a thread copies up to 8 values of a channel; x and states once.

#include <aiter/dispatch.h>
#include <aiter/ffi.h>
#include <aiter/vector.h>

#include "causal_conv1d_state_gpu.h"

namespace aiter::conv1d::varlen {

constexpr int kRun = 8;  // positions computed together

struct Launch {
  Stateful p;
  int64_t head;    // positions of a sequence that its slot's thread computes
  int64_t groups;  // blocks a sequence, for heads
  int64_t strip, strips;
};

// Span is the sequence around a position, or a stretch without any.
struct Span {
  int64_t first, end;
  bool live;

  AITER_DEVICE bool has(int64_t t) const { return t >= first && t < end; }
};

// find looks t up. Whatever starts holds, the answer has t or is not live; where
// sequences are out of order it may miss one.
AITER_DEVICE Span find(const Stateful& p, int64_t t) {
  int64_t low = 0, high = p.batch;  // the first that starts after t
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (p.starts[middle] <= t) low = middle + 1;
    else high = middle;
  }
  if (low == 0) return {t, t + 1, false};
  const Sequence s = p.sequence(low - 1);
  const Span span{s.start, s.start + s.len, s.live};
  return span.has(t) ? span : Span{t, t + 1, false};
}

// Strip is some positions of one channel.
template <class T, int W> class Strip {
 public:
  AITER_DEVICE Strip(const Launch& a, int64_t d) : a_(a), d_(d), x_(a.p.x.row<T>(0, d)), out_(a.p.out.row<T>(0, d)) {
    if constexpr (W > 0) read_taps<W>(a.p.weight, d, w_);
    bias_ = a.p.bias.data ? a.p.bias.get(d, 0) : 0.0f;
  }

  AITER_DEVICE void run(int64_t first, int64_t end) {
    for (int64_t t = first; t < end; t += kRun) {
      const int count = int(least(kRun, end - t));
      seek(t);
      if (W > 0 && span_.live && t >= span_.first + W - 1 && t + count <= span_.end) {
        inside(t, count);
        continue;
      }
      AITER_ROLLED
      for (int i = 0; i < count; i++) one(t + i);
    }
  }

 private:
  AITER_DEVICE void seek(int64_t t) {
    if (!span_.has(t)) span_ = find(a_.p, t);
  }

  // inside: a run that sees its own sequence alone.
  AITER_DEVICE void inside(int64_t t, int count) {
    if constexpr (W > 0) {
      float y[kRun];
      AITER_UNROLL
      for (int k = 0; k < W - 1; k++)
        window_[k] = known_ == t ? window_[kRun + k] : to_float(x_[(t - (W - 1) + k) * a_.p.x.last]);
      load_run<T, kRun>(x_ + t * a_.p.x.last, a_.p.x.last, count, window_ + W - 1);
      AITER_UNROLL
      for (int i = 0; i < kRun; i++) {
        y[i] = bias_;
        AITER_UNROLL
        for (int k = 0; k < W; k++) y[i] = fmaf(w_[k], window_[i + k], y[i]);
        y[i] = finish(a_.p.silu, y[i]);
      }
      store_run<T, kRun>(out_ + t * a_.p.out.last, a_.p.out.last, count, y);
      known_ = t + kRun;
    }
  }

  // one position, from memory; a head's positions are left to it.
  AITER_DEVICE void one(int64_t t) {
    const Stateful& p = a_.p;
    seek(t);
    if (span_.live && t < span_.first + a_.head) return;
    float y = span_.live ? bias_ : 0.0f;
    AITER_ROLLED
    for (int64_t k = 0; span_.live && k < p.width; k++) {
      const int64_t u = t - (p.width - 1) + k;
      if (u >= span_.first) y = fmaf(p.weight.get(d_, k), to_float(x_[u * p.x.last]), y);
    }
    out_[t * p.out.last] = round_to<T>(finish(p.silu, y));
  }

  const Launch& a_;
  const int64_t d_;
  const T* x_;
  T* out_;
  Span span_{0, 0, false};
  float bias_, w_[W > 0 ? W : 1], window_[W > 0 ? W - 1 + kRun : 1];
  int64_t known_ = -1;  // the window ends before this position
};

template <class T, int W> AITER_DEVICE void run_strip(const Launch& a, int64_t i) {
  const Stateful& p = a.p;
  if (i >= p.dim * a.strips) return;
  const Split at = split(i, p.channel_last ? p.dim : a.strips);
  const int64_t d = p.channel_last ? at.remainder : at.quotient, index = p.channel_last ? at.quotient : at.remainder;
  Strip<T, W>(a, d).run(index * a.strip, least(index * a.strip + a.strip, p.seqlen));
}

template <class T, int W> __global__ void __launch_bounds__(256) causal_conv1d_varlen_kernel(Launch a, int64_t first) {
  const int64_t heads = a.p.keeps ? a.p.batch * a.groups : 0, i = first + blockIdx.x;
  if (i >= heads) return run_strip<T, W>(a, (i - heads) * blockDim.x + threadIdx.x);
  const Split at = split(i, a.groups);
  if (a.p.sequence(at.quotient).live)
    run_head<T, W>(a.p, at.quotient, at.remainder * blockDim.x + threadIdx.x, a.head);
}

template <class T> void launch(const Launch& a, gpu_stream_t stream) {
  const unsigned threads = threads_for(a.p.dim);
  const int64_t blocks = (a.p.keeps ? a.p.batch * a.groups : 0) + (a.p.dim * a.strips + threads - 1) / threads;
  for (int64_t i = 0; i < blocks; i += kMostBlocks) {
    const unsigned grid = unsigned(least(kMostBlocks, blocks - i));
    switch (a.p.width) {
      case 2: causal_conv1d_varlen_kernel<T, 2><<<grid, threads, 0, stream>>>(a, i); break;
      case 3: causal_conv1d_varlen_kernel<T, 3><<<grid, threads, 0, stream>>>(a, i); break;
      case 4: causal_conv1d_varlen_kernel<T, 4><<<grid, threads, 0, stream>>>(a, i); break;
      default: causal_conv1d_varlen_kernel<T, 0><<<grid, threads, 0, stream>>>(a, i); break;
    }
  }
}

static Launch plan(const Stateful& p) {
  constexpr int64_t enough = 1 << 17;  // threads
  Launch a{p, p.keeps ? p.width - 1 : 0, 0, kRun, 0};
  if (p.channel_last && p.dim * (p.seqlen / 32) >= enough) a.strip = 32;
  a.strips = (p.seqlen + a.strip - 1) / a.strip;
  a.groups = (p.dim + threads_for(p.dim) - 1) / threads_for(p.dim);
  return a;
}

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
    launch<decltype(zero)>(plan(p), stream);
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
