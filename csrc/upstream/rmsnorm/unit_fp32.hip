#include "kernels/rmsnorm/rmsnorm_opus_norm_fp32.cu"  // of the checkout
