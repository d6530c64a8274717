// Convolves 1 2 3 4 on the CPU with TVM FFI's own loader. The library is the one that Go and Python load.
//
//   c++ -std=c++17 -o conv1d examples/cpp/conv1d.cpp -ltvm_ffi
//   ./conv1d MODULE.so        # the path that `aiterctl build module_causal_conv1d --arch cpu` prints
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>

#include <cstdio>
#include <cstdlib>
#include <initializer_list>

namespace ffi = tvm::ffi;

struct HostMemory {
  void AllocData(DLTensor* t) { t->data = std::calloc(1, ffi::GetDataSize(*t)); }
  void FreeData(DLTensor* t) { std::free(t->data); }
};

static ffi::Tensor tensor(ffi::Shape shape, std::initializer_list<float> values) {
  ffi::Tensor t = ffi::Tensor::FromNDAlloc(HostMemory(), shape, DLDataType{kDLFloat, 32, 1}, DLDevice{kDLCPU, 0});
  float* to = static_cast<float*>(t.data_ptr());
  for (float v : values) *to++ = v;
  return t;
}

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s MODULE.so, the path that `aiterctl build module_causal_conv1d --arch cpu` prints\n", argv[0]);
    return 2;
  }
  try {
    ffi::Module module = ffi::Module::LoadFromFile(argv[1]);
    ffi::Function conv = module->GetFunction("causal_conv1d_fwd").value();
    ffi::Tensor x = tensor({1, 1, 4}, {1, 2, 3, 4}), weight = tensor({1, 2}, {10, 1}), out = tensor({1, 1, 4}, {});
    conv(out, x, weight);
    const float* y = static_cast<const float*>(out.data_ptr());
    std::printf("%g %g %g %g\n", y[0], y[1], y[2], y[3]);
    conv(out, x, tensor({2, 2}, {1, 1, 1, 1}));
  } catch (const ffi::Error& e) {
    std::printf("refused: %s\n", e.message().c_str());
  }
  return 0;
}
