// Barriers of some of a block's threads, on NVIDIA GPUs. Barriers have numbers from 0 to 15; 0 is that of block_barrier. Phase barriers are
// in shared memory.
#pragma once

#include "codegen.h"

namespace aiter {

#if AITER_CUDA && defined(__CUDA_ARCH__)
// named_barrier waits until `threads` threads (whole warps), this one included, have called it or arrive_barrier. It then sees what they
// wrote before. arrive_barrier does not wait.
AITER_DEVICE void named_barrier(int barrier, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory"); }
AITER_DEVICE void arrive_barrier(int barrier, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory"); }

// any_of_barrier is named_barrier. It reports to all of the threads whether `mine` is true in any of them.
AITER_DEVICE bool any_of_barrier(int barrier, int threads, bool mine) {
  int any;
  asm volatile("{\n.reg .pred p, q;\nsetp.ne.s32 p, %3, 0;\nbar.red.or.pred q, %1, %2, p;\nselp.s32 %0, 1, 0, q;\n}"
               : "=r"(any) : "r"(barrier), "r"(threads), "r"(int(mine)) : "memory");
  return any != 0;
}

// set_registers changes the registers of a thread from kFrom, those at the kernel's start, to kTo. All warps of a group of four call it.
// An increase waits until other groups of the block have given back enough.
template <int kFrom, int kTo> AITER_DEVICE void set_registers() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  if constexpr (kTo < kFrom) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kTo));
  else asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kTo));
#endif
}
#if __CUDA_ARCH__ >= 900
// PhaseBarrier is a barrier (mbarrier) at an address of shared memory, a multiple of 8. A phase is complete after a number of arrivals;
// then the next phase begins. wait waits until the phase of that parity, 0 for the first one, is complete, and then sees what the threads
// that arrived wrote before. It waits for the current phase or the one before.
struct PhaseBarrier {
  static constexpr int kBytes = 8;
  uint32_t at;

  AITER_DEVICE void init(int arrivals) const {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(arrivals) : "memory");
  }
  // arrive_with arrives, and adds `bytes` of loads (tensor_map.h) that the current phase waits for.
  AITER_DEVICE void arrive_with(int bytes) const {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
  }
  AITER_DEVICE void arrive() const { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory"); }
  AITER_DEVICE void wait(uint32_t parity) const {
    uint32_t complete = 0;
    while (!complete)
      asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.b32 %0, 1, 0, p;\n}"
                   : "=r"(complete) : "r"(at), "r"(parity) : "memory");
  }
};
#endif
#endif

}  // namespace aiter
