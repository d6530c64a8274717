// Rows with sequences or states, of at most 8 taps: fwd/fwd_sequences.hip's.
// x is the tensor whose type chooses.
#pragma once

#include <aiter/gpu.h>

#include "../common/state.h"

namespace aiter::conv1d {

// launch_sequences launches rows with sequence numbers or states.
Status launch_sequences(const TensorView& x, const Forward& p, gpu_stream_t stream);

// launch_packed launches the positions of a packed row, without the first width-1 of
// each sequence where there are states.
Status launch_packed(const TensorView& x, const Stateful& p, gpu_stream_t stream);

}  // namespace aiter::conv1d
