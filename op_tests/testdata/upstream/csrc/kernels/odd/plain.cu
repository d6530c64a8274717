#include "plain.h"
#include "ck_tile/core.hpp"  // there is a stand-in
#if ENABLE_CK
#include <ck/ck.hpp>
#endif

#include "aiter_stream.h"

__global__ void scale_each(float* out, const float* x, const float* bias, float by, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] * by + (bias ? bias[i] : 0);
}

void plain::scaled(aiter_tensor_t& out, const aiter_tensor_t& x, Mode mode, float by, std::optional<aiter_tensor_t> bias) {
  AITER_CHECK(out.numel() == x.numel() && x.dtype() == AITER_DTYPE_fp32, "float32 of one size");
  if (mode == Mode::fast) by *= 1;
  const int n = int(x.numel());
  scale_each<<<dim3((n + 63) / 64), dim3(64), 0, aiter::getCurrentHIPStream()>>>(
      static_cast<float*>(out.data_ptr()), static_cast<const float*>(x.data_ptr()),
      bias ? static_cast<const float*>(bias->data_ptr()) : nullptr, by, n);
  HIP_CALL_LAUNCH(hipGetLastError());
}
