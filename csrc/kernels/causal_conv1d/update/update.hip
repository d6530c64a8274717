// causal_conv1d_update on the GPU, for hipcc and nvcc.
//
// Tiling: one new position and a state of width-1 values, 2 to 4 taps, is decoding: update/decode.h. More taps are
// update/flat.h and update/team.h. Otherwise a block takes 64 to 256 channels of one sequence, a thread one channel, one
// position after another. The grid is one-dimensional; a problem that exceeds one launch takes several.
// Bytes: x, out once; a state of width-1 values is read and written once (a longer one that shifts is read and written in full,
// a circular one only at the place of x). With conv_state_indices each block reads all of them once.
// Reduction: over the width, in one thread's fp32 registers.

#include <aiter/dispatch.h>
#include <aiter/ffi.h>

#include "decode.h"
#include "flat.h"
#include "team.h"
#include "../common/groups_gpu.h"
#include "../common/launch_gpu.h"
#include "../common/state_gpu.h"
#include "../serve/tokens_launch.h"

namespace aiter::conv1d::update {

template <class T> AITER_DEVICE void clear(const Stateful& p, const Sequence& s, int64_t d) {
  T* out = p.outputs<T>(s, d);
  AITER_ROLLED
  for (int64_t t = 0; t < s.len; t++) out[t * p.out.last] = round_to<T>(0.0f);
}

// Blocks of an NVIDIA multiprocessor: as many as registers allow without spilling.
template <int W> constexpr int kUpdateBlocks = W == 0 ? 6 : 5;

template <class T, int W> __global__ void AITER_LAUNCH_BOUNDS(256, kUpdateBlocks<W>)
causal_conv1d_update_kernel(KernelParam<Stateful> p, FastDiv groups, int64_t batch0, uint32_t group0) {
  if constexpr (AITER_KERNEL_CODE) {
    const uint32_t i = group0 + blockIdx.x, row = groups.quotient(i);
    const int64_t b = batch0 + row, d = int64_t(i - row * groups.divisor) * blockDim.x + threadIdx.x;
    const Sequence s = p.sequence(b);
    if (s.live) run_head<T, W>(p, b, d, s.len);
    else if (d < p.dim) clear<T>(p, s, d);
  }
}

// is_decoding reports whether the decoding kernel takes p.
inline bool is_decoding(const Stateful& p) {
  return p.seqlen == 1 && p.width >= 2 && p.width <= 4 && p.length == p.width - 1 && p.dim <= INT32_MAX / 2 &&
         p.batch <= kMaxThreads / kDecodeThreads / ((p.dim + kDecodeThreads - 1) / kDecodeThreads);
}

inline bool values_adjacent(const Stateful& p) { return (p.state.last == 1 || p.length == 1) && p.state.dim == p.length; }

// vectors_aligned reports whether all elements, of `size` bytes, can be moved 16 bytes at a time. Weights are of type `type` or
// float32.
inline bool vectors_aligned(const Stateful& p, DType type, int64_t size) {
  const auto aligned = [=](const void* data, int64_t stride) { return is_aligned(data, 16) && stride * size % 16 == 0; };
  const bool channels_adjacent = p.state.dim == 1 && (p.length == 1 || p.state.last * size % 16 == 0);
  const bool rows = p.x.dim == 1 && p.out.dim == 1 && aligned(p.x.data, p.x.batch) && aligned(p.out.data, p.out.batch);
  const bool slots = aligned(p.state.data, p.state.batch) && (values_adjacent(p) || channels_adjacent);
  const bool filter = packed_filter(p, type) || packed_filter(p, DType::F32);
  return rows && slots && filter && p.dim * size % 16 == 0;
}

// DecodeKernel is a decoding kernel and the channels of its threads.
struct DecodeKernel {
  void (*kernel)(DecodeParams);
  int channels;
};

// decode_kernel_of selects by width. A state of one value is adjacent with any strides.
template <class T, class TW, int C, bool kValuesAdjacent> DecodeKernel decode_kernel_of(int64_t width) {
  switch (width) {
    case 2: return {causal_conv1d_decode_kernel<T, TW, 1, C, true>, C};
    case 3: return {causal_conv1d_decode_kernel<T, TW, 2, C, kValuesAdjacent>, C};
    default: return {causal_conv1d_decode_kernel<T, TW, 3, C, kValuesAdjacent>, C};
  }
}

template <class T, class TW> DecodeKernel decode_kernel_of(const Stateful& p) {
  return values_adjacent(p) ? decode_kernel_of<T, TW, kVecElems<T>, true>(p.width) : decode_kernel_of<T, TW, kVecElems<T>, false>(p.width);
}

template <class T> DecodeKernel decode_kernel_of(const Stateful& p) {
  if (!vectors_aligned(p, kDType<T>, sizeof(T)) || tuned("channels", kVecElems<T>) == 1) return decode_kernel_of<T, T, 1, true>(p.width);
  return p.weight.dtype == kDType<T> ? decode_kernel_of<T, T>(p) : decode_kernel_of<T, float>(p);
}

inline Status launch(const DecodeKernel& decode, const Stateful& p, const OpStream& stream) {
  const int64_t each = kDecodeThreads * decode.channels, chunks = (p.dim + each - 1) / each;
  DecodeParams a{};
  a.x = p.x.data, a.out = p.out.data, a.state = p.state.data;
  a.indices = p.indices, a.cache_seqlens = p.cache_seqlens;
  a.x_batch = p.x.batch, a.out_batch = p.out.batch, a.state_batch = p.state.batch, a.state_last = p.state.last;
  a.x_dim = p.x.dim, a.out_dim = p.out.dim, a.state_dim = p.state.dim;
  a.weight = p.weight, a.bias = p.bias;
  a.batch = int32_t(p.batch), a.dim = int32_t(p.dim), a.silu = p.silu, a.slots = p.slots, a.pad = p.pad;
  a.chunks = make_fastdiv(chunks), a.early = serve::kEarlyBlocks;
  void* args[] = {&a};
  const LaunchConfig config = {unsigned(p.batch * chunks), kDecodeThreads, 0, 1, true};
  return launch_kernel(stream, reinterpret_cast<const void*>(decode.kernel), config, args);
}

// UpdateKernel is the kernel for calls that the decode kernels do not take.
using UpdateKernel = void (*)(KernelParam<Stateful>, FastDiv, int64_t, uint32_t);

template <class T> UpdateKernel update_kernel_of(int64_t width) {
  switch (width) {
    case 2: return causal_conv1d_update_kernel<T, 2>;
    case 3: return causal_conv1d_update_kernel<T, 3>;
    case 4: return causal_conv1d_update_kernel<T, 4>;
    default: return causal_conv1d_update_kernel<T, 0>;
  }
}

static Status launch(UpdateKernel kernel, Stateful p, const OpStream& stream) {
  const unsigned threads = threads_for(p.dim);
  const int64_t blocks_of_row = (p.dim + threads - 1) / threads, blocks = p.batch * blocks_of_row;
  FastDiv groups = make_fastdiv(blocks_of_row);  // with the blocks of a launch below 2^31
  for (int64_t i = 0; i < blocks; i += kMaxBlocks) {
    int64_t batch0 = i / blocks_of_row;
    uint32_t group0 = uint32_t(i % blocks_of_row);
    void* args[] = {&p, &groups, &batch0, &group0};
    AITER_TRY(launch_kernel(stream, reinterpret_cast<const void*>(kernel), {unsigned(min64(kMaxBlocks, blocks - i)), threads}, args));
  }
  return Status();
}

// launch_tiles launches a kernel of a plan for the rows of tiles of a batch; a row is `each` sequences.
template <class Plan>
Status launch_tiles(const void* kernel, Stateful p, Plan plan, int64_t each, unsigned threads, const OpStream& stream) {
  const int64_t tiles = plan.tiles.divisor, blocks = (p.batch + each - 1) / each * tiles;
  for (int64_t i = 0; i < blocks; i += kMaxBlocks) {
    plan.batch0 = i / tiles * each, plan.tile0 = uint32_t(i % tiles);
    void* args[] = {&p, &plan};
    AITER_TRY(launch_kernel(stream, kernel, {unsigned(min64(kMaxBlocks, blocks - i)), threads}, args));
  }
  return Status();
}

inline int log2_of(int64_t n) {
  int bits = 0;
  while (n >> (bits + 1)) bits++;
  return bits;
}

// team_bits returns log2 of the threads of a channel: those of a plan, or a tuned number up to `most`.
inline int32_t team_bits(int64_t plan, int64_t most) { return int32_t(min64(log2_of(tuned("team", int64_t(1) << plan)), most)); }

// is_flat reports whether the flat kernel takes p, of type T.
template <class T> bool is_flat(const Stateful& p) {
  constexpr int64_t kVec = kVecElems<T>, kMost = 1 << 24;
  // A block's weights have 32-bit offsets.
  if (p.weight.last < 0 || p.weight.first < 0 || p.weight.first > kMost || p.width * p.weight.last > kMost) return false;
  const bool two_channels = p.length >= kVec || (p.length == kVec - 1 && !p.cache_seqlens.data);  // of a vector, at most
  const bool aligned = p.dim * p.length % kVec == 0 && p.state.batch % kVec == 0 && is_aligned(p.state.data, 16);
  return p.seqlen == 1 && values_adjacent(p) && p.state.last == 1 && two_channels && aligned && p.length <= kMost &&
         p.dim <= INT32_MAX / 2 && p.batch <= INT32_MAX / 2;
}

// Blocks that fill a GPU: a block then has several sequences.
constexpr int64_t kFlatBlocks = 1536;

template <class T> Status launch_flat(const Stateful& p, const OpStream& stream) {
  constexpr int64_t kVec = kVecElems<T>;
  const int64_t fit = kFlatThreads * kVec / p.length / kVec * kVec;
  const int64_t channels = min64(max64(fit, kVec), min64(kFlatThreads, (p.dim + kVec - 1) / kVec * kVec));
  const int64_t tiles = (p.dim + channels - 1) / channels;
  const int64_t most_bits = min64(log2_of(kFlatThreads / channels), 5);
  FlatPlan plan{};
  plan.tiles = make_fastdiv(tiles), plan.length = make_fastdiv(p.length);
  plan.channels = int32_t(channels), plan.team_bits = team_bits(most_bits, most_bits);
  // The weights of a circular state have other places for each sequence.
  const int64_t sequences = int64_t(1) << min64(log2_of(max64(p.batch * tiles / kFlatBlocks, 1)), log2_of(kFlatSequences));
  plan.sequences = p.cache_seqlens.data ? 1 : int32_t(min64(tuned("sequences", sequences), kFlatSequences));
  return launch_tiles(reinterpret_cast<const void*>(causal_conv1d_update_flat_kernel<T>), p, plan, plan.sequences, kFlatThreads, stream);
}

template <class T> Status launch_team(const Stateful& p, const OpStream& stream) {
  const auto distance = [](int64_t stride) { return stride < 0 ? -stride : stride; };
  TeamPlan plan{};
  plan.channels_adjacent = p.dim > 1 && distance(p.state.dim) < distance(p.state.last);
  // A thread has 8 taps or more. Adjacent channels fill at least 32 threads.
  plan.team_bits = team_bits(min64(log2_of(max64(p.width / 8, 1)), plan.channels_adjacent ? 2 : 5), 5);
  const int64_t channels = kTeamThreads >> plan.team_bits;
  plan.tiles = make_fastdiv((p.dim + channels - 1) / channels);
  return launch_tiles(reinterpret_cast<const void*>(causal_conv1d_update_team_kernel<T>), p, plan, 1, kTeamThreads, stream);
}

// served_of is a problem without circular states as one for serving.
inline serve::Served served_of(const Stateful& p, DType type) {
  serve::Served s{};
  static_cast<Problem&>(s) = p;
  s.out[0] = p.out, s.ends[0] = s.ends[1] = p.dim;
  static_cast<Array3&>(s.state) = p.state, s.state.dtype = type;
  s.slots = p.slots, s.length = s.kept = p.length, s.longest = p.seqlen, s.pad = p.pad, s.clears = true;
  s.table = {p.indices.data, p.indices.stride, 0, 1, false};
  s.packed_weight = packed_weight(p), s.packed_bias = packed_bias(p);
  return s;
}

// prefers_few reports whether serve_few decodes faster than decode, whose threads have more channels: with slot indices or a filter of
// another type than x's, T, up to a number of elements. The limits are measured on an H200.
template <class T> bool prefers_few(const serve::Served& s) {
  const bool converts = s.weight.dtype != kDType<T>, indexed = s.table.data != nullptr;
  const int64_t most = s.width == 4 && converts ? INT64_MAX : converts || s.width == 4 ? 1 << 20 : 1 << 19;
  const bool few = (converts || indexed) && s.batch * s.dim <= most;
  return serve::takes_few<T>(s) && tuned("kernel", few ? 2 : 1) > 1;
}

template <class T> Status launch(const Stateful& p, const OpStream& stream) {
  const serve::Served s = served_of(p, kDType<T>);
  const bool tokens = kHoldsNarrow && !p.cache_seqlens.data && serve::takes_tokens<T>(s);
  if constexpr (kHolds4) {
    if (is_decoding(p) && !(tokens && prefers_few<T>(s))) return launch(decode_kernel_of<T>(p), p, stream);
  }
  if constexpr (kHoldsNarrow) {
    if (tokens && tuned("kernel", 1)) return serve::launch_tokens<T, true>(s, stream);
  }
  if constexpr (kHolds4) {
    if (kMostWidth <= 4 || p.width <= 4) return launch(update_kernel_of<T>(p.width), p, stream);
  }
  if constexpr (kMostWidth > 4) return is_flat<T>(p) && tuned("kernel", 1) ? launch_flat<T>(p, stream) : launch_team<T>(p, stream);
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
  const OpStream stream = {static_cast<gpu_stream_t>(TVMFFIEnvGetStream(x.device().type, x.device().id)), "causal_conv1d_update"};
  Workspace filters;
  AITER_TRY(expand_weight(weight, stream, &p, &filters));
  return dispatch_float(x, [&](auto zero) { return launch<decltype(zero)>(p, stream); });
}

}  // namespace aiter::conv1d::update

AITER_EXPORT(causal_conv1d_update, conv1d::update::update, arg("out"), arg("x"), arg("conv_state"), arg("weight"),
             none("bias"), flag("use_silu", false), none("cache_seqlens"), none("conv_state_indices"),
             integer("pad_slot_id", -1))
