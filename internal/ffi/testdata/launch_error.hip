// A program that launches kernels on a runtime library of its own, for the test of aiter/gpu/launch.h.
#include <stdio.h>

#include <aiter/gpu/launch.h>

// The runtime's state: the result of the next launch, and the last error, which another library may have left.
static int next_launch, last_error;

extern "C" {
hipError_t hipGetDevice(int* device) { return *device = 0, hipSuccess; }
hipError_t hipSetDevice(int) { return hipSuccess; }
hipError_t hipGetLastError() {
  const int e = last_error;
  last_error = 0;
  return hipError_t(e);
}
const char* hipGetErrorString(hipError_t e) {
  static char text[32];
  snprintf(text, sizeof text, "error %d", int(e));
  return text;
}
hipError_t hipLaunchKernel(const void*, dim3, dim3, void**, size_t, hipStream_t) {
  if (next_launch) last_error = next_launch;
  return hipError_t(next_launch);
}
}

static void kernel(int64_t) {}

int main() {
  const aiter::OpStream stream = {nullptr, "operator"};
  const int cases[][2] = {{0, 0}, {0, 98}, {98, 0}, {98, 719}};  // the launch's result, the last error before
  for (const auto& c : cases) {
    next_launch = c[0], last_error = c[1];
    const aiter::Status s = aiter::launch(stream, kernel, {1, 64}, 7);
    printf("%d %d: %s%s, last error %d\n", c[0], c[1], s.failed() ? "" : "ok", s.message, last_error);
  }
}
