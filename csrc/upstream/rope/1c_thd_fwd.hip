// module_rope_1c_thd_fwd of AIter.
#include "rope.h"

#include "kernels/rope/general_1c_thd_fwd_kernels.cu"

AITER_UPSTREAM(aiter_rope_thd_fwd_impl, (aiter::upstream::rope_thd<&::rope_thd_fwd_impl, false>), arg("output"), arg("input"),
               arg("cu_seqlens"), arg("freqs"), AITER_ROPE_OPTIONS)
