// causal_conv1d_bwd at one level (aiter/cpu_each.h includes this once a level).

#include "bwd_channel_first.h"
#include "bwd_tile.h"
#include "bwd_transposed.h"
#include "bwd_channel_last.h"
