// AIter has a replacement for the parts of Composable Kernel that its own kernels use.
#pragma once
#include <hip/hip_bfloat16.h>
#include <hip/hip_fp16.h>

#include "ck_tile_shim.h"
