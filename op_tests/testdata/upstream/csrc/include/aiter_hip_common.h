// A small tree with the layout and the macros of AIter, for tests without its checkout.
#pragma once
#include <hip/hip_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <stdexcept>
#include <string>
#ifdef AITER_EMBEDDED_HSA_HEADER
#include AITER_EMBEDDED_HSA_HEADER
#endif

namespace aiter_detail {
inline thread_local bool g_aiter_can_throw = false;
}

// Both end the process unless an adapter replaces them.
#define AITER_CHECK(x, ...)         \
  do {                              \
    if (!(x)) {                     \
      std::cerr << #x << std::endl; \
      std::abort();                 \
    }                               \
  } while (0)
#define HIP_CALL(call)                              \
  do {                                              \
    if ((call) != hipSuccess) {                     \
      std::cerr << "failed: " #call << std::endl;   \
      std::abort();                                 \
    }                                               \
  } while (0)
#define HIP_CALL_LAUNCH(call) HIP_CALL(call)

typedef enum {
  AITER_DTYPE_fp8,
  AITER_DTYPE_fp8_e8m0,
  AITER_DTYPE_fp16,
  AITER_DTYPE_bf16,
  AITER_DTYPE_fp32,
  AITER_DTYPE_i4x2,
  AITER_DTYPE_fp4x2,
  AITER_DTYPE_u32,
  AITER_DTYPE_i32,
  AITER_DTYPE_i16,
  AITER_DTYPE_i8,
  AITER_DTYPE_u8,
  AITER_DTYPE_i64,
  AITER_DTYPE_u64,
} AiterDtype;

#ifdef AITER_EMBEDDED_HSA_MAP
struct AiterAsmKernelArgs {
  void* args_ptr;
  size_t* arg_size_ptr;
  int gdx, gdy, gdz, bdx, bdy, bdz;
  const hipStream_t stream;
};

extern "C" {
void* __hipRegisterFatBinary(const void* wrapper) noexcept;
void __hipRegisterFunction(void* module, const void* host, const char* device, const char* name, int threads, void*, void*, void*, void*,
                           void*) noexcept;
void __hipUnregisterFatBinary(void* module) noexcept;
}

static inline std::string get_gpu_arch() {
  hipDeviceProp_t of;
  int device;
  HIP_CALL(hipGetDevice(&device));
  HIP_CALL(hipGetDeviceProperties(&of, device));
  const std::string name = of.gcnArchName;
  return name.substr(0, name.find(':'));
}

namespace {
// A kernel of a code object, which the library contains or, as in AIter, the folder AITER_ASM_DIR.
class AiterAsmKernel {
 public:
  AiterAsmKernel(const char* name, const char* file) {
    const std::string path = "hsa/" + get_gpu_arch() + "/" + file;
    if (std::getenv("AITER_ASM_DIR")) std::abort();
    const auto found = AITER_EMBEDDED_HSA_MAP.find(path);
    AITER_CHECK(found != AITER_EMBEDDED_HSA_MAP.end());
    const struct {
      unsigned magic, version;
      const void* code;
      void* unused;
    } wrapper{0x48495046, 1, found->second.data(), nullptr};
    module_ = __hipRegisterFatBinary(&wrapper);
    __hipRegisterFunction(module_, this, name, name, -1, nullptr, nullptr, nullptr, nullptr, nullptr);
  }
  ~AiterAsmKernel() { __hipUnregisterFatBinary(module_); }
  AiterAsmKernel(const AiterAsmKernel&) = delete;

  void launch_kernel(const AiterAsmKernelArgs& a) {
    void* config[] = {HIP_LAUNCH_PARAM_BUFFER_POINTER, a.args_ptr, HIP_LAUNCH_PARAM_BUFFER_SIZE, a.arg_size_ptr, HIP_LAUNCH_PARAM_END};
    hipFunction_t kernel = nullptr;
    HIP_CALL(hipGetFuncBySymbol(&kernel, this));
    HIP_CALL_LAUNCH(hipModuleLaunchKernel(kernel, a.gdx, a.gdy, a.gdz, a.bdx, a.bdy, a.bdz, 0, a.stream, nullptr, config));
  }

 private:
  void* module_;
};
}  // namespace
#endif
