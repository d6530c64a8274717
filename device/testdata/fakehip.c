// The functions of libamdhip64 that the HIP driver calls, over fakegpu.h.
// OLD_LAYOUT leaves out hipGetDevicePropertiesR0600, as ROCm 5 does.
#include "fakegpu.h"
#include <stdio.h>

#ifndef ARCH
#define ARCH "gfx90a:sramecc+:xnack-"
#endif

static __thread int last;
static int note_(int code) { if (code) last = code; return code; }
#define note(call) note_(faulty() ? LOST : (call))

EXPORT int hipInit(unsigned f) { return note(f ? INVALID : INIT_ERROR); }
EXPORT int hipDriverGetVersion(int* version) { *version = 60443483; return OK; }
EXPORT int hipGetDeviceCount(int* n) { *n = DEVICES; return note(DEVICES ? OK : NO_DEVICE); }
EXPORT int hipSetDevice(int d) { if (d < 0 || d >= DEVICES) return note(BAD_DEVICE); current = d; return OK; }
EXPORT int hipGetLastError(void) { int l = last; last = 0; return l; }
EXPORT int hipPeekAtLastError(void) { return last; }
EXPORT const char* hipGetErrorName(int code) { return code == NO_MEMORY ? "hipErrorOutOfMemory" : "hipErrorSomething"; }
EXPORT const char* hipGetErrorString(int code) { return code == NO_MEMORY ? "out of memory" : "something"; }

static int properties(char* p, int dev, size_t size, size_t memory, size_t arch, size_t clock, size_t units) {
  if (dev < 0 || dev >= DEVICES) return note(BAD_DEVICE);
  memset(p, 0x77, size);
  snprintf(p, 256, "Fake Instinct %d", dev);
  uint64_t m = (uint64_t)(dev + 1) << 32;
  memcpy(p + memory, &m, 8);
  int kHz = 1700000, cus = 104 + dev;
  memcpy(p + clock, &kHz, 4);
  memcpy(p + units, &cus, 4);
  snprintf(p + arch, 256, "%s", ARCH);
  return OK;
}
EXPORT int hipGetDeviceProperties(char* p, int dev) { return properties(p, dev, 792, 256, 396, 308, 336); }
#ifndef OLD_LAYOUT
EXPORT int hipGetDevicePropertiesR0600(char* p, int dev) { return properties(p, dev, 1472, 288, 1160, 348, 388); }
#endif

EXPORT int hipMalloc(void** p, size_t n) { return note(n % 16 ? INVALID : make(MEMORY, p, n)); }
EXPORT int hipFree(void* p) { return note(free_memory(p)); }
EXPORT int hipMallocManaged(void** p, size_t n, unsigned f) { return note(f == 1 ? make(MEMORY, p, n) : INVALID); }
EXPORT int hipHostMalloc(void** p, size_t n, unsigned f) { return note(f ? INVALID : make(PINNED, p, n)); }
EXPORT int hipHostFree(void* p) { return note(drop(PINNED, p, 1)); }
EXPORT int hipMemcpy(void* d, const void* s, size_t n, int kind) {
  switch (kind) {
    case 1: return note(to_device(d, s, n));
    case 2: return note(to_host(d, s, n));
    case 3: return note(here(s, n) ? within(d, s, n) : across(d, s, n));
  }
  return note(INVALID);
}
EXPORT int hipMemcpyAsync(void* d, const void* s, size_t n, int kind, void* stream) { return note(kind == 4 ? async_copy(d, s, n, stream) : INVALID); }
#ifndef NO_ROWS
EXPORT int hipMemcpy2DAsync(void* d, size_t dpitch, const void* s, size_t spitch, size_t width, size_t height, int kind, void* stream) {
  return note(kind == 4 ? async_rows(d, dpitch, s, spitch, width, height, stream) : INVALID);
}
#endif
EXPORT int hipMemset(void* d, int v, size_t n) { return note(fill(d, v, n)); }
EXPORT int hipStreamCreateWithFlags(void** s, unsigned f) { return note(f > 1 ? INVALID : make(STREAM, s, 1)); }
EXPORT int hipStreamDestroy(void* s) { return note(drop(STREAM, s, 0)); }
EXPORT int hipStreamSynchronize(void* s) { return note(sync_stream(s)); }
EXPORT int hipStreamWaitEvent(void* s, void* e, unsigned f) { return note(wait_event(s, e, f)); }
EXPORT int hipDeviceSynchronize(void) { run_stream(NULL); return note(current < 0 ? BAD_CONTEXT : OK); }
EXPORT int hipEventCreateWithFlags(void** e, unsigned f) { return note(make_event(e, f)); }
EXPORT int hipEventDestroy(void* e) { return note(drop(EVENT, e, 0)); }
EXPORT int hipEventRecord(void* e, void* s) { return note(record_event(e, s)); }
EXPORT int hipEventSynchronize(void* e) { return note(sync_event(e)); }
EXPORT int hipEventElapsedTime(float* ms, void* a, void* b) { return note(elapsed(ms, a, b)); }
#ifndef NO_GRAPHS
EXPORT int hipStreamBeginCapture(void* s, int mode) { return note(begin_capture(s, mode)); }
EXPORT int hipStreamEndCapture(void* s, void** graph) { return note(end_capture(s, graph)); }
EXPORT int hipGraphInstantiateWithFlags(void** exec, void* graph, unsigned long long f) { return note(f ? INVALID : instantiate(exec, graph)); }
EXPORT int hipGraphLaunch(void* exec, void* s) { return note(launch_exec(exec, s)); }
EXPORT int hipGraphDestroy(void* graph) { return note(drop_graph(GRAPH, graph)); }
EXPORT int hipGraphExecDestroy(void* exec) { return note(drop_graph(EXEC, exec)); }
#endif
#ifndef NO_POOLS
EXPORT int hipMemPoolCreate(void** p, const void* props) { return note(pool_create(p, props)); }
EXPORT int hipMemPoolDestroy(void* p) { return note(pool_trim(p, 0) ? INVALID : drop(POOL, p, 0)); }
EXPORT int hipMemPoolSetAttribute(void* p, int a, void* v) { return note(pool_set(p, a, v)); }
EXPORT int hipMemPoolGetAttribute(void* p, int a, void* v) { return note(pool_get(p, a, v)); }
EXPORT int hipMemPoolTrimTo(void* p, size_t keep) { return note(pool_trim(p, keep)); }
EXPORT int hipMallocFromPoolAsync(void** out, size_t n, void* p, void* s) { return note(pool_alloc(out, n, p, s)); }
EXPORT int hipFreeAsync(void* p, void* s) { return note(pool_free(p, s)); }
#endif
