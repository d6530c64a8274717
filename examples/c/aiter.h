// Functions that call the operators of built modules from C (C11). They need only dlopen. Copy this file into a program.
//
//   aiterctl build module_rms_norm --arch cpu --json      # prints the paths of both libraries
//
//   if (!aiter_load_support(support_path)) ...             // once in a process, before the first module
//   void* module = dlopen(module_path, RTLD_NOW | RTLD_LOCAL);
//   AiterOp op = aiter_op(module, "rms_norm");
//   AiterAny args[] = {aiter_tensor(&out), aiter_tensor(&x), aiter_tensor(&weight), aiter_float(1e-6)};
//   if (aiter_call(op, args, 4, message, sizeof message) != 0) ...
//
// Link with -ldl if glibc is older than 2.34. A call on a GPU queues work on the stream that aiter_set_stream has set, or on the
// default stream, and does not wait for it. `aiterctl describe OPERATOR` prints the arguments of an operator.
#ifndef AITER_C_H
#define AITER_C_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

// DLPack's types: a tensor borrows its memory, shape and strides for a call. strides count elements; NULL means row-major.
typedef struct { int32_t device_type, device_id; } AiterDevice;          // type: 1 CPU, 2 CUDA, 10 ROCm
typedef struct { uint8_t code, bits; uint16_t lanes; } AiterDType;       // code: 0 int, 1 uint, 2 float, 4 bfloat, 6 bool
typedef struct {
  void* data;
  AiterDevice device;
  int32_t ndim;
  AiterDType dtype;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} AiterTensor;

static const AiterDType aiter_float32 = {2, 32, 1}, aiter_float16 = {2, 16, 1}, aiter_bfloat16 = {4, 16, 1}, aiter_int32 = {0, 32, 1};

// AiterAny is an argument or a result of a call: a value with the number of its type, as TVM FFI defines it.
typedef struct {
  int32_t type_index;
  uint32_t padding;
  union { int64_t integer; double real; const void* pointer; } value;
} AiterAny;

static inline AiterAny aiter_none(void) { AiterAny a = {0, 0, {0}}; return a; }
static inline AiterAny aiter_integer(int64_t v) { AiterAny a = {1, 0, {0}}; a.value.integer = v; return a; }
static inline AiterAny aiter_bool(int v) { AiterAny a = {2, 0, {0}}; a.value.integer = v != 0; return a; }
static inline AiterAny aiter_float(double v) { AiterAny a = {3, 0, {0}}; a.value.real = v; return a; }
static inline AiterAny aiter_tensor(const AiterTensor* t) { AiterAny a = {7, 0, {0}}; a.value.pointer = t; return a; }

typedef int (*AiterOp)(void* handle, const AiterAny* args, int32_t count, AiterAny* result);

// aiter_load_support loads the support library, whose functions the modules call. It returns 0 on failure; see dlerror.
static inline int aiter_load_support(const char* path) { return dlopen(path, RTLD_NOW | RTLD_GLOBAL) != NULL; }

// aiter_op returns an operator of a loaded module, NULL if the module does not have it.
static inline AiterOp aiter_op(void* module, const char* name) {
  char symbol[256];
  AiterOp op = NULL;
  if (snprintf(symbol, sizeof symbol, "__tvm_ffi_%s", name) >= (int)sizeof symbol) return NULL;
  *(void**)&op = dlsym(module, symbol);
  return op;
}

// aiter_set_stream sets the stream (cudaStream_t, hipStream_t) of this thread's calls on a device.
static inline int aiter_set_stream(int32_t device_type, int32_t device_id, void* stream) {
  int (*set)(int32_t, int32_t, void*, void**) = NULL;
  *(void**)&set = dlsym(RTLD_DEFAULT, "TVMFFIEnvSetStream");
  return set ? set(device_type, device_id, stream, NULL) : -1;
}

// aiter_call calls an operator. On failure it returns a number other than 0 and writes the reason to message.
static inline int aiter_call(AiterOp op, const AiterAny* args, int32_t count, char* message, size_t size) {
  AiterAny result = aiter_none();
  const int status = op(NULL, args, count, &result);
  if (size) message[0] = 0;
  if (status == 0) return 0;
  struct { uint64_t header[3]; const char* kind; size_t kind_size; const char* text; size_t text_size; }* error = NULL;
  void (*move)(void*) = NULL;
  int (*release)(void*) = NULL;
  *(void**)&move = dlsym(RTLD_DEFAULT, "TVMFFIErrorMoveFromRaised");
  *(void**)&release = dlsym(RTLD_DEFAULT, "TVMFFIObjectDecRef");
  if (move) move(&error);
  if (error) snprintf(message, size, "%.*s: %.*s", (int)error->kind_size, error->kind, (int)error->text_size, error->text);
  if (error && release) release(error);
  return status;
}

#endif
