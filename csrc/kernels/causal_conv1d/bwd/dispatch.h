// What the files of causal_conv1d_bwd's kernels share: launches, and the measures of a
// device. They are three, so that a first call compiles them side by side.
#pragma once

#include <aiter/dispatch.h>
#include <aiter/workspace.h>

#include "tile.h"

namespace aiter::conv1d::bwd {

// A device is taken to have so many multiprocessors, and to be full with so many
// waves of 32 of the kernel for rows. Others only are cut a little coarser or finer.
constexpr int64_t kProcessors = 132, kFull = kProcessors * 32;

// bits_for is the least k <= most with 2^k >= n.
inline int bits_for(int64_t n, int most) {
  int k = 0;
  while (k < most && int64_t(1) << k < n) k++;
  return k;
}

// device_wave_bits is the logarithm of how many lanes a wave of the device has.
inline Status device_wave_bits([[maybe_unused]] int device, int* bits) {
  *bits = 5;
#if AITER_HIP
  int lanes = 0;
  const gpu_error_t e = hipDeviceGetAttribute(&lanes, hipDeviceAttributeWarpSize, device);
  if (e != kGpuSuccess) return runtime_error("cannot ask device %d for its wave's size: %s", device, gpu_error_text(e));
  *bits = lanes == 64 ? 6 : 5;
#endif
  return Status();
}

inline bool aligned(const Array3& t, int64_t size, int64_t bytes) {
  return (reinterpret_cast<uintptr_t>(t.data) | uintptr_t(t.batch * size) | uintptr_t(t.dim * size)) % uintptr_t(bytes) == 0;
}

// packed: there are four taps, which one load reads, and the biases of n channels are another.
template <class T> bool packed(const Backward& p, int64_t n) {
  const auto ours = [&](const Array2& t, int64_t bytes) {
    return t.dtype == dtype_of<T>() && reinterpret_cast<uintptr_t>(t.data) % uintptr_t(bytes) == 0;
  };
  return p.width == 4 && p.weight.last == 1 && p.weight.first == 4 && ours(p.weight, 4 * sizeof(T)) &&
         (!p.bias.data || (p.bias.first == 1 && ours(p.bias, n * sizeof(T))));
}

// How is how a kernel is launched: in clusters of blocks, and early, before the one in
// front of it on the stream ends, for which it waits itself (await_last).
struct How {
  unsigned grid, threads, shared;
  unsigned cluster = 1;
  bool early = false;
};

template <class... Params, class... Args>
void launch(void (*kernel)(Params...), const How& how, gpu_stream_t stream, const Args&... args) {
#if AITER_CUDA
  if constexpr (kHopper) {
    cudaLaunchAttribute attributes[2] = {};
    cudaLaunchConfig_t config = {};
    config.gridDim = how.grid, config.blockDim = how.threads, config.dynamicSmemBytes = how.shared, config.stream = stream;
    config.attrs = attributes;
    if (how.cluster > 1) {
      cudaLaunchAttribute& a = attributes[config.numAttrs++];
      a.id = cudaLaunchAttributeClusterDimension, a.val.clusterDim = {how.cluster, 1, 1};
    }
    if (how.early) {
      cudaLaunchAttribute& a = attributes[config.numAttrs++];
      a.id = cudaLaunchAttributeProgrammaticStreamSerialization, a.val.programmaticStreamSerializationAllowed = 1;
    }
    (void)cudaLaunchKernelEx(&config, kernel, args...);  // check_launch sees its error
    return;
  }
#endif
  kernel<<<how.grid, how.threads, how.shared, stream>>>(args...);
}

// fold launches the kernel that adds up the slots.
void fold(const Launch& a, gpu_stream_t stream);

// Workspaces are a call's: for the sums of split channels, and for what positions see.
struct Workspaces {
  Workspace slots, seen;
};

// take_slots takes the former, if channels are split and that has not been done.
inline Status take_slots(Launch* a, int device, gpu_stream_t stream, Workspaces* w) {
  if (a->slots || a->segments <= a->cluster) return Status();
  AITER_TRY(w->slots.take(size_t(a->segments) * size_t(a->p.width + 1) * size_t(a->p.dim) * sizeof(float), device, stream));
  a->slots = static_cast<float*>(w->slots.data());
  return Status();
}

// look launches the kernel that looks up what each position sees; exact is that kernel's argument. All workspaces are taken
// before, so that a graph also launches the next kernel early.
Status look(Launch* a, bool exact, int device, gpu_stream_t stream, Workspaces* w);

// run launches kernel, with so many threads and so much shared memory a block, early if it is behind
// one that looks up what positions see, and the fold kernel after it if channels are split.
template <class Kernel> Status run(Kernel kernel, Launch a, int threads, int shared, int device, gpu_stream_t stream) {
  Workspaces w;
  AITER_TRY(take_slots(&a, device, stream, &w));
  a.grid = grid_for(a.items);
  launch(kernel, {a.grid, unsigned(threads), unsigned(shared), a.cluster, a.seen != nullptr}, stream, a);
  if (a.slots) fold(a, stream);
  return check_launch("causal_conv1d_bwd");
}

// run_columns launches the kernels of channel-last, which are the other file's. x is
// the tensor whose type chooses.
Status run_columns(const TensorView& x, const Backward& p, gpu_stream_t stream);

}  // namespace aiter::conv1d::bwd
