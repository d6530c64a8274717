// Kernels for the tests, those of tiny.hip for NVIDIA: a loop that moves 16 bytes a time, and local and shared memory.
extern "C" {
__global__ void stream(uint4 *out, const uint4 *in, int n) {
#pragma unroll 1
  for (int i = threadIdx.x; i < n; i += 256) {
    uint4 w = in[i];
    w.x += 1, w.y += 1, w.z += 1, w.w += 1;
    out[i] = w;
  }
}

__global__ void __launch_bounds__(256) stack(int *out, int n) {
  volatile int private_memory[1000];
#pragma unroll 1
  for (int i = 0; i < 1000; i++) private_memory[i] = n + i;
  __shared__ int tile[256];
  tile[threadIdx.x] = private_memory[n & 511];
  __syncthreads();
  out[0] = tile[n & 255];
}
}
