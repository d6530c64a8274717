// Elements of index tensors on the GPU, with loads in flight and without branches.
#pragma once

#include "../common/served.h"

namespace aiter::conv1d::serve {

// IndexBits is an element of an int32 tensor, or of an int64 tensor, whose load is in flight.
class IndexBits {
 public:
  AITER_DEVICE IndexBits(bool present, bool is_int64, const void* at) : is_int64_(is_int64) {
    const uint32_t* p = static_cast<const uint32_t*>(at);
    word_[0] = load_if(present, p), word_[1] = load_if(present && is_int64, p + 1);
  }
  AITER_DEVICE int64_t value() const { return is_int64_ ? int64_t(uint64_t(word_[1]) << 32 | word_[0]) : int32_t(word_[0]); }

  // fits reports whether the value fits 32 bits, which *v receives.
  AITER_DEVICE bool fits(int* v) const {
    *v = int(word_[0]);
    return !is_int64_ || int(word_[1]) == *v >> 31;
  }

 private:
  // The load is not a read-only one, which nvcc may move in front of pdl_wait.
  AITER_DEVICE static uint32_t load_if(bool present, const uint32_t* p) {
    uint32_t v = 0;
#if defined(__CUDA_ARCH__)
    asm volatile("{.reg .pred p; setp.ne.u32 p, %2, 0; @p ld.global.u32 %0, [%1];}" : "+r"(v) : "l"(p), "r"(uint32_t(present)));
#else
    if (present) v = *(GlobalPtr<const uint32_t>)(p);
#endif
    return v;
  }

  uint32_t word_[2];
  bool is_int64_;
};

}  // namespace aiter::conv1d::serve
