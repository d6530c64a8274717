// The launches of fwd/fwd_sequences.hip: rows with sequences or states, and narrow filters. The type of x selects the kernel.
#pragma once

#include <aiter/gpu.h>

#include "../common/state.h"

namespace aiter::conv1d {

// launch_sequences launches rows with sequence numbers or states.
Status launch_sequences(const TensorView& x, const Forward& p, const OpStream& stream);

// launch_packed launches the positions of a packed row; with states, without the first width-1 of each sequence.
Status launch_packed(const TensorView& x, const Stateful& p, const OpStream& stream);

}  // namespace aiter::conv1d
