// The topology of a device.
#pragma once

#include <aiter/gpu.h>

#include "topology.h"

namespace aiter::conv1d {

// device_topology returns a device's topology. It queries each device once.
inline Status device_topology(int device, Topology* gpu) {
  static int64_t known[64];  // of a device: shared bytes, multiprocessors, one bit for 64 lanes; 0: not queried yet
  int64_t* slot = unsigned(device) < 64 ? &known[device] : nullptr;
  int64_t value = slot ? __atomic_load_n(slot, __ATOMIC_RELAXED) : 0;
  if (!value) {
    int count = 0, lanes = 0, shared = 0;
    gpu_error_t e = gpu_multiprocessors(&count, device);
    if (e == kGpuSuccess) e = gpu_warp_lanes(&lanes, device);
    if (e == kGpuSuccess) e = gpu_shared_bytes(&shared, device);
    if (e != kGpuSuccess) return runtime_error("cannot ask device %d for its multiprocessors: %s", device, gpu_error_text(e));
    value = int64_t(shared) << 32 | (count > 0 ? count : 1) * 2 | (lanes == 64);
    if (slot) __atomic_store_n(slot, value, __ATOMIC_RELAXED);
  }
  *gpu = {(value & 0xffffffff) / 2, value % 2 ? 6 : 5, value >> 32};
  return Status();
}

}  // namespace aiter::conv1d
