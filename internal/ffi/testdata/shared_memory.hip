// A kernel with BYTES of shared memory.
#include <aiter/gpu.h>

__global__ void kernel(int* out) {
  AITER_DYNAMIC_SHARED(memory, BYTES);
  *out = memory[threadIdx.x].bytes[0];
}
