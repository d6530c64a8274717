// module_rope_1c_cached_positions_fwd of AIter.
#include "rope.h"

#include "kernels/rope/general_1c_cached_positions_fwd_kernels.cu"

AITER_UPSTREAM(aiter_rope_cached_positions_fwd_impl, (aiter::upstream::rope_positions<&::rope_cached_positions_fwd_impl>), arg("output"),
               arg("input"), arg("cos"), arg("sin"), arg("positions"), AITER_ROPE_OPTIONS)
