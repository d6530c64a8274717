// module_rope_1c_thd_bwd of AIter.
#include "rope.h"

#include "kernels/rope/general_1c_thd_bwd_kernels.cu"

AITER_UPSTREAM(aiter_rope_thd_bwd_impl, (aiter::upstream::rope_thd<&::rope_thd_bwd_impl, true>), arg("input_grads"), arg("output_grads"),
               arg("cu_seqlens"), arg("freqs"), AITER_ROPE_OPTIONS)
