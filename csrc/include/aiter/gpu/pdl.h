// Programmatic dependent launch (PDL): a kernel starts while the kernel launched before it on the stream still runs.
#pragma once

#include <stdint.h>

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

// kStartsEarly reports whether kernels start early.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
constexpr bool kStartsEarly = true;
#else
constexpr bool kStartsEarly = false;
#endif

// peek loads a word that the previous kernel may still write, in front of pdl_wait: a guess, which a load behind pdl_wait must confirm.
// The L1 cache does not keep the word.
AITER_DEVICE uint32_t peek(const void* p) {
  uint32_t v = 0;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p));
#else
  (void)p;
#endif
  return v;
}

}  // namespace aiter
