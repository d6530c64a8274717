// causal_conv1d_serve_fwd and causal_conv1d_fwd_split_qkv on the GPU, for hipcc and nvcc.
//
// Tiling: the kernels of fwd/fwd_sequences.hip, or of fwd/fwd_wide_packed.hip, compute the positions that do not depend on states, once
// for each output. In serve_fwd_heads a block takes 64 to 256 channels of one sequence, a thread one channel: its first W-1 positions, then
// its slots. Before them serve_fwd_rows makes int32 starts and slots if the call has others, and serve_fwd_copy copies x if out is x.
// Bytes: x once (the halo and the last values again, from cache), out once, states once.
// Reduction: over the width, in one thread's fp32 registers.

#include <aiter/dispatch.h>
#include <aiter/ffi.h>
#include <aiter/gpu.h>

#include "../common/filter_gpu.h"
#include "../common/groups_gpu.h"
#include "../common/launch_gpu.h"
#include "../common/prefill_check.h"
#include "../fwd/launches.h"

namespace aiter::conv1d::serve {

constexpr int kThreads = 256, kCopies = 8;  // of a block; elements that a thread copies

// run_window is run_head for filters of up to W taps. All loads are issued before any of their values is used.
template <class T, int W> AITER_DEVICE void run_window(const Prefill& p, const ServedSequence& r, int64_t b, int64_t d) {
  const int none = W - int(p.width);  // taps that do not exist
  const bool past = p.has_initial(b);
  Filter<float, W, 1, FilterKind::kStrided> filter;
  filter.load(strided_filter(p, p.width), d);
  float v[2 * W - 2];
  AITER_UNROLL
  for (int k = 0; k < 2 * W - 2; k++) {
    const int u = k - (W - 1);
    v[k] = u < r.len && u >= 1 - p.width ? p.value<T>(r, past, d, u) : 0.0f;
  }
  filter.convert(strided_filter(p, p.width));
  AITER_UNROLL
  for (int t = 0; t < W - 1; t++) {
    if (t >= p.width - 1 || t >= r.len) continue;
    float y = filter.bias[0];
    AITER_UNROLL
    for (int k = 0; k < W; k++)
      if (k >= none) y = fmaf(filter.weight[0][k], v[t + k], y);
    p.finish<T>(r, d, t, apply_activation(p.silu, y));
  }
}

// W: the taps that registers have room for; 0: none.
template <class T, int W> __global__ void AITER_LAUNCH_BOUNDS(kThreads, 4)
causal_conv1d_serve_fwd_heads_kernel(KernelParam<Prefill> p, FastDiv groups, int64_t batch0, uint32_t group0) {
  if constexpr (AITER_KERNEL_CODE) {
    const uint32_t i = group0 + blockIdx.x, row = groups.quotient(i);
    const int64_t b = batch0 + row, d = int64_t(i - row * groups.divisor) * blockDim.x + threadIdx.x;
    const ServedSequence r = p.sequence(b);
    if (d >= p.dim || !r.live) return;
    if constexpr (W > 0) run_window<T, W>(p, r, b, d);
    else if (p.has_initial(b)) run_head<T>(p, r, b, d, [&](float y) { return apply_activation(reload_kernarg(p).silu, y); });
    reload_kernarg(p).template store_state<T>(r, b, d);
  }
}

template <class T> __global__ void __launch_bounds__(kThreads)
causal_conv1d_serve_fwd_rows_kernel(KernelParam<Prefill> p, T* starts, T* slots) {
  if constexpr (AITER_KERNEL_CODE) {
    const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
    if (i <= p.batch) starts[i] = row_start(p, i);
    if (i < p.batch) slots[i] = row_slot(p, i);
  }
}

// U is an unsigned integer of the elements' size. to has adjacent elements.
template <class U> __global__ void __launch_bounds__(kThreads)
causal_conv1d_serve_fwd_copy_kernel(const U* from, int64_t row, int64_t step, U* to, int64_t pitch, int64_t inner, int64_t parts,
                                    int64_t first) {
  if constexpr (AITER_KERNEL_CODE) {
    const DivMod at = divmod(first + blockIdx.x, parts);
    int64_t j = at.remainder * kThreads * kCopies + threadIdx.x;
    for (int k = 0; k < kCopies && j < inner; k++, j += kThreads) to[at.quotient * pitch + j] = from[at.quotient * row + j * step];
  }
}

template <class T> Status launch_heads(const Prefill& p, const OpStream& stream) {
  using Kernel = void (*)(KernelParam<Prefill>, FastDiv, int64_t, uint32_t);
  Kernel kernel = nullptr;
  if constexpr (kHoldsWide) kernel = causal_conv1d_serve_fwd_heads_kernel<T, 0>;
  if constexpr (kHoldsNarrow)
    if (!is_wide(p.width))
      kernel = dispatch_width(p.width, [](auto taps) -> Kernel { return causal_conv1d_serve_fwd_heads_kernel<T, decltype(taps)::value>; });
  const unsigned threads = threads_for(p.dim);
  const int64_t blocks_of_row = (p.dim + threads - 1) / threads, blocks = p.batch * blocks_of_row;
  for (int64_t i = 0; i < blocks; i += kMaxBlocks)
    AITER_TRY(launch(stream, kernel, {unsigned(min64(kMaxBlocks, blocks - i)), threads}, p, make_fastdiv(blocks_of_row), i / blocks_of_row,
                     uint32_t(i % blocks_of_row)));
  return Status();
}

// take_indices gives rows its starts and slots: those of the call, or int32 ones in memory.
static Status take_indices(const Prefill& p, int device, const OpStream& stream, Workspace* memory, PrefillRows* rows) {
  const bool slots_direct = !p.table.data || (!p.table.is_int64 && p.table.columns == 1);
  const bool direct = !p.starts.is_int64 && !p.computed.data && !p.first.data && slots_direct;
  if (direct) {
    rows->starts = {static_cast<const int32_t*>(p.starts.data), p.starts.row};
    rows->indices = {static_cast<const int32_t*>(p.table.data), p.table.row}, rows->pad = p.pad;
    return Status();
  }
  AITER_TRY(memory->take(size_t(2 * p.batch + 1) * sizeof(int32_t), device, stream));
  int32_t *starts = static_cast<int32_t*>(memory->data()), *slots = starts + p.batch + 1;
  rows->take(starts, slots);
  return launch(stream, causal_conv1d_serve_fwd_rows_kernel<int32_t>, {unsigned(p.batch / kThreads + 1), kThreads}, p, starts, slots);
}

// copy_x makes p read a copy of x. Its rows begin at multiples of 16 bytes.
template <class U> Status copy_x(Prefill* p, int device, const OpStream& stream, Workspace* memory) {
  const int64_t outer = p->channel_last ? p->seqlen : p->dim, inner = p->channel_last ? p->dim : p->seqlen;
  const int64_t pitch = (inner + 7) / 8 * 8, parts = (inner + kThreads * kCopies - 1) / (kThreads * kCopies), blocks = outer * parts;
  const int64_t row = p->channel_last ? p->x.last : p->x.dim, step = p->channel_last ? p->x.dim : p->x.last;
  AITER_TRY(memory->take(size_t(outer * pitch) * sizeof(U), device, stream));
  const U* from = static_cast<const U*>(p->x.data);
  U* to = static_cast<U*>(memory->data());
  for (int64_t first = 0; first < blocks; first += kMaxBlocks)
    AITER_TRY(launch(stream, causal_conv1d_serve_fwd_copy_kernel<U>, {unsigned(min64(blocks - first, kMaxBlocks)), kThreads}, from, row,
                     step, to, pitch, inner, parts, first));
  p->x = {to, 0, p->channel_last ? 1 : pitch, p->channel_last ? pitch : 1};
  return Status();
}

static Status launch_rows(const TensorView& x, const PrefillRows& rows, const OpStream& stream) {
  if (rows.dim == 0) return Status();
  if constexpr (kHoldsWide)
    if (is_wide(rows.width)) return launch_wide_packed(x, rows, stream);
  if constexpr (kHoldsNarrow) return launch_packed(x, rows, stream);
  return Status();
}

static Status run(const PrefillArguments& a, Prefill p, int parts, bool in_place, const char* op) {
  if (p.dim == 0) return Status();
  const int device = a.x.device().id;
  DeviceGuard guard;
  AITER_TRY(guard.enter(a.x.device()));
  const OpStream stream = {static_cast<gpu_stream_t>(TVMFFIEnvGetStream(a.x.device().type, device)), op};
  Workspace filters, copy, indices;
  AITER_TRY(expand_weight(a.weight, stream, &p, &filters));
  if (in_place && dtype_size(p.element) == 4) AITER_TRY(copy_x<uint32_t>(&p, device, stream, &copy));
  if (in_place && dtype_size(p.element) == 2) AITER_TRY(copy_x<uint16_t>(&p, device, stream, &copy));
  PrefillRows rows(p);
  AITER_TRY(take_indices(p, device, stream, &indices, &rows));
  for (int i = 0; i < parts && p.seqlen > 0; i++) AITER_TRY(launch_rows(a.x, rows.part(p, parts == 1 ? 0 : i), stream));
  return dispatch_float(a.x, [&](auto zero) { return launch_heads<decltype(zero)>(p, stream); });
}

}  // namespace aiter::conv1d::serve

#include "../common/prefill_exports.h"
