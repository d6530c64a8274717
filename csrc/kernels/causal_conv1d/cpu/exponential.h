// The exponential of single values, for kernels of serving on the CPU.
#pragma once

#include <cstdint>
#include <cstring>

namespace aiter::conv1d::serve {

// exponential is e^x within an ulp of float. The library depends on libc alone, and the exponential of aiter/cpu_vector.h is for
// vectors.
inline float exponential(float x) {
  if (!(x > -104.0f)) return x < 0 ? 0.0f : x;  // less than the least float, or NaN
  if (x > 89.0f) return __builtin_inff();
  constexpr double kRounds = 6755399441055744.0;  // 1.5*2^52: the sum's low bits are a rounded integer
  const double z = double(x) * 1.4426950408889634, sum = z + kRounds;
  const double f = (z - (sum - kRounds)) * 0.6931471805599453;
  double y = 1.0;  // Taylor's polynomial of |f| < 0.35
  for (int n = 9; n > 0; n--) y = 1.0 + y * f / n;
  int64_t bits;
  memcpy(&bits, &sum, sizeof bits);
  const int64_t power = (int64_t(int32_t(bits)) + 1023) << 52;
  double scale;
  memcpy(&scale, &power, sizeof scale);
  return float(y * scale);
}

}  // namespace aiter::conv1d::serve
