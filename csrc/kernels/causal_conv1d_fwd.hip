// causal_conv1d_fwd on the GPU, for hipcc and nvcc.
//
// Tiling: causal_conv1d_first_gpu.h where positions are adjacent in memory,
// causal_conv1d_last_gpu.h where channels are: 16 bytes an instruction, no shared
// memory, no barrier. Each has a plain kernel and one that also knows sequence
// numbers, states and rows that are not aligned; each for filters up to 4 and up to
// 8 wide. A wider one, and a row without positions, takes any_kernel.
// Bytes: x once (the halo again, from cache) and out once, sequence numbers once
// for two channels (from cache), states once.
// Reduction: over the width, in one thread's fp32 registers, in the same order in
// all kernels of rows.

#include <aiter/dispatch.h>
#include <aiter/ffi.h>

#include "causal_conv1d_first_gpu.h"
#include "causal_conv1d_last_gpu.h"

namespace aiter::conv1d::fwd {

// Sequences is the gate of rows with sequence numbers or states. With numbers a
// position sees nothing before position 0.
class Sequences {
 public:
  static constexpr bool kPlain = false;

  explicit Sequences(const Forward& p) : p_(p) {}

  template <class T> AITER_DEVICE float before(int64_t b, int64_t d, int64_t u) const {
    const int64_t i = u + p_.width - 1;
    return p_.initial.data && !p_.seq.data && i >= 0 ? to_float(p_.initial.row<T>(b, d)[i * p_.initial.last]) : 0.0f;
  }

  // Begun is X from -(W-1) on to -1 in registers, for rows that begin at a vector.
  template <class T, int W> struct Begun {
    T value[W - 1];

    AITER_DEVICE void load(const Sequences& s, int64_t b, int64_t d) {
      AITER_UNROLL
      for (int k = 0; k < W - 1; k++) {
        const int64_t i = k - (W - s.p_.width);
        value[k] = T{};
        if (s.p_.initial.data && !s.p_.seq.data && i >= 0) value[k] = s.p_.initial.row<T>(b, d)[i * s.p_.initial.last];
      }
    }
  };

  // finish copies a row's last values, bit for bit. All loads come first.
  template <class T, int W> AITER_DEVICE void finish(int64_t b, int64_t d) const {
    if (!p_.final.data) return;
    const int n = int(p_.width) - 1;
    T value[W - 1], *final = p_.final.row<T>(b, d);
    const T *x = p_.x.row<T>(b, d), *initial = p_.initial.row<T>(b, d);
    AITER_UNROLL
    for (int j = 0; j < W - 1; j++) {
      const int64_t t = p_.seqlen - n + j;
      value[j] = T{};
      if (j < n && t >= 0) value[j] = x[t * p_.x.last];
      else if (j < n && p_.initial.data) value[j] = initial[(t + n) * p_.initial.last];
    }
    AITER_UNROLL
    for (int j = 0; j < W - 1; j++)
      if (j < n) final[j * p_.final.last] = value[j];
  }

  // Ids are the numbers of a vector of N positions and of W before it.
  template <int W, int N> struct Ids {
    int32_t id[W + N];
    static constexpr uint32_t skip = 0;

    AITER_DEVICE void load(const Sequences& s, int64_t b, int64_t start, int t, const Bounds& has) {
      if (s.p_.seq.data) s.load_ids<W + N>(b, start, t - W, has, id);
    }

    // same says whether all the positions see all.
    AITER_DEVICE bool same(const Sequences& s) const {
      if (!s.p_.seq.data) return true;
      bool all = id[W] >= 0;
      AITER_UNROLL
      for (int i = 1; i < W + N; i++) all = all && id[i] == id[W];
      return all;
    }
  };

  template <int W> AITER_DEVICE void start(int64_t b, int64_t t) {
    if (!p_.seq.data) return;
    AITER_UNROLL
    for (int k = 0; k < W - 1; k++) past_[k] = t - (W - 1) + k < 0 ? -1 : p_.sequence(b, t - (W - 1) + k);
  }

