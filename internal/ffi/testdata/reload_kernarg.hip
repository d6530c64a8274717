// A reload of a kernel's parameter; with COPY, of a copy that has changed.
#include <aiter/gpu.h>

struct Args {
  int* out;
  int value;
};

__global__ void kernel(aiter::KernelParam<Args> a) {
#ifdef COPY
  Args changed = a;
  changed.value++;
  *a.out = aiter::reload_kernarg(changed).value;
#else
  *a.out = aiter::reload_kernarg(a).value;
#endif
}

struct First {
  char bytes[5];
};
static_assert(aiter::KernelParam<Args>::offset() == 0, "");
static_assert(aiter::KernelParam<Args, First>::offset() == 8, "");
static_assert(aiter::KernelParam<First, Args, char>::offset() == 17, "");
