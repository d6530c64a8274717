// Integer division on the GPU.
#pragma once

#include "../platform.h"

namespace aiter {

struct DivMod {
  int64_t quotient, remainder;
};

// divmod divides n >= 0 by a divisor > 0. 32-bit operands take the GPU's 32-bit division. Others take a loop over bits:
// compilers expand a 64-bit division to hundreds of instructions.
AITER_DEVICE DivMod divmod(int64_t n, int64_t divisor) {
  if (((n | divisor) >> 32) == 0) {
    const uint32_t q = uint32_t(n) / uint32_t(divisor);
    return {int64_t(q), int64_t(uint32_t(n) - q * uint32_t(divisor))};
  }
  uint64_t q = uint64_t(n), r = 0;
  AITER_ROLLED
  for (int i = 0; i < 64; i++) {
    r = r << 1 | q >> 63, q <<= 1;
    if (r >= uint64_t(divisor)) r -= uint64_t(divisor), q |= 1;
  }
  return {int64_t(q), int64_t(r)};
}

// FastDiv divides numbers below 2^31 by a divisor that is known on the host, with one multiplication.
struct FastDiv {
  uint32_t divisor, factor, shift;

  AITER_DEVICE uint32_t quotient(uint32_t n) const {
    return uint32_t((uint64_t(n * 2) * factor) >> 32) >> shift;
  }
};

inline FastDiv make_fastdiv(int64_t divisor) {
  uint32_t shift = 0;
  while ((int64_t(1) << shift) < divisor) shift++;
  const uint64_t power = uint64_t(1) << (31 + shift);
  return {uint32_t(divisor), uint32_t((power + uint64_t(divisor) - 1) / uint64_t(divisor)), shift};
}

}  // namespace aiter
