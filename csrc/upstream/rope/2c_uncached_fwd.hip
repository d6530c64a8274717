// module_rope_2c_uncached_fwd of AIter.
#include "rope.h"

#include "kernels/rope/general_2c_uncached_fwd_kernels.cu"

AITER_UPSTREAM(aiter_rope_2c_fwd_impl, (aiter::upstream::rope_2c_uncached<&::rope_2c_fwd_impl, false>), arg("output_x"), arg("output_y"),
               arg("input_x"), arg("input_y"), arg("freqs"), AITER_ROPE_OPTIONS)
