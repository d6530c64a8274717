#include "kernels/rmsnorm/rmsnorm_opus_norm_bf16.cu"  // of the checkout
