// The tables of two units, and a runtime library that prints what they register.
#define AITER_DEVICE_CODE unused
#include <stdint.h>
#include <stdio.h>

#include <aiter/cuda_host.h>

using namespace aiter::host_pass;
extern "C" {
void one();
void two();
void** __cudaRegisterFatBinary(void* wrapper) {
  printf("%s:", static_cast<const char*>(static_cast<FatBinary*>(wrapper)->data));
  return static_cast<void**>(wrapper);
}
void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*, int*) {
  const void* at = host;
  printf(" %s%s", name, at == reinterpret_cast<void*>(one) || at == reinterpret_cast<void*>(two) ? "" : "?");
}
void __cudaRegisterFatBinaryEnd(void**) { printf("\n"); }
void __cudaUnregisterFatBinary(void** handle) {
  printf("end of %s\n", static_cast<const char*>(reinterpret_cast<FatBinary*>(handle)->data));
}

static char one_name[] = "one", two_name[] = "two";
static const Kernel kernels[] = {{reinterpret_cast<void*>(one), one_name}, {reinterpret_cast<void*>(two), two_name}};
static const Shard first[] = {{"a", kernels, 1}}, second[] = {{"b", kernels + 1, 1}, {"c", kernels, 0}};
extern const DeviceCode code_one = {first, 1, 900}, code_two = {second, 2, 900}, unused = {nullptr, 0, 900};
}

int main() { return 0; }
