// The functions of libcuda that the CUDA driver calls, over fakegpu.h. Device handles
// and contexts differ from indices, so that a call that confuses them fails.
#include "fakegpu.h"
#include <stdio.h>

static int retained[DEVICES ? DEVICES : 1];
enum { HANDLE = 7000, CONTEXT = 9000 };
static int valid(int handle) { return handle >= HANDLE && handle < HANDLE + DEVICES; }

EXPORT int cuInit(unsigned f) { return f ? INVALID : INIT_ERROR; }
EXPORT int cuDeviceGetCount(int* n) { *n = DEVICES; return OK; }
EXPORT int cuDeviceGet(int* d, int i) { if (i < 0 || i >= DEVICES) return BAD_DEVICE; *d = HANDLE + i; return OK; }
EXPORT int cuDriverGetVersion(int* version) { *version = 12080; return OK; }
EXPORT int cuDeviceGetName(char* p, int n, int d) { if (!valid(d)) return BAD_DEVICE; snprintf(p, n, "Fake Hopper %d", d - HANDLE); return OK; }
EXPORT int cuDeviceTotalMem_v2(size_t* n, int d) { if (!valid(d)) return BAD_DEVICE; *n = (size_t)(d - HANDLE + 1) << 33; return OK; }
EXPORT int cuDeviceGetAttribute(int* v, int a, int d) {
  if (!valid(d)) return INVALID;
  switch (a) {
    case 13: *v = 1980000; return OK;
    case 16: *v = 132 + d - HANDLE; return OK;
    case 75: *v = 9; return OK;
    case 76: *v = d - HANDLE; return OK;  // 9.0, 9.1
  }
  return INVALID;
}
EXPORT int cuDevicePrimaryCtxRetain(void** c, int d) {
  if (!valid(d)) return BAD_DEVICE;
  retained[d - HANDLE]++;
  *c = (void*)(uintptr_t)(CONTEXT + d - HANDLE);
  return OK;
}
EXPORT int cuDevicePrimaryCtxRelease_v2(int d) { if (!valid(d) || !retained[d - HANDLE]) return BAD_DEVICE; retained[d - HANDLE]--; return OK; }
EXPORT int cuCtxSetCurrent(void* c) {
  int i = (int)((uintptr_t)c - CONTEXT);
  if (i < 0 || i >= DEVICES || !retained[i]) return BAD_CONTEXT;
  current = i; return OK;
}
EXPORT int cuCtxSynchronize(void) { run_stream(NULL); return current < 0 ? BAD_CONTEXT : OK; }
EXPORT int cuGetErrorName(int code, const char** s) {
  *s = code == NO_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : NULL;
  return *s ? OK : INVALID;
}
EXPORT int cuGetErrorString(int code, const char** s) {
  *s = code == NO_MEMORY ? "out of memory" : NULL;
  return *s ? OK : INVALID;
}

