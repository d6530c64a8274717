// module_gdr_decode_packed_bf16 of AIter: a decoding step of the gated delta rule.
#include <aiter/upstream.h>

#include "kernels/gdr_decode_packed_bf16.cu"

namespace aiter::upstream {

// check_inner makes a check that AIter leaves to its callers: only the stride of the first dimension is free.
static void check_inner(const char* name, const aiter_tensor_t& t) {
  int64_t expected = 1;
  for (int i = t.dim() - 1; i > 0; expected *= t.size(i--))
    AITER_CHECK(t.size(i) == 1 || t.stride(i) == expected, name, ": expected row-major elements behind the first dimension");
}

static void gdr_decode(aiter_tensor_t& mixed_qkv, aiter_tensor_t& a, aiter_tensor_t& b, aiter_tensor_t& dt_bias, aiter_tensor_t& A_log,
                       aiter_tensor_t& indices, aiter_tensor_t& state, aiter_tensor_t& out, float scale) {
  check_inner("mixed_qkv", mixed_qkv), check_inner("a", a), check_inner("b", b), check_inner("state", state);
  AITER_CHECK(packed(dt_bias) && packed(A_log) && packed(out), "dt_bias, A_log and out: expected row-major tensors");
  for (const aiter_tensor_t* t : {&mixed_qkv, &state})
    AITER_CHECK(reinterpret_cast<uintptr_t>(t->ptr) % 16 == 0 && (t->dim() == 0 || t->stride(0) % 8 == 0),
                "mixed_qkv and state: expected rows at multiples of 16 bytes");
  if (indices.numel() == 0 && mixed_qkv.numel() == 0) return;
  ::aiter::gdr_decode_packed_bf16(mixed_qkv, a, b, dt_bias, A_log, indices, state, out, scale);
}

}  // namespace aiter::upstream

AITER_UPSTREAM(aiter_gdr_decode_packed_bf16, aiter::upstream::gdr_decode, arg("mixed_qkv"), arg("a"), arg("b"), arg("dt_bias"),
               arg("A_log"), arg("indices"), arg("state"), arg("out"), arg("scale"))
