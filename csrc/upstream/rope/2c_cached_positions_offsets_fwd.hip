// module_rope_2c_cached_positions_offsets_fwd of AIter.
#include "rope.h"

#include "kernels/rope/general_2c_cached_positions_offsets_fwd_kernels.cu"

AITER_UPSTREAM(aiter_rope_cached_positions_offsets_2c_fwd_impl,
               (aiter::upstream::rope_2c_positions_offsets<&::rope_cached_positions_offsets_2c_fwd_impl>), arg("output_x"),
               arg("output_y"), arg("input_x"), arg("input_y"), arg("cos"), arg("sin"), arg("positions"), arg("offsets"),
               AITER_ROPE_OPTIONS)
