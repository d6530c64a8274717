// The launches of bwd/bwd_wide.hip, for wide filters, and of bwd/bwd_wide_17.hip, for filters of up to 17 taps. The type of x selects
// the kernel.
#pragma once

#include <aiter/gpu.h>

#include "../common/problem.h"

namespace aiter::conv1d::bwd {

// try_launch_wide launches a problem, or sets *taken to false: a warp's shared memory does not hold what its width needs.
Status try_launch_wide(const TensorView& x, const Backward& p, const OpStream& stream, bool* taken);

// try_launch_17_taps launches a problem of up to 17 taps on NVIDIA's matrix cores, or sets *taken to false: x is not bfloat16, or rows are
// not dense.
Status try_launch_17_taps(const TensorView& x, const Backward& p, const OpStream& stream, bool* taken);

}  // namespace aiter::conv1d::bwd
