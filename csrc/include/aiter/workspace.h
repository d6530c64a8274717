// A call's own memory. It comes from a pool that all modules of the process share, in the order of the call's stream: neither
// the device nor other streams wait, and a call may be captured in a graph.
#pragma once

#include "gpu.h"

// The support library's function for the place of a device's pool. In Python it is absent.
extern "C" __attribute__((weak)) void** aiter_memory_pool(int32_t device_type, int32_t id);

namespace aiter {

#if AITER_HIP
using gpu_pool_t = hipMemPool_t;
using gpu_capture_mode_t = hipStreamCaptureMode;
constexpr gpu_capture_mode_t kGpuCaptureRelaxed = hipStreamCaptureModeRelaxed;
inline gpu_error_t gpu_exchange_capture_mode(gpu_capture_mode_t* mode) { return hipThreadExchangeStreamCaptureMode(mode); }
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
using gpu_capture_mode_t = cudaStreamCaptureMode;
constexpr gpu_capture_mode_t kGpuCaptureRelaxed = cudaStreamCaptureModeRelaxed;
inline gpu_error_t gpu_exchange_capture_mode(gpu_capture_mode_t* mode) { return cudaThreadExchangeStreamCaptureMode(mode); }
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
    void** place = place_of(id);
    if (!place) return runtime_error("device %d: expected a number below %d", id, kMostDevices);
    gpu_pool_t pool = nullptr;
    gpu_error_t e = pool_of(id, place, &pool);
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

  // place_of returns where the pool of a device is, or null for a device number that is too large.
  static void** place_of(int id) {
    static void* pools[kMostDevices];  // of this module alone, in Python
    if (aiter_memory_pool) return aiter_memory_pool(AITER_HIP ? kROCM : kCUDA, id);
    return id >= 0 && id < kMostDevices ? &pools[id] : nullptr;
  }

  // pool_of returns the device's pool. If two threads make it at the same time, the pool of one is kept.
  static gpu_error_t pool_of(int id, void** place, gpu_pool_t* out) {
    void* pool = __atomic_load_n(place, __ATOMIC_ACQUIRE);
    if (!pool) {
      gpu_pool_t fresh = nullptr;
      // A stream of this process may be in capture. The other capture modes may forbid the creation of a pool.
      gpu_capture_mode_t mode = kGpuCaptureRelaxed;
      gpu_error_t e = gpu_exchange_capture_mode(&mode);
      if (e != kGpuSuccess) return e;
      e = gpu_new_pool(&fresh, id);
      (void)gpu_exchange_capture_mode(&mode);
      if (e != kGpuSuccess) return e;
      if (__atomic_compare_exchange_n(place, &pool, static_cast<void*>(fresh), false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) pool = fresh;
      else gpu_drop_pool(fresh);
    }
    *out = static_cast<gpu_pool_t>(pool);
    return kGpuSuccess;
  }

  void* data_ = nullptr;
  gpu_stream_t stream_ = nullptr;
};

}  // namespace aiter
