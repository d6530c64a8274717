#include "kernels/rmsnorm/rmsnorm_opus_norm_fp16.cu"  // of the checkout
