// Every name of aiter/hip.h, a kernel each. Compiled with HIP's headers and without them, the code must be the same.
// (That of __shfl_down does the same in other words: the compiler orders its arithmetic differently.)
#include <aiter/platform.h>

#define KERNEL(name, value, ...)                                                                                  \
  extern "C" __global__ void __launch_bounds__(__VA_ARGS__) k_##name(float* o, const float* a, const int* n) {    \
    const unsigned i = blockIdx.x * 256u + threadIdx.x;                                                           \
    [[maybe_unused]] float x = a[i], y = a[i + 1], z = a[i + 2];                                                  \
    [[maybe_unused]] int m = n[i];                                                                                \
    o[i] = float(value);                                                                                          \
  }
#define K(name, value) KERNEL(name, value, 256)

K(fma, fmaf(x, y, z)) K(abs, fabsf(x)) K(max, fmaxf(x, y)) K(min, fminf(x, y)) K(floor, floorf(x)) K(ceil, ceilf(x))
K(rint, rintf(x)) K(exp, expf(x)) K(exp2, exp2f(x)) K(log, logf(x)) K(log1p, log1pf(x)) K(log2, log2f(x))
K(rsqrt, rsqrtf(x)) K(sqrt, sqrtf(x)) K(tanh, tanhf(x)) K(fastexp, __expf(x)) K(fastdiv, __fdividef(x, y))
K(tx, threadIdx.x) K(ty, threadIdx.y) K(tz, threadIdx.z) K(bx, blockIdx.x) K(by, blockIdx.y) K(bz, blockIdx.z)
K(dx, blockDim.x) K(dy, blockDim.y) K(dz, blockDim.z) K(gx, gridDim.x) K(gy, gridDim.y) K(gz, gridDim.z)
K(dim, dim3(gridDim).y) KERNEL(bounds, x, 128, 2)
K(size, warpSize)
K(barrier, (o[i + 1] = x, __syncthreads(), a[i ^ 1])) K(block, (o[i + 1] = x, __threadfence_block(), a[i ^ 1]))
K(device, (o[i + 1] = x, __threadfence(), a[i ^ 1]))

#if defined(DOWN) || __clang_major__ >= 19  // HIP 5 counts lanes of 32 as if there were 64, and leaves some that do not exist
K(shfl, __shfl(x, m)) K(shfl8, __shfl(m, m, 8)) K(up, __shfl_up(x, 1)) K(up16, __shfl_up(x, m, 16))
K(xor7, __shfl_xor(x, 7)) K(xor4, __shfl_xor(m, m, 4)) K(lane, __lane_id())
#endif
#ifdef DOWN
K(down, __shfl_down(x, 2)) K(down16, __shfl_down(unsigned(m), 3, 16))
#endif

hipError_t launch(float* o, hipStream_t stream) {
  k_exp<<<dim3(3, 2), 256, 64, stream>>>(o, o, nullptr);
  k_size<<<7, 128>>>(o, o, nullptr);
  int device;
  if (hipGetDevice(&device) != hipSuccess || hipSetDevice(device) != hipSuccess) (void)hipGetErrorString(hipGetLastError());
  int lanes, multiprocessors;
  (void)hipDeviceGetAttribute(&lanes, hipDeviceAttributeWarpSize, device);
  (void)hipDeviceGetAttribute(&multiprocessors, hipDeviceAttributeMultiprocessorCount, device);
  return hipGetLastError();
}
