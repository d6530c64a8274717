// module_rope_1c_cached_fwd of AIter.
#include "rope.h"

#include "kernels/rope/general_1c_cached_fwd_kernels.cu"

AITER_UPSTREAM(aiter_rope_cached_fwd_impl, (aiter::upstream::rope_cached<&::rope_cached_fwd_impl, false>), arg("output"), arg("input"),
               arg("cos"), arg("sin"), AITER_ROPE_OPTIONS)
