// module_causal_conv1d_update of AIter.
#include <aiter/upstream.h>

#include "kernels/causal_conv1d_update.cu"

namespace aiter::upstream {

// update makes the checks that AIter leaves to its callers. A tensor that is None is empty, as AIter expects it.
static void update(aiter_tensor_t& x, aiter_tensor_t& conv_state, aiter_tensor_t& weight, std::optional<aiter_tensor_t> bias,
                   aiter_tensor_t& out, bool use_silu, std::optional<aiter_tensor_t> cache_seqlens,
                   std::optional<aiter_tensor_t> conv_state_indices, int pad_slot_id) {
  AITER_CHECK(x.dim() == 3 && out.dim() == 3 && conv_state.dim() == 3 && weight.dim() == 2,
              "expected x and out (batch, dim, seqlen), conv_state (slots, dim, length) and weight (dim, width)");
  AITER_CHECK(out.dtype() == x.dtype() && conv_state.dtype() == x.dtype(), "out and conv_state: expected the element type of x");
  aiter_tensor_t none{};
  none.ndim = 1, none.strides[0] = 1, none.dtype_ = AITER_DTYPE_i32, none.device_id = x.device_id;
  aiter_tensor_t b = bias.value_or(none), lengths = cache_seqlens.value_or(none), slots = conv_state_indices.value_or(none);
  AITER_CHECK(b.dim() == 1 && lengths.dim() == 1 && slots.dim() == 1 && packed(b) && packed(lengths) && packed(slots),
              "bias, cache_seqlens and conv_state_indices: expected one dimension, elements adjacent");
  AITER_CHECK(b.numel() == 0 || b.dtype() == weight.dtype(), "bias: expected the element type of weight");
  if (x.numel() == 0) return;
  ::aiter::causal_conv1d_update(x, conv_state, weight, b, out, use_silu, lengths, slots, pad_slot_id);
}

}  // namespace aiter::upstream

AITER_UPSTREAM(aiter_causal_conv1d_update, aiter::upstream::update, arg("x"), arg("conv_state"), arg("weight"), arg("bias"), arg("out"),
               flag("use_silu", false), none("cache_seqlens"), none("conv_state_indices"), integer("pad_slot_id", -1))
