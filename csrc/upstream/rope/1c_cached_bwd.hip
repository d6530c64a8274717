// module_rope_1c_cached_bwd of AIter.
#include "rope.h"

#include "kernels/rope/general_1c_cached_bwd_kernels.cu"

AITER_UPSTREAM(aiter_rope_cached_bwd_impl, (aiter::upstream::rope_cached<&::rope_cached_bwd_impl, true>), arg("input_grads"),
               arg("output_grads"), arg("cos"), arg("sin"), AITER_ROPE_OPTIONS)
