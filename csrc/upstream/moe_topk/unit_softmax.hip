#include "kernels/topk_gating/topk_softmax.cu"  // of the checkout
