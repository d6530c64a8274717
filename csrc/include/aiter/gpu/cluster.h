// Thread block clusters (sm_90): blocks that access one another's shared memory.
#pragma once

#include "../dtype.h"

namespace aiter {

// cluster_peer_load reads the float that the block of that rank has where p is in this block. A cluster_barrier before
// the load and one behind it keep the memory unchanged meanwhile. Without clusters both act on the block alone.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
AITER_DEVICE void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
}
AITER_DEVICE float cluster_peer_load(const float* p, uint32_t rank) {
  uint32_t address = uint32_t(__cvta_generic_to_shared(p));
  float v;
  asm volatile("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(address) : "r"(rank));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(address) : "memory");
  return v;
}
#else
AITER_DEVICE void cluster_barrier() {}
AITER_DEVICE float cluster_peer_load(const float* p, uint32_t) { return *p; }
#endif

// ClusterReduce collects floats of all blocks of a cluster in the shared memory of the first block. The barrier at
// `arrivals` counts the bytes that have arrived, so that no block waits for another block's other stores.
struct ClusterReduce {
  float* inbox;
  uint64_t* arrivals;

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  // One thread of the first block calls init with the number of floats to expect. Then all threads of all blocks call
  // arrive_init, and wait_init before the first post.
  AITER_DEVICE void init(int floats) const {
    const uint32_t at = uint32_t(__cvta_generic_to_shared(arrivals));
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\n\tfence.mbarrier_init.release.cluster;\n\t"
                 "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(floats * 4) : "memory");
  }
  AITER_DEVICE static void arrive_init() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
  AITER_DEVICE static void wait_init() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
  // post writes v to inbox[n] of the first block.
  AITER_DEVICE void post(int n, float v) const {
    uint32_t to = uint32_t(__cvta_generic_to_shared(inbox + n)), at = uint32_t(__cvta_generic_to_shared(arrivals));
    asm volatile("mapa.shared::cluster.u32 %0, %0, 0;\n\tmapa.shared::cluster.u32 %1, %1, 0;\n\t"
                 "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %2, [%1];"
                 : "+r"(to), "+r"(at) : "r"(float_to_bits(v)) : "memory");
  }
  // wait_all waits, in the first block, until all floats have arrived.
  AITER_DEVICE void wait_all() const {
    const uint32_t at = uint32_t(__cvta_generic_to_shared(arrivals));
    uint32_t done = 0;
    while (!done)
      asm volatile("{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\n\t"
                   "selp.b32 %0, 1, 0, p;\n\t}" : "=r"(done) : "r"(at) : "memory");
  }
#else
  AITER_DEVICE void init(int) const {}
  AITER_DEVICE static void arrive_init() {}
  AITER_DEVICE static void wait_init() {}
  AITER_DEVICE void post(int n, float v) const { inbox[n] = v; }
  AITER_DEVICE void wait_all() const {}
#endif
};

}  // namespace aiter
