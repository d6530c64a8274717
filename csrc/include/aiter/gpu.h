// The headers of a GPU operator: device, stream, launch, and the helpers that most kernels use.
#pragma once

#include "gpu/codegen.h"
#include "gpu/fastdiv.h"
#include "gpu/launch.h"
#include "gpu/math.h"
#include "gpu/pdl.h"
#include "gpu/vec.h"
#include "gpu/warp.h"
