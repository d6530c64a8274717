// Communication between the lanes of a warp (a wave on AMD) and the threads of a block.
#pragma once

#include "../dtype.h"

namespace aiter {

// shuffle_xor returns v of the lane whose number differs by mask. shuffle_next returns v of the next lane; the last lane
// of a warp gets the first lane's. All lanes of the warp take part.
#if AITER_HIP
AITER_DEVICE int warp_size() { return warpSize; }
AITER_DEVICE int warp_bits() { return warp_size() == 64 ? 6 : 5; }

// warp_barrier makes writes to shared memory visible to the other lanes of the warp. A wave's accesses are in order; the compiler must
// keep them so.
AITER_DEVICE void warp_barrier() {
#if defined(__HIP_DEVICE_COMPILE__)
  __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
  __builtin_amdgcn_wave_barrier();
#endif
}
// warp_ballot returns a bit for each lane of the warp: whether p holds in it. warp_all reports whether p holds in all lanes.
AITER_DEVICE uint64_t warp_ballot(bool p) {
#if defined(__HIP_DEVICE_COMPILE__) && !__has_builtin(__builtin_amdgcn_ballot_w64)
  return __builtin_amdgcn_uicmp(unsigned(p), 0u, 33);  // of any number of lanes; 33: not equal
#elif defined(__HIP_DEVICE_COMPILE__) && defined(__GFX9__)
  return __builtin_amdgcn_ballot_w64(p);
#elif defined(__HIP_DEVICE_COMPILE__)
  return __builtin_amdgcn_ballot_w32(p);
#else
  return p;
#endif
}
AITER_DEVICE bool warp_all(bool p) { return warp_ballot(!p) == 0; }
// warp_uniform returns v, which all lanes of the warp share, in a scalar register.
AITER_DEVICE int warp_uniform(int v) {
#if defined(__HIP_DEVICE_COMPILE__)
  v = __builtin_amdgcn_readfirstlane(v);
#endif
  return v;
}
AITER_DEVICE float shuffle_xor(float v, int mask) { return __shfl_xor(v, mask); }
AITER_DEVICE float shuffle_next(float v) {
#if defined(__HIP_DEVICE_COMPILE__)
  // DPP moves, since __shfl goes through the crossbar of the local data share.
  int bits = int(float_to_bits(v));
#if defined(__GFX9__)
  bits = __builtin_amdgcn_update_dpp(bits, bits, 0x134, 0xf, 0xf, false);  // wave_rol:1
#else
  const int other = __builtin_amdgcn_permlanex16(bits, bits, 0, 0, false, false);  // the first lane of the other row of 16
  bits = __builtin_amdgcn_update_dpp(other, bits, 0x101, 0xf, 0xf, false);         // row_shl:1; the 16th lane keeps other
#endif
  v = bits_to_float(uint32_t(bits));
#endif
  return v;
}
#else
AITER_DEVICE int warp_size() { return 32; }
AITER_DEVICE int warp_bits() { return 5; }
AITER_DEVICE void warp_barrier() { __syncwarp(); }
AITER_DEVICE float shuffle_xor(float v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
AITER_DEVICE float shuffle_next(float v) { return __shfl_sync(0xffffffffu, v, (int(threadIdx.x) + 1) & 31); }
// The same, where the low five bits of next are the next lane's number.
AITER_DEVICE float shuffle_next(float v, int next) { return __shfl_sync(0xffffffffu, v, next); }
AITER_DEVICE int warp_uniform(int v) { return v; }
AITER_DEVICE uint64_t warp_ballot(bool p) { return __ballot_sync(0xffffffffu, p); }
AITER_DEVICE bool warp_all(bool p) { return __all_sync(0xffffffffu, p); }
#endif

// active_lanes_all keeps the active lanes of a warp on one path: on NVIDIA it reports whether p holds in all of them, on
// AMD, where divergence is cheap, whether p holds in this lane.
AITER_DEVICE bool active_lanes_all(bool p) {
#if defined(__CUDA_ARCH__)
  return __all_sync(__activemask(), p);
#else
  return p;
#endif
}

// block_barrier is __syncthreads for shared memory only: AMD's compilers from LLVM 19 on then keep the caches of global
// memory.
AITER_DEVICE void block_barrier() {
#if AITER_HIP && defined(__clang_major__) && __clang_major__ >= 19
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
#else
  __syncthreads();
#endif
}

// block_any reports to all threads of a block whether mine is true in any of them. A kernel calls it at most once.
AITER_DEVICE bool block_any(bool mine) {
#if AITER_HIP
  __shared__ int answer;
  if (threadIdx.x == 0) answer = 0;
  block_barrier();
  if (mine) answer = 1;
  block_barrier();
  return answer;
#else
  return __syncthreads_or(mine);
#endif
}

}  // namespace aiter
