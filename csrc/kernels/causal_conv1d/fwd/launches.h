// The launches of the sources of forward kernels, for those of other sources and operators. The type of x selects the kernel.
#pragma once

#include <aiter/gpu.h>

#include "../common/state.h"

namespace aiter::conv1d {

// launch_sequences launches rows with sequence numbers or states, and narrow filters (fwd/fwd_sequences.hip).
Status launch_sequences(const TensorView& x, const Forward& p, const OpStream& stream);

// launch_packed launches the positions of a packed row, with narrow filters; with states, without the first width-1 of each sequence
// (fwd/fwd_sequences.hip).
Status launch_packed(const TensorView& x, const Stateful& p, const OpStream& stream);

// launch_wide launches rows with or without sequence numbers and states, and wide filters (fwd/fwd_wide.hip).
Status launch_wide(const TensorView& x, const Forward& p, const OpStream& stream);

// launch_wide_packed launches all positions of a packed row, with wide filters, which read states and do not write them
// (fwd/fwd_wide_packed.hip).
Status launch_wide_packed(const TensorView& x, const Stateful& p, const OpStream& stream);

}  // namespace aiter::conv1d
