// module_rope_1c_2d_bwd of AIter.
#include "rope.h"

#include "kernels/rope/general_1c_2d_bwd_kernels.cu"

AITER_UPSTREAM(aiter_rope_2d_bwd_impl, (aiter::upstream::rope_2d<&::rope_2d_bwd_impl, true>), arg("input_grads"), arg("output_grads"),
               arg("cos_h"), arg("sin_h"), arg("cos_w"), arg("sin_w"), arg("img_height"), arg("img_width"), AITER_ROPE_OPTIONS)
