// Programmatic dependent launch (PDL): a kernel starts while the kernel launched before it on the stream still runs.
#pragma once

#include "../platform.h"

namespace aiter {

// pdl_trigger lets the next kernel on the stream start on multiprocessors that are free. pdl_wait, in the next kernel,
// waits until the previous kernel has ended and its writes are visible. Both do nothing without PDL (sm_90).
AITER_DEVICE void pdl_trigger() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
AITER_DEVICE void pdl_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace aiter
