#include "kernels/rmsnorm/rmsnorm_opus_norm_entry.cu"  // of the checkout
