// causal_conv1d_update on the GPU, for hipcc and nvcc.
//
// Tiling: decoding, one new position and a state of width-1 values, 2 to 4 wide and
// aligned: a thread owns 16 bytes of channels of one sequence and moves their
// positions and states 16 bytes at a time, all loads ahead of the sums, whether a
// state's values or its channels are adjacent. Anything else: a block takes 64 to
// 256 channels of one sequence, a thread one channel, one position after another.
// The grid is one-dimensional; what exceeds it is launched again.
// Bytes: x, out once; with a state of width-1 values it is read and written once
// (a longer one that shifts is read and written in full, a circular one only
// where x goes). With conv_state_indices each block reads all of them once.
// Reduction: over the width, in one thread's fp32 registers.

#include <aiter/dispatch.h>
#include <aiter/ffi.h>

#include "causal_conv1d_rows_gpu.h"
#include "causal_conv1d_state_gpu.h"

namespace aiter::conv1d::update {

template <class T> AITER_DEVICE void clear(const Stateful& p, const Sequence& s, int64_t d) {
  T* out = p.outputs<T>(s, d);
  AITER_ROLLED
  for (int64_t t = 0; t < s.len; t++) out[t * p.out.last] = round_to<T>(0.0f);
}

template <class T, int W> __global__ void __launch_bounds__(256)
causal_conv1d_update_kernel(Stateful p, int64_t groups, int64_t first) {
  const Split at = split(first + blockIdx.x, groups);
  const int64_t b = at.quotient, d = at.remainder * blockDim.x + threadIdx.x;
  const Sequence s = p.sequence(b);
  if (s.live) run_head<T, W>(p, b, d, s.len);
  else if (d < p.dim) clear<T>(p, s, d);
}

// States is the slot of kVector<T> channels, S values each, in registers: each
// channel's values adjacent in memory, or else the channels of each value.
template <class T, int S, bool kValuesAdjacent> struct States {
  static constexpr int C = kVector<T>;
  T value[C * S];

  static AITER_DEVICE int at(int c, int k) { return kValuesAdjacent ? c * S + k : k * C + c; }

  // Plain accesses: the same thread writes what it has read.
  AITER_DEVICE void load(const T* slot, int64_t stride) {
    AITER_UNROLL
    for (int i = 0; i < S; i++) {
      const Words<4> w = *reinterpret_cast<const Words<4>*>(slot + (kValuesAdjacent ? i * C : i * stride));
      __builtin_memcpy(value + i * C, &w, 16);
    }
  }

  AITER_DEVICE void store(T* slot, int64_t stride) const {
    AITER_UNROLL
    for (int i = 0; i < S; i++) {
      Words<4> w;
      __builtin_memcpy(&w, value + i * C, 16);
      store_words<4>(slot + (kValuesAdjacent ? i * C : i * stride), w);
    }
  }
};

template <class T, int S, bool kValuesAdjacent>
__global__ void __launch_bounds__(kThreads) causal_conv1d_decode_kernel(Stateful p, Rows a) {
  constexpr int C = kVector<T>;
  p.cache_seqlens.data = nullptr, p.starts.data = nullptr;  // said again, for the compiler
  const uint32_t row = a.inner.quotient(blockIdx.x);
  const int64_t b = a.batch0 + row, place = int64_t((blockIdx.x - row * a.inner.by) * kThreads + threadIdx.x) * C;
  const int64_t d = place < p.dim ? place : 0;
  const Sequence s = p.sequence(b);
  T* out = p.outputs<T>(s, d);
  if (!s.live) {
    if (place < p.dim) store_words<4>(out, Words<4>{});
    return;
  }
  T* slot = p.state.row<T>(s.slot, d);
  Filter<T, S + 1, C> filter;
  States<T, S, kValuesAdjacent> states;
  T x[C];
  const Words<4> raw = load_words<4>(p.inputs<T>(s, d));
  states.load(slot, p.state.last);
  filter.fetch(a, d);
  if (shares_slot(p, b, s.slot)) {
    if (place >= p.dim || follows(p, b, s.slot)) return;
    AITER_ROLLED
    for (int c = 0; c < C; c++) run_shared<T>(p, b, s.slot, d + c, s.len);
    return;
  }
  if (place >= p.dim) return;
  __builtin_memcpy(x, &raw, 16);
  filter.settle(a);
  float y[C];
  AITER_UNROLL
  for (int c = 0; c < C; c++) {
    y[c] = fmaf(filter.weight[c][S], to_float(x[c]), filter.bias[c]);
    AITER_UNROLL
    for (int k = S - 1; k >= 0; k--) {
      y[c] = fmaf(filter.weight[c][k], to_float(states.value[states.at(c, k)]), y[c]);
    }
    y[c] = finish(p.silu, y[c]);
    AITER_UNROLL
    for (int k = 0; k < S; k++) states.value[states.at(c, k)] = k + 1 < S ? states.value[states.at(c, k + 1 < S ? k + 1 : 0)] : x[c];
  }
  Words<4> w;
  AITER_UNROLL
  for (int i = 0; i < 4; i++) w.word[i] = pack<T>(y + i * kPer<T>);
  store_words<4>(out, w);
  states.store(slot, p.state.last);
}

// Decode launches it for a width.
template <class T> struct Decode {
  const Stateful& p;
  gpu_stream_t stream;

  // fits says whether p is a problem for it.
  bool fits() const {
    const int64_t size = sizeof(T);
    const bool rows = p.x.dim == 1 && p.out.dim == 1 && aligned(p.x.data, p.x.batch * size) && aligned(p.out.data, p.out.batch * size);
    const bool slots = aligned(p.state.data, p.state.batch * size) && (values_adjacent() || channels_adjacent());
    return rows && slots && p.seqlen == 1 && !p.cache_seqlens.data && p.width >= 2 && p.width <= 4 && p.length == p.width - 1 &&
           p.dim % kVector<T> == 0 && p.dim < kMostBlocks;
  }

  void run() const {
    switch (p.width) {
      case 2: return run<1>();
      case 3: return run<2>();
      default: return run<3>();
    }
  }

 private:
  static bool aligned(const void* data, int64_t stride) { return is_aligned(data, 16) && stride % 16 == 0; }
  bool values_adjacent() const { return (p.state.last == 1 || p.length == 1) && p.state.dim == p.length; }
  bool channels_adjacent() const {
    return p.state.dim == 1 && (p.length == 1 || p.state.last * int64_t(sizeof(T)) % 16 == 0);
  }

  template <int S> void run() const { values_adjacent() ? run<S, true>() : run<S, false>(); }

  template <int S, bool kValuesAdjacent> void run() const {
    Rows a = rows_of(p, p.out);
    a.packed_weight = p.weight.last == 1 && p.weight.first == p.width && is_aligned(p.weight.data, 16);
    const int64_t each = kThreads * kVector<T>, chunks = (p.dim + each - 1) / each, most = kMostBlocks / chunks;
    a.inner = divisor(chunks);
    for (a.batch0 = 0; a.batch0 < p.batch; a.batch0 += most)
      causal_conv1d_decode_kernel<T, S, kValuesAdjacent>
          <<<unsigned(least(most, p.batch - a.batch0) * chunks), kThreads, 0, stream>>>(p, a);
  }
};

template <class T> void launch_any(const Stateful& p, gpu_stream_t stream) {
  const unsigned threads = threads_for(p.dim);
  const int64_t groups = (p.dim + threads - 1) / threads, blocks = p.batch * groups;
  for (int64_t i = 0; i < blocks; i += kMostBlocks) {
    const unsigned grid = unsigned(least(kMostBlocks, blocks - i));
    switch (p.width) {
      case 2: causal_conv1d_update_kernel<T, 2><<<grid, threads, 0, stream>>>(p, groups, i); break;
      case 3: causal_conv1d_update_kernel<T, 3><<<grid, threads, 0, stream>>>(p, groups, i); break;
      case 4: causal_conv1d_update_kernel<T, 4><<<grid, threads, 0, stream>>>(p, groups, i); break;
      default: causal_conv1d_update_kernel<T, 0><<<grid, threads, 0, stream>>>(p, groups, i); break;
    }
  }
}

template <class T> void launch(const Stateful& p, gpu_stream_t stream) {
  const Decode<T> decode{p, stream};
  if (decode.fits()) decode.run();
  else launch_any<T>(p, stream);
}

static Status update(TensorView out, TensorView x, TensorView conv_state, TensorView weight, Optional<TensorView> bias,
                     bool use_silu, Optional<TensorView> cache_seqlens, Optional<TensorView> conv_state_indices,
                     int64_t pad_slot_id) {
  Stateful p{};
  AITER_TRY(check_update({out, x, weight, {true, conv_state}, given(bias), cache_seqlens, conv_state_indices, {}, {}},
                         use_silu, pad_slot_id, &p));
  if (x.empty()) return Status();
  DeviceGuard guard;
  AITER_TRY(guard.enter(x.device()));
  const auto stream = static_cast<gpu_stream_t>(TVMFFIEnvGetStream(x.device().type, x.device().id));
  return dispatch_float(x, [&](auto zero) {
    launch<decltype(zero)>(p, stream);
    return check_launch("causal_conv1d_update");
  });
}

}  // namespace aiter::conv1d::update

AITER_EXPORT(causal_conv1d_update, conv1d::update::update, arg("out"), arg("x"), arg("conv_state"), arg("weight"),
             none("bias"), flag("use_silu", false), none("cache_seqlens"), none("conv_state_indices"),
             integer("pad_slot_id", -1))
