// module_causal_conv1d_update of AIter.
#include <aiter/upstream.h>

#include "kernels/causal_conv1d_update.cu"

namespace aiter::upstream {

// update makes the checks that AIter leaves to its callers. A tensor that is None is empty, as AIter expects it.
static void update(aiter_tensor_t& x, aiter_tensor_t& conv_state, aiter_tensor_t& weight, std::optional<aiter_tensor_t> bias,
                   aiter_tensor_t& out, bool use_silu, std::optional<aiter_tensor_t> cache_seqlens,
                   std::optional<aiter_tensor_t> conv_state_indices, int pad_slot_id) {
  AITER_CHECK(x.dim() == 3, "x: expected shape (batch, dim, seqlen)");
  AITER_CHECK(out.dim() == 3, "out: expected shape (batch, dim, seqlen)");
  AITER_CHECK(conv_state.dim() == 3, "conv_state: expected shape (slots, dim, length)");
  AITER_CHECK(weight.dim() == 2, "weight: expected shape (dim, width)");
  const int64_t batch = x.size(0), dim = x.size(1), width = weight.size(1);
  AITER_CHECK(width >= 2 && width <= 4, "weight: expected a width of 2 to 4");
  AITER_CHECK(weight.size(0) == dim, "weight: expected ", dim, " channels as x");
  AITER_CHECK(conv_state.size(1) == dim && conv_state.size(2) >= width - 1 && (conv_state_indices || conv_state.size(0) == batch),
              "conv_state: expected ", dim, " channels of ", width - 1, " elements or more, and a slot for each of ", batch,
              " sequences or conv_state_indices");
  AITER_CHECK(out.dtype() == x.dtype() && conv_state.dtype() == x.dtype(), "out and conv_state: expected the element type of x");
  aiter_tensor_t none{};
  none.ndim = 1, none.strides[0] = 1, none.dtype_ = AITER_DTYPE_i32, none.device_id = x.device_id;
  aiter_tensor_t b = bias.value_or(none), lengths = cache_seqlens.value_or(none), slots = conv_state_indices.value_or(none);
  AITER_CHECK(b.dim() == 1 && lengths.dim() == 1 && slots.dim() == 1 && packed(b) && packed(lengths) && packed(slots),
              "bias, cache_seqlens and conv_state_indices: expected one dimension, elements adjacent");
  AITER_CHECK(b.numel() == 0 || b.dtype() == weight.dtype(), "bias: expected the element type of weight");
  if (x.numel() == 0) return;
  if (!conv_state_indices) pad_slot_id = -1;  // else AIter leaves out the sequence of that number
  ::aiter::causal_conv1d_update(x, conv_state, weight, b, out, use_silu, lengths, slots, pad_slot_id);
}

}  // namespace aiter::upstream

AITER_UPSTREAM(aiter_causal_conv1d_update, aiter::upstream::update, arg("x"), arg("conv_state"), arg("weight"), arg("bias"), arg("out"),
               flag("use_silu", false), none("cache_seqlens"), none("conv_state_indices"), integer("pad_slot_id", -1))
