// A kernel with BYTES of shared memory.
#include <aiter/gpu.h>
#include <aiter/gpu/async_copy.h>

__global__ void kernel(int* out) {
  AITER_DYNAMIC_SHARED(memory, BYTES);
  *out = memory[threadIdx.x].bytes[0];
}
