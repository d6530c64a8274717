// A call's own memory. It comes from a pool of this module, in the order of the call's stream: neither the device nor other
// streams wait, and a call may be captured in a graph.
#pragma once

#include "gpu.h"

namespace aiter {

#if AITER_HIP
using gpu_pool_t = hipMemPool_t;
inline gpu_error_t gpu_new_pool(gpu_pool_t* pool, int device) {
  hipMemPoolProps props = {};
  props.allocType = hipMemAllocationTypePinned;
  props.location.type = hipMemLocationTypeDevice, props.location.id = device;
  uint64_t keep = UINT64_MAX;
  const gpu_error_t e = hipMemPoolCreate(pool, &props);
  return e != hipSuccess ? e : hipMemPoolSetAttribute(*pool, hipMemPoolAttrReleaseThreshold, &keep);
}
inline void gpu_drop_pool(gpu_pool_t pool) { (void)hipMemPoolDestroy(pool); }
inline gpu_error_t gpu_take(void** p, size_t bytes, gpu_pool_t pool, gpu_stream_t stream) {
  return hipMallocFromPoolAsync(p, bytes, pool, stream);
}
inline void gpu_give(void* p, gpu_stream_t stream) { (void)hipFreeAsync(p, stream); }
#else
using gpu_pool_t = cudaMemPool_t;
inline gpu_error_t gpu_new_pool(gpu_pool_t* pool, int device) {
  cudaMemPoolProps props = {};
  props.allocType = cudaMemAllocationTypePinned;
  props.location.type = cudaMemLocationTypeDevice, props.location.id = device;
  uint64_t keep = UINT64_MAX;
  const gpu_error_t e = cudaMemPoolCreate(pool, &props);
  return e != cudaSuccess ? e : cudaMemPoolSetAttribute(*pool, cudaMemPoolAttrReleaseThreshold, &keep);
}
inline void gpu_drop_pool(gpu_pool_t pool) { (void)cudaMemPoolDestroy(pool); }
inline gpu_error_t gpu_take(void** p, size_t bytes, gpu_pool_t pool, gpu_stream_t stream) {
  return cudaMallocFromPoolAsync(p, bytes, pool, stream);
}
inline void gpu_give(void* p, gpu_stream_t stream) { (void)cudaFreeAsync(p, stream); }
#endif

// Workspace is memory of one call, freed when the work queued so far is done.
class Workspace {
 public:
  Workspace() = default;
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace() {
    if (data_) gpu_give(data_, stream_);
  }

  // take allocates bytes > 0 on the current device, id. It is called once at most.
  Status take(size_t bytes, int id, gpu_stream_t stream) {
    if (id < 0 || id >= kMostDevices) return runtime_error("device %d: expected a number below %d", id, kMostDevices);
    gpu_pool_t pool = nullptr;
    gpu_error_t e = pool_of(id, &pool);
    if (e == kGpuSuccess) e = gpu_take(&data_, bytes, pool, stream);
    if (e == kGpuSuccess) return stream_ = stream, Status();
    data_ = nullptr;
    (void)gpu_last_error();  // clears it: the next caller must not find it
    return runtime_error("cannot get %lld bytes of workspace on device %d: %s", static_cast<long long>(bytes), id,
                         gpu_error_text(e));
  }

  void* data() const { return data_; }

 private:
  static constexpr int kMostDevices = 64;

  // pool_of returns the device's pool, made once: of two threads that make it, one wins.
  static gpu_error_t pool_of(int id, gpu_pool_t* out) {
    static gpu_pool_t pools[kMostDevices];
    gpu_pool_t* slot = &pools[id];
    *out = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
    if (*out) return kGpuSuccess;
    gpu_pool_t fresh = nullptr;
    const gpu_error_t e = gpu_new_pool(&fresh, id);
    if (e != kGpuSuccess) return e;
    *out = nullptr;
    if (__atomic_compare_exchange_n(slot, out, fresh, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) *out = fresh;
    else gpu_drop_pool(fresh);
    return kGpuSuccess;
  }

  void* data_ = nullptr;
  gpu_stream_t stream_ = nullptr;
};

}  // namespace aiter
