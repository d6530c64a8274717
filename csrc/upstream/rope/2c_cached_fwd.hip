// module_rope_2c_cached_fwd of AIter.
#include "rope.h"

#include "kernels/rope/general_2c_cached_fwd_kernels.cu"

AITER_UPSTREAM(aiter_rope_cached_2c_fwd_impl, (aiter::upstream::rope_2c_cached<&::rope_cached_2c_fwd_impl, false>), arg("output_x"),
               arg("output_y"), arg("input_x"), arg("input_y"), arg("cos"), arg("sin"), AITER_ROPE_OPTIONS)
