// Two kernels for the tests: a loop that moves 16 bytes a time, and one that spills.
extern "C" {
struct alignas(16) wide { unsigned word[4]; };
int hipLaunchKernel(const void *, unsigned __attribute__((ext_vector_type(3))), unsigned __attribute__((ext_vector_type(3))), void **, unsigned long, void *);

__attribute__((global)) void stream(wide *out, const wide *in, int n) {
  for (int i = __builtin_amdgcn_workitem_id_x(); i < n; i += 256) {
    wide w = in[i];
    for (int k = 0; k < 4; k++) w.word[k] += 1;
    out[i] = w;
  }
}

__attribute__((global)) void stack(int *out, int n) {
  volatile int private_memory[64];
  for (int i = 0; i < 64; i++) private_memory[i] = n + i;
  __attribute__((shared)) static int tile[256];
  tile[__builtin_amdgcn_workitem_id_x()] = private_memory[n & 63];
  __builtin_amdgcn_s_barrier();
  out[0] = tile[n & 255];
}
}
