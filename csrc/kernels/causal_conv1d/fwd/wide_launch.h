// The launches of wide filters. The type of x selects the kernel.
#pragma once

#include <aiter/gpu.h>

#include "../common/state.h"

namespace aiter::conv1d {

// launch_wide launches rows with or without sequence numbers and states (fwd/fwd_wide.hip).
Status launch_wide(const TensorView& x, const Forward& p, const OpStream& stream);

// launch_wide_packed launches all positions of a packed row, which read states and do not write them (fwd/fwd_wide_packed.hip).
Status launch_wide_packed(const TensorView& x, const Stateful& p, const OpStream& stream);

}  // namespace aiter::conv1d
