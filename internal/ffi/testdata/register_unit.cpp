// The host code of a unit with a kernel KERNEL, in the form of aiter/cuda_host.h.
#include <stdint.h>

#include <aiter/cuda_host.h>

extern "C" void KERNEL() {}
