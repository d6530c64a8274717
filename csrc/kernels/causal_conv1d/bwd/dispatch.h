// The common part of the files with launches of causal_conv1d_bwd. A first call compiles those of its width and layout in parallel.
#pragma once

#include <aiter/dispatch.h>
#include <aiter/workspace.h>

#include "../common/topology_gpu.h"
#include "plan.h"
#include "seq_mask.h"

namespace aiter::conv1d::bwd {

inline bool rows_aligned(const Array3& t, int64_t size, int64_t bytes) {
  return (reinterpret_cast<uintptr_t>(t.data) | uintptr_t(t.batch * size) | uintptr_t(t.dim * size)) % uintptr_t(bytes) == 0;
}

// packed_4_taps reports whether one load reads a channel's four taps of type T, and another load n biases.
template <class T> bool packed_4_taps(const Backward& p, int64_t n) {
  return p.width == 4 && packed_filter(p, kDType<T>, 4 * sizeof(T), n * sizeof(T));
}

// reduce_segments launches the kernel that adds the segments' sums.
Status reduce_segments(const BwdParams& a, const OpStream& stream);

// Workspaces is the memory of a call.
struct Workspaces {
  Workspace segment_sums, mask;
};

// allocate_segment_sums allocates the segments' sums, if channels have several segments.
inline Status allocate_segment_sums(BwdParams* a, int device, const OpStream& stream, Workspaces* w) {
  if (a->segment_sums || a->segments <= a->cluster) return Status();
  AITER_TRY(w->segment_sums.take(size_t(a->segments) * size_t(a->p.width + 1) * size_t(a->p.dim) * sizeof(float), device, stream));
  a->segment_sums = static_cast<float*>(w->segment_sums.data());
  return Status();
}

// launch_mask launches the kernel that computes the masks, with `pitch` vectors a row. It allocates all workspaces first: in a
// CUDA graph, too, the next kernel then directly follows this one and starts early.
template <class Mask> Status launch_mask(BwdParams* a, int64_t pitch, int before, int device, const OpStream& stream, Workspaces* w) {
  if (a->p.batch == 0 || a->p.seqlen == 0) return Status();
  AITER_TRY(allocate_segment_sums(a, device, stream, w));
  AITER_TRY(launch_seq_mask<Mask>(MaskUnits{a->p, before}, a->p.batch, pitch, device, stream, &w->mask));
  a->mask = static_cast<const uint32_t*>(w->mask.data());
  return Status();
}

// launch_with_workspace launches a kernel with dynamic shared memory (NVIDIA), early behind a mask kernel, and then reduce_segments if
// channels have segments.
template <class Kernel>
Status launch_with_workspace(Kernel kernel, BwdParams a, int threads, int shared, int device, const OpStream& stream) {
  Workspaces w;
  AITER_TRY(allocate_segment_sums(&a, device, stream, &w));
  a.grid = grid_for(a.work_items);
  AITER_TRY(launch(stream, kernel, {a.grid, unsigned(threads), AITER_CUDA ? unsigned(shared) : 0, a.cluster, a.mask != nullptr}, a));
  return a.segment_sums ? reduce_segments(a, stream) : Status();
}

// run_channel_first launches the channel-first kernels of narrow filters (bwd_channel_first.hip). It sets *states to true if they
// also write the gradients of the states.
Status run_channel_first(const TensorView& x, const Backward& p, const OpStream& stream, bool* states);

// run_channel_last launches the channel-last kernels (bwd_channel_last.hip). The type of x selects them.
Status run_channel_last(const TensorView& x, const Backward& p, const OpStream& stream);

}  // namespace aiter::conv1d::bwd
