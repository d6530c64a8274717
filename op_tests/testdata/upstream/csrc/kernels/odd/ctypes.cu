#include "aiter_tensor.h"

#define EXPORT extern "C" __attribute__((visibility("default")))
#define AITER_CTYPES_DEFINE_ENTRYPOINT_VOID(func, DECL_ARGS, CALL_ARGS) EXPORT int func DECL_ARGS

/* not this one: int padded(char no); */
// EXPORT int padded(char neither);
EXPORT int
padded(int n)
{
  return n < 0 ? padded(-n) : (n + 255) & ~255;
}

AITER_CTYPES_DEFINE_ENTRYPOINT_VOID(
    scale_in_place,
    (aiter_tensor_t* x, // (rows, n)
     aiter_tensor_t* bias, float by,
     const char* kernelName, int n, hipStream_t stream),
    (x, bias, by, kernelName, n, stream)) {
  return padded(n);
}
