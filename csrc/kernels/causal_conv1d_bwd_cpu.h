// causal_conv1d_bwd at one level (aiter/cpu_each.h includes this once a level).

#include "causal_conv1d_bwd_rows_cpu.h"
#include "causal_conv1d_bwd_tile_cpu.h"
#include "causal_conv1d_bwd_tokens_cpu.h"