  // fetch puts the number of position t on its way, as the u-th.
  AITER_DEVICE void fetch(int64_t b, int64_t t, int u) {
    if (p_.seq.data) ahead_[u] = load_item(static_cast<const int32_t*>(p_.seq.data) + b * p_.seq.first + t * p_.seq.last);
  }

  // at is the byte of position t, the u-th of those fetched.
  template <int W> AITER_DEVICE uint32_t at(int64_t, int u, bool*) {
    if (!p_.seq.data) return ~0u;
    const int32_t id = ahead_[u];
    uint32_t see = id < 0 ? 0 : 0x80;
    AITER_UNROLL
    for (int k = 0; k < W - 1; k++) {
      see |= past_[k] == id ? 1u << k : 0;
      past_[k] = k + 1 < W - 1 ? past_[k + 1] : id;
    }
    return see;
  }

 private:
  // load_ids reads the numbers of N positions from start+t on; those before the row
  // are -1, those after it anything.
  template <int N> AITER_DEVICE void load_ids(int64_t b, int64_t start, int t, const Bounds& has, int32_t* id) const {
    const int32_t* row = static_cast<const int32_t*>(p_.seq.data) + b * p_.seq.first + start * p_.seq.last;
    const bool packed = p_.seq.last == 1 && (reinterpret_cast<uintptr_t>(row + t) & 15) == 0 && (t & 3) == 0;
    AITER_UNROLL
    for (int i = 0; i < N; i += 4) {
      Words<4> w = {{~0u, ~0u, ~0u, ~0u}};
      if (packed) {
        if (t + i >= has.low && t + i < has.high) w = load_words<4>(row + t + i);
      } else {
        AITER_UNROLL
        for (int k = 0; k < 4; k++)
          if (t + i + k >= has.low && t + i + k < has.high)
            w.word[k] = load_item(reinterpret_cast<const uint32_t*>(row) + (t + i + k) * p_.seq.last);
      }
      AITER_UNROLL
      for (int k = 0; k < 4; k++) id[i + k] = int32_t(w.word[k]);
    }
  }

  Forward p_;
  int32_t past_[7], ahead_[kAhead];
};

template <class T, int W, bool kShifts, class Gate>
__global__ void __launch_bounds__(kThreads) causal_conv1d_fwd_first_kernel(Rows a, Gate gate) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < a.total) run_rows<T, W, kShifts>(a, gate, i);
}

template <class T, int W, int C, class Gate>
__global__ void __launch_bounds__(kThreads, kWalking<W>) causal_conv1d_fwd_last_kernel(Rows a, Gate gate) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < a.total) run_tokens<T, W, C>(a, gate, i);
}

constexpr int kRun = 8;  // positions of a thread of any_kernel

// any_kernel does a few positions of one channel for any width, all from memory.
template <class T> __global__ void __launch_bounds__(kThreads) causal_conv1d_fwd_any_kernel(Rows a, Forward p) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= a.total) return;
  const uint32_t q = a.inner.quotient(i), n = a.outer.quotient(q), near = i - q * a.inner.by, far = q - n * a.outer.by;
  const int64_t b = a.batch0 + n, d = a.group0 + (p.channel_last ? near : far);
  const int64_t first = (a.tile0 + (p.channel_last ? far : near)) * kRun;
  const float bias = p.bias.data ? p.bias.get(d, 0) : 0.0f;
  T* out = p.out.row<T>(b, d);
  for (int64_t t = first; t < first + kRun && t < p.seqlen; t++) {
    const int32_t s = p.seq.data ? p.sequence(b, t) : 0;
    float y = bias;
    for (int64_t k = 0; k < p.width; k++) {
      const int64_t u = t - (p.width - 1) + k;
      if (p.sees(b, s, u)) y = fmaf(p.weight.get(d, k), p.value<T>(b, d, u), y);
    }
    if (p.silu) y *= sigmoid(y);
    out[t * p.out.last] = round_to<T>(s < 0 ? 0.0f : y);
  }
  if (p.final.data && first + kRun >= p.seqlen) final_states<T>(p, b, d);
}

