// A launch with as many arguments as the kernel has parameters; with FEWER, with one less.
#include <aiter/gpu.h>

using I = int;
__global__ void kernel(I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I) {}

aiter::Status run(const aiter::OpStream& stream) {
  return aiter::launch(stream, kernel, {1, 64}, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25,
#ifndef FEWER
                       26,
#endif
                       27, 28, 29, 30, 31, 32, 33);
}
