// causal_conv1d_update on the GPU, for hipcc and nvcc.
//
// Tiling: one new position and a state of width-1 values, 2 to 4 wide, is decoding:
// causal_conv1d_decode_gpu.h. Anything else: a block takes 64 to 256 channels of one
// sequence, a thread one channel, one position after another.
// The grid is one-dimensional; what exceeds it is launched again.
// Bytes: x, out once; with a state of width-1 values it is read and written once
// (a longer one that shifts is read and written in full, a circular one only
// where x goes). With conv_state_indices each block reads all of them once.
// Reduction: over the width, in one thread's fp32 registers.

#include <aiter/dispatch.h>
#include <aiter/ffi.h>

#include "causal_conv1d_decode_gpu.h"
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

// Decode launches the decoding kernel.
template <class T> struct Decode {
  const Stateful& p;
  gpu_stream_t stream;

  // fits says whether p is a problem for it.
  bool fits() const {
    return p.seqlen == 1 && p.width >= 2 && p.width <= 4 && p.length == p.width - 1 && p.dim <= INT32_MAX / 2 &&
           p.batch <= kMostThreads / kDecodeThreads / chunks(1);
  }

  void run() const {
    switch (p.width) {
      case 2: return run<1>();
      case 3: return run<2>();
      default: return run<3>();
    }
  }

 private:
  template <int S> void run() const {
    if (!vectors()) return launch<T, S, 1, true>();
    if (p.weight.dtype == kDType<T>) return run<T, S>();
    if constexpr (kDType<T> != DType::F32) run<float, S>();
  }

  template <class TW, int S> void run() const {
    values_adjacent() ? launch<TW, S, kVector<T>, true>() : launch<TW, S, kVector<T>, false>();
  }

  // vectors says whether everything can be moved 16 bytes at a time.
  bool vectors() const {
    const int64_t size = sizeof(T);
    const bool rows = p.x.dim == 1 && p.out.dim == 1 && aligned(p.x.data, p.x.batch * size) && aligned(p.out.data, p.out.batch * size);
    const bool slots = aligned(p.state.data, p.state.batch * size) && (values_adjacent() || channels_adjacent());
    const bool weights = p.weight.last == 1 && p.weight.first == p.width && is_aligned(p.weight.data, 16) &&
                         (p.weight.dtype == kDType<T> || p.weight.dtype == DType::F32);
    const bool biases = !p.bias.data || (p.bias.first == 1 && is_aligned(p.bias.data, 16) && p.bias.dtype == p.weight.dtype);
    return rows && slots && weights && biases && p.dim % kVector<T> == 0;
  }

  static bool aligned(const void* data, int64_t stride) { return is_aligned(data, 16) && stride % 16 == 0; }
  bool values_adjacent() const { return (p.state.last == 1 || p.length == 1) && p.state.dim == p.length; }
  bool channels_adjacent() const {
    return p.state.dim == 1 && (p.length == 1 || p.state.last * int64_t(sizeof(T)) % 16 == 0);
  }

  int64_t chunks(int channels) const { return (p.dim + kDecodeThreads * channels - 1) / (kDecodeThreads * channels); }

  template <class TW, int S, int C, bool kValuesAdjacent> void launch() const {
    Decoding a{};
    a.x = p.x.data, a.weight = p.weight.data, a.bias = p.bias.data, a.out = p.out.data, a.state = p.state.data;
    a.indices = p.indices, a.cache_seqlens = p.cache_seqlens;
    a.x_batch = p.x.batch, a.out_batch = p.out.batch, a.state_batch = p.state.batch, a.state_last = p.state.last;
    a.x_dim = p.x.dim, a.out_dim = p.out.dim, a.state_dim = p.state.dim;
    a.weight_dim = p.weight.first, a.weight_last = p.weight.last, a.bias_dim = p.bias.first;
    a.weight_dtype = p.weight.dtype, a.bias_dtype = p.bias.dtype;
    a.batch = int32_t(p.batch), a.dim = int32_t(p.dim), a.silu = p.silu, a.slots = p.slots, a.pad = p.pad;
    a.chunks = divisor(chunks(C));
    const unsigned blocks = unsigned(p.batch * chunks(C));
    causal_conv1d_decode_kernel<T, TW, S, C, kValuesAdjacent><<<blocks, kDecodeThreads, 0, stream>>>(a);
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