// Kernels launches those of one width. A plain problem has neither sequence
// numbers nor states.
template <class T, int W> struct Kernels {
  const Forward& p;
  Rows a;
  gpu_stream_t stream;
  bool plain;

  void run() {
    const int64_t size = sizeof(T);
    if (!p.channel_last && p.x.last == 1 && p.out.last == 1) return first();
    const int64_t bytes = kChannels<T, W> * size;
    if (tokens_aligned(p.x, p.batch, p.seqlen, size, bytes) && tokens_aligned(p.out, p.batch, p.seqlen, size, bytes))
      return plain ? last<kChannels<T, W>>(Everything()) : last<kChannels<T, W>>(Sequences(p));
    return plain ? last<1>(Everything()) : last<1>(Sequences(p));
  }

 private:
  void first() {
    if (!same_place(a, p.batch, sizeof(T))) return first<true>(Sequences(p));
    return plain ? first<false>(Everything()) : first<false>(Sequences(p));
  }

  template <bool kShifts, class Gate> void first(const Gate& gate) {
    for_parts(a, extent_of_rows<T>(a, p.batch, kVectors<Gate, kShifts>), [&](const Rows& part, unsigned grid, unsigned threads) {
      causal_conv1d_fwd_first_kernel<T, W, kShifts><<<grid, threads, 0, stream>>>(part, gate);
    });
  }

  template <int C, class Gate> void last(const Gate& gate) {
    const Extent e = extent_of_tokens(&a, p.batch, C);
    for_parts(a, e, [&](const Rows& part, unsigned grid, unsigned threads) {
      causal_conv1d_fwd_last_kernel<T, W, C><<<grid, threads, 0, stream>>>(part, gate);
    });
  }
};

template <class T> void launch_any(const Forward& p, gpu_stream_t stream) {
  const int64_t tiles = p.seqlen > 0 ? (p.seqlen + kRun - 1) / kRun : 1;
  for_parts(rows_of(p, p.out), {p.batch, p.dim, tiles, !p.channel_last}, [&](const Rows& part, unsigned grid, unsigned threads) {
    causal_conv1d_fwd_any_kernel<T><<<grid, threads, 0, stream>>>(part, p);
  });
}

template <class T> Status launch(const Forward& p, gpu_stream_t stream) {
  const bool plain = !p.seq.data && !p.initial.data && !p.final.data;
  if (p.seqlen == 0 || p.width > 8) launch_any<T>(p, stream);
  else if (p.width > 4) Kernels<T, 8>{p, rows_of(p, p.out), stream, plain}.run();
  else Kernels<T, 4>{p, rows_of(p, p.out), stream, plain}.run();
  return check_launch("causal_conv1d_fwd");
}

static Status forward(TensorView out, TensorView x, TensorView weight, Optional<TensorView> bias, bool use_silu,
                      Optional<TensorView> seq_idx, Optional<TensorView> initial_states,
                      Optional<TensorView> final_states_out) {
  Forward p{};
  AITER_TRY(check_forward({x, weight, given(bias), seq_idx, initial_states}, out, final_states_out, use_silu, &p));
  if (x.empty() && !given(final_states_out)) return Status();
  DeviceGuard guard;
  AITER_TRY(guard.enter(x.device()));
  const auto stream = static_cast<gpu_stream_t>(TVMFFIEnvGetStream(x.device().type, x.device().id));
  return dispatch_float(x, [&](auto zero) { return launch<decltype(zero)>(p, stream); });
}

}  // namespace aiter::conv1d::fwd

AITER_EXPORT(causal_conv1d_fwd, conv1d::fwd::forward, arg("out"), arg("x"), arg("weight"), none("bias"),
             flag("use_silu", false), none("seq_idx"), none("initial_states"), none("final_states_out"))
