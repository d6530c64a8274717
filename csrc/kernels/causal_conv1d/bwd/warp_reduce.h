// What lanes of a wave, and blocks of a cluster, see of one another, and sums over lanes.
#pragma once

#include <aiter/gpu.h>

namespace aiter::conv1d::bwd {

// lane_xor is v of the lane whose number differs in mask; next_lane is v of the lane
// behind, in a wave's last lane that of its first; wave_all, NVIDIA's alone, says to all
// whether p holds for all. All lanes of a wave take part.
#if AITER_HIP
AITER_DEVICE int wave() { return warpSize; }
AITER_DEVICE int wave_bits() { return wave() == 64 ? 6 : 5; }

AITER_DEVICE void wave_barrier() {}
AITER_DEVICE float lane_xor(float v, int mask) { return __shfl_xor(v, mask); }
AITER_DEVICE float next_lane(float v) {
#if defined(__HIP_DEVICE_COMPILE__)
  // Not through the local data share's crossbar, which __shfl takes.
  int bits = int(float_to_bits(v));
#if defined(__GFX9__)
  bits = __builtin_amdgcn_update_dpp(bits, bits, 0x134, 0xf, 0xf, false);  // wave_rol:1
#else
  const int other = __builtin_amdgcn_permlanex16(bits, bits, 0, 0, false, false);  // the first of the other 16
  bits = __builtin_amdgcn_update_dpp(other, bits, 0x101, 0xf, 0xf, false);         // row_shl:1; the 16th keeps other
#endif
  v = bits_to_float(uint32_t(bits));
#endif
  return v;
}
#else
AITER_DEVICE int wave() { return 32; }
AITER_DEVICE int wave_bits() { return 5; }
// wave_barrier lets lanes see what others of their wave have put into shared memory.
AITER_DEVICE void wave_barrier() { __syncwarp(); }
AITER_DEVICE float lane_xor(float v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
AITER_DEVICE float next_lane(float v) { return __shfl_sync(0xffffffffu, v, (int(threadIdx.x) + 1) & 31); }
// The same if next, in its lowest five bits, is the number of that lane.
AITER_DEVICE float next_lane(float v, int next) { return __shfl_sync(0xffffffffu, v, next); }
AITER_DEVICE bool wave_all(bool p) { return __all_sync(0xffffffffu, p); }
#endif

// A cluster is blocks that see one another's shared memory. peer_value is what the block
// of that rank has where p is in this one; between the barriers nobody writes.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
AITER_DEVICE void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
}
AITER_DEVICE float peer_value(const float* p, uint32_t rank) {
  uint32_t place = uint32_t(__cvta_generic_to_shared(p));
  float v;
  asm volatile("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(place) : "r"(rank));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(place) : "memory");
  return v;
}
#else
AITER_DEVICE void cluster_barrier() {}
AITER_DEVICE float peer_value(const float* p, uint32_t) { return *p; }
#endif

// fold_wave adds up the sums of lanes that differ in the bits from..to of their
// number. All lanes take part, and get the total.
template <int N> AITER_DEVICE void fold_wave(float (&sums)[N], int from, int to) {
  AITER_ROLLED
  for (int mask = from; mask < to; mask *= 2) {
    AITER_UNROLL
    for (int k = 0; k < N; k++) sums[k] += lane_xor(sums[k], mask);
  }
}

// fold_apart adds up N sums over the lanes of a wave of 32 whose numbers differ in bits from least on, which is at most
// 16, and keeps each total that a lane has by keep(which, total). A lane passes on what the others are to have, half of
// what is left: of 5 sums over all lanes 8 values go from lane to lane, where fold_wave has 25.
template <int kMask = 16, int N, class Keep> AITER_DEVICE void fold_apart(const float (&sums)[N], int lane, int least, Keep keep) {
  if (kMask < 16 && kMask < least) {
    AITER_UNROLL
    for (int i = 0; i < N; i++) keep(i, sums[i]);
  } else if constexpr (kMask > 0) {
    const bool odd = lane & kMask;
    float half[(N + 1) / 2];
    AITER_UNROLL
    for (int i = 0; i < N / 2; i++)
      half[i] = (odd ? sums[2 * i + 1] : sums[2 * i]) + lane_xor(odd ? sums[2 * i] : sums[2 * i + 1], kMask);
    if (N % 2) half[N / 2] = sums[N - 1] + lane_xor(sums[N - 1], kMask);
    fold_apart<kMask / 2>(half, lane, least, [&](int i, float v) { keep(N % 2 && i == N / 2 ? N - 1 : 2 * i + odd, v); });
  }
}

}  // namespace aiter::conv1d::bwd
