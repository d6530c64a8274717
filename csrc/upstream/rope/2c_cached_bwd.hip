// module_rope_2c_cached_bwd of AIter.
#include "rope.h"

#include "kernels/rope/general_2c_cached_bwd_kernels.cu"

AITER_UPSTREAM(aiter_rope_cached_2c_bwd_impl, (aiter::upstream::rope_2c_cached<&::rope_cached_2c_bwd_impl, true>), arg("input_grads_x"),
               arg("input_grads_y"), arg("output_grads_x"), arg("output_grads_y"), arg("cos"), arg("sin"), AITER_ROPE_OPTIONS)
