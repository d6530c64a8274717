// A module that allocates a workspace, for the test of aiter/workspace.h. Compiled with -DPROGRAM: a program that loads
// modules and has a runtime library of its own, which counts memory pools.
#ifdef PROGRAM
#include <dlfcn.h>
#include <initializer_list>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

static int pools, mode;

extern "C" {
int hipGetLastError() { return 0; }
const char* hipGetErrorString(int) { return "error"; }
int hipThreadExchangeStreamCaptureMode(int* m) {
  const int old = mode;
  return mode = *m, *m = old, 0;
}
int hipMemPoolCreate(void** pool, const void*) { return *pool = &pools, pools++, mode == 2 ? 0 : 900; }
int hipMemPoolSetAttribute(void*, int, void*) { return 0; }
int hipMemPoolDestroy(void*) { return 0; }
int hipMallocFromPoolAsync(void** data, size_t, void*, void*) { return *data = &pools, 0; }
int hipFreeAsync(void*, void*) { return 0; }
}

// The arguments are the support library, or "", and modules.
int main(int count, char** names) {
  if (*names[1] && !dlopen(names[1], RTLD_NOW | RTLD_GLOBAL)) return puts(dlerror()), 1;
  for (int i = 2; i < count; i++) {
    void* module = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!module) return puts(dlerror()), 1;
    const auto take = reinterpret_cast<const char* (*)(int)>(dlsym(module, "take"));
    for (int device : {0, 3, 3, 63, 64}) {
      const char* error = take(device);
      if (*error) printf("device %d: %s\n", device, error);
    }
  }
  printf("%d pools, capture mode %d\n", pools, mode);
}
#else
#include <aiter/workspace.h>

extern "C" __attribute__((visibility("default"))) const char* take(int device) {
  static char text[512];
  aiter::Workspace w;
  const aiter::Status s = w.take(64, device, nullptr);
  snprintf(text, sizeof text, "%s", s.failed() ? s.message : "");
  return text;
}
#endif
