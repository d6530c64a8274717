// The launches of bwd/bwd_wide.hip, filters of 9 taps and more, and of bwd/bwd_wide_few.hip, of up to 17. The type of x selects the
// kernel.
#pragma once

#include <aiter/gpu.h>

#include "../common/problem.h"

namespace aiter::conv1d::bwd {

// try_launch_wide launches a problem, or sets *taken to false: a warp's shared memory does not hold what its width needs.
Status try_launch_wide(const TensorView& x, const Backward& p, const OpStream& stream, bool* taken);

// try_launch_few launches a problem of up to 17 taps on NVIDIA's matrix cores, or sets *taken to false: x is not bfloat16, or rows are
// not dense.
Status try_launch_few(const TensorView& x, const Backward& p, const OpStream& stream, bool* taken);

}  // namespace aiter::conv1d::bwd
