// module_rope_1c_2d_fwd of AIter.
#include "rope.h"

#include "kernels/rope/general_1c_2d_fwd_kernels.cu"

AITER_UPSTREAM(aiter_rope_2d_fwd_impl, (aiter::upstream::rope_2d<&::rope_2d_fwd_impl, false>), arg("output"), arg("input"), arg("cos_h"),
               arg("sin_h"), arg("cos_w"), arg("sin_w"), arg("img_height"), arg("img_width"), AITER_ROPE_OPTIONS)
