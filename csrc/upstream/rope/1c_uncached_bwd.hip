// module_rope_1c_uncached_bwd of AIter.
#include "rope.h"

#include "kernels/rope/general_1c_uncached_bwd_kernels.cu"

AITER_UPSTREAM(aiter_rope_bwd_impl, (aiter::upstream::rope_uncached<&::rope_bwd_impl, true>), arg("input_grads"), arg("output_grads"),
               arg("freqs"), AITER_ROPE_OPTIONS)
