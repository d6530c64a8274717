// A HIP runtime over host memory (device/testdata/fakehip.c) that records launches of code objects instead of running them. The folder
// AITER_FAKE_LAUNCHES receives a line for each in the file "log": the kernel, the grid, the block, the arguments in hexadecimal; and the
// code object of line N as the file "N.co". A launch fails while the folder has a file "fail".
#include "../../device/testdata/fakehip.c"

#include <unistd.h>

#define MOST 4096
struct wrapper { uint32_t magic, version; const unsigned char* code; void* unused; };
static struct { const void* host; const unsigned char* code; const char* name; } kernels[MOST];
static int registered, launched;

static FILE* in_folder(const char* name, const char* mode) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", getenv("AITER_FAKE_LAUNCHES"), name);
  return fopen(path, mode);
}

EXPORT void* __hipRegisterFatBinary(const struct wrapper* w) { return w->magic == 0x48495046 ? (void*)w->code : NULL; }
EXPORT void __hipUnregisterFatBinary(void* module) { (void)module; }
EXPORT void __hipRegisterFunction(void* module, const void* host, const char* device, const char* name) {
  (void)device;
  if (registered == MOST) return;
  kernels[registered].host = host, kernels[registered].code = module, kernels[registered].name = name;
  registered++;
}
EXPORT int hipGetDevice(int* d) { *d = current < 0 ? 0 : current; return OK; }
EXPORT int hipDeviceGetAttribute(int* v, int attribute, int d) { (void)attribute, (void)d; *v = 65536; return OK; }
EXPORT int hipMemsetAsync(void* d, int v, size_t n, void* stream) { return valid_stream(stream) ? fill(d, v, n) : BAD_HANDLE; }
EXPORT int hipGetFuncBySymbol(void** f, const void* host) {
  for (int i = registered; i-- > 0;)
    if (kernels[i].host == host) { *f = &kernels[i]; return OK; }
  return INVALID;
}

static uint64_t number(const unsigned char* at, int bytes) {
  uint64_t v = 0;
  while (bytes--) v = v << 8 | at[bytes];
  return v;
}

EXPORT int hipModuleLaunchKernel(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned lds,
                                 void* stream, void** params, void** extra) {
  (void)lds, (void)stream;
  FILE* fail = in_folder("fail", "r");
  if (fail) { fclose(fail); return LOST; }
  int k = (int)((char*)f - (char*)kernels) / (int)sizeof kernels[0];
  if (k < 0 || k >= registered || params || !extra || extra[0] != (void*)1 || extra[2] != (void*)2 || extra[4] != (void*)3) return INVALID;
  FILE* log = in_folder("log", "a");
  fprintf(log, "%s %u %u %u %u %u %u ", kernels[k].name, gx, gy, gz, bx, by, bz);
  for (size_t i = 0; i < *(size_t*)extra[3]; i++) fprintf(log, "%02x", ((unsigned char*)extra[1])[i]);
  fprintf(log, "\n");
  fclose(log);
  char name[32];
  snprintf(name, sizeof name, "%d.co", launched++);
  FILE* code = in_folder(name, "w");  // an ELF file usually ends with its table of sections
  const unsigned char* elf = kernels[k].code;
  fwrite(elf, 1, number(elf + 40, 8) + number(elf + 58, 2) * number(elf + 60, 2), code);
  fclose(code);
  return OK;
}
