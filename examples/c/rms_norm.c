// Normalizes two rows on the CPU with the library that `aiterctl build module_rms_norm` makes.
//
//   cc -std=c11 -o rms_norm examples/c/rms_norm.c
//   ./rms_norm SUPPORT.so MODULE.so
#include "aiter.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: %s SUPPORT.so MODULE.so, the paths that `aiterctl build module_rms_norm --arch cpu` prints\n", argv[0]);
    return 2;
  }
  void* module = aiter_load_support(argv[1]) ? dlopen(argv[2], RTLD_NOW | RTLD_LOCAL) : NULL;
  AiterOp op = module ? aiter_op(module, "rms_norm") : NULL;
  if (!op) {
    fprintf(stderr, "load rms_norm: %s\n", dlerror());
    return 1;
  }
  float x[2][4] = {{1, 2, 2, 4}, {3, 0, 0, 4}}, weight[4] = {1, 1, 2, 1}, out[2][4];
  int64_t rows[2] = {2, 4}, columns[1] = {4};
  const AiterDevice cpu = {1, 0};
  const AiterTensor to = {out, cpu, 2, aiter_float32, rows, NULL, 0}, from = {x, cpu, 2, aiter_float32, rows, NULL, 0};
  AiterTensor scale = {weight, cpu, 1, aiter_float32, columns, NULL, 0};
  const AiterAny args[] = {aiter_tensor(&to), aiter_tensor(&from), aiter_tensor(&scale), aiter_float(1e-6)};
  char message[512];
  if (aiter_call(op, args, 4, message, sizeof message) != 0) {
    fprintf(stderr, "%s\n", message);
    return 1;
  }
  for (int row = 0; row < 2; row++) printf("%.2f %.2f %.2f %.2f\n", out[row][0], out[row][1], out[row][2], out[row][3]);

  columns[0] = 3;  // a weight of another length is refused, and nothing is written
  printf("refused: %s\n", aiter_call(op, args, 4, message, sizeof message) ? message : "no");
  return 0;
}