EXPORT int cuMemAlloc_v2(void** p, size_t n) { return n % 16 ? INVALID : make(MEMORY, p, n); }
EXPORT int cuMemFree_v2(void* p) { return free_memory(p); }
EXPORT int cuMemAllocManaged(void** p, size_t n, unsigned f) { return f == 1 ? make(MEMORY, p, n) : INVALID; }
EXPORT int cuMemHostAlloc(void** p, size_t n, unsigned f) { return f == 1 ? make(PINNED, p, n) : INVALID; }
EXPORT int cuMemFreeHost(void* p) { return drop(PINNED, p, 1); }
EXPORT int cuMemcpyHtoD_v2(void* d, const void* s, size_t n) { return to_device(d, s, n); }
EXPORT int cuMemcpyDtoH_v2(void* d, const void* s, size_t n) { return to_host(d, s, n); }
EXPORT int cuMemcpyDtoD_v2(void* d, const void* s, size_t n) { return within(d, s, n); }
EXPORT int cuMemcpyPeer(void* d, void* dc, const void* s, void* sc, size_t n) {
  struct thing *to = find(MEMORY, d, n), *from = find(MEMORY, s, n);
  if (!to || !from || (uintptr_t)dc != (uintptr_t)(CONTEXT + to->device) || (uintptr_t)sc != (uintptr_t)(CONTEXT + from->device)) return INVALID;
  return across(d, s, n);
}
EXPORT int cuMemcpyAsync(void* d, const void* s, size_t n, void* stream) { return async_copy(d, s, n, stream); }
// CUDA_MEMCPY2D of cuda.h.
struct side { size_t x, y; int kind; const void* host; uintptr_t device; void* array; size_t pitch; };
struct rows { struct side src, dst; size_t width, height; };
EXPORT int cuMemcpy2DAsync_v2(const struct rows* r, void* stream) {
  const void* at[2];
  const struct side* sides[] = {&r->src, &r->dst};
  for (int i = 0; i < 2; i++) {
    const struct side* s = sides[i];
    if (s->x || s->y || s->array || (s->kind != 1 && s->kind != 2)) return INVALID;
    at[i] = s->kind == 1 ? s->host : (const void*)s->device;
    if (!at[i] || device_memory(at[i]) != (s->kind == 2)) return INVALID;
  }
  return async_rows((char*)at[1], r->dst.pitch, at[0], r->src.pitch, r->width, r->height, stream);
}
EXPORT int cuMemsetD8_v2(void* d, unsigned char v, size_t n) { return fill(d, v, n); }
EXPORT int cuStreamCreate(void** s, unsigned f) { return f > 1 ? INVALID : make(STREAM, s, 1); }
EXPORT int cuStreamDestroy_v2(void* s) { return drop(STREAM, s, 0); }
EXPORT int cuStreamSynchronize(void* s) { return sync_stream(s); }
EXPORT int cuStreamWaitEvent(void* s, void* e, unsigned f) { return wait_event(s, e, f); }
EXPORT int cuEventCreate(void** e, unsigned f) { return make_event(e, f); }
EXPORT int cuEventDestroy_v2(void* e) { return drop(EVENT, e, 0); }
EXPORT int cuEventRecord(void* e, void* s) { return record_event(e, s); }
EXPORT int cuEventSynchronize(void* e) { return sync_event(e); }
EXPORT int cuEventElapsedTime(float* ms, void* a, void* b) { return elapsed(ms, a, b); }
EXPORT int fake_retained(int device) { return retained[device]; }
EXPORT int cuStreamBeginCapture_v2(void* s, int mode) { return begin_capture(s, mode); }
EXPORT int cuStreamEndCapture(void* s, void** graph) { return end_capture(s, graph); }
EXPORT int cuGraphInstantiateWithFlags(void** exec, void* graph, unsigned long long f) { return f ? INVALID : instantiate(exec, graph); }
EXPORT int cuGraphLaunch(void* exec, void* s) { return launch_exec(exec, s); }
EXPORT int cuGraphDestroy(void* graph) { return drop_graph(GRAPH, graph); }
EXPORT int cuGraphExecDestroy(void* exec) { return drop_graph(EXEC, exec); }
EXPORT int cuMemPoolCreate(void** p, const void* props) { return pool_create(p, props); }
EXPORT int cuMemPoolDestroy(void* p) { return pool_trim(p, 0) ? INVALID : drop(POOL, p, 0); }
EXPORT int cuMemPoolSetAttribute(void* p, int a, void* v) { return pool_set(p, a, v); }
EXPORT int cuMemPoolGetAttribute(void* p, int a, void* v) { return pool_get(p, a, v); }
EXPORT int cuMemPoolTrimTo(void* p, size_t keep) { return pool_trim(p, keep); }
EXPORT int cuMemAllocFromPoolAsync(void** out, size_t n, void* p, void* s) { return pool_alloc(out, n, p, s); }
EXPORT int cuMemFreeAsync(void* p, void* s) { return pool_free(p, s); }
