#include "kernels/topk_gating/topk_sqrtsoftplus.cu"  // of the checkout
