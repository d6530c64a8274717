// module_rope_1c_uncached_fwd of AIter.
#include "rope.h"

#include "kernels/rope/general_1c_uncached_fwd_kernels.cu"

AITER_UPSTREAM(aiter_rope_fwd_impl, (aiter::upstream::rope_uncached<&::rope_fwd_impl, false>), arg("output"), arg("input"), arg("freqs"),
               AITER_ROPE_OPTIONS)
