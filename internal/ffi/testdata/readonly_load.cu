// A read-only load behind a wait for the previous grid, in a loop that a compiler may hoist it from.
#include <aiter/gpu.h>

extern "C" __global__ void kernel(const uint32_t* p, uint32_t* out, int n) {
  for (int i = 0; i < n; i++) {
    aiter::pdl_wait();
    out[i] = aiter::load_readonly<1>(p).word[0] + aiter::load_readonly_element(p + 1);
  }
}
