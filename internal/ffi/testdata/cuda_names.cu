// The names of aiter/cuda_device.h, a kernel each. Compiled with CUDA's headers and without them, the code must be the same.
#include <aiter/platform.h>

#define K(name, value)                                                                                             \
  extern "C" __global__ void __launch_bounds__(256, 2) k_##name(float* o, const float* a, const int* n) {          \
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;                                                      \
    [[maybe_unused]] float x = a[i], y = a[i + 1], z = a[i + 2];                                                   \
    [[maybe_unused]] int m = n[i];                                                                                 \
    o[i] = float(value);                                                                                           \
  }

K(fma, fmaf(x, y, z)) K(rsqrt, rsqrtf(x)) K(perm, __byte_perm(m, i, 0x5432)) K(bits, __int_as_float(__float_as_int(x) ^ m))
K(grid, gridDim.x) K(any, __any_sync(~0u, m)) K(all, __all_sync(~0u, m)) K(ballot, __ballot_sync(~0u, m)) K(active, __activemask())
K(barrier, (o[i + 1] = x, __syncthreads(), a[i ^ 1])) K(either, __syncthreads_or(m)) K(warp, (o[i + 1] = x, __syncwarp(), a[i ^ 1]))
K(block, (o[i + 1] = x, __threadfence_block(), a[i ^ 1])) K(device, (o[i + 1] = x, __threadfence(), a[i ^ 1]))
K(shfl, __shfl_sync(~0u, x, m)) K(shfl8, __shfl_sync(~0u, m, m, 8)) K(shflu, __shfl_sync(~0u, unsigned(m), 3))
K(up, __shfl_up_sync(~0u, x, 1)) K(up16, __shfl_up_sync(~0u, m, m, 16)) K(down, __shfl_down_sync(~0u, x, 2))
K(down16, __shfl_down_sync(~0u, m, 3, 16)) K(xor7, __shfl_xor_sync(~0u, x, 7)) K(xor4, __shfl_xor_sync(~0u, m, m, 4))

extern "C" __global__ void k_shared(size_t* o) {
  __shared__ int line[64];
  o[threadIdx.x] = __cvta_generic_to_shared(line + threadIdx.x);
}
