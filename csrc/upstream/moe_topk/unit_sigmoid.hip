#include "kernels/topk_gating/topk_sigmoid.cu"  // of the checkout
