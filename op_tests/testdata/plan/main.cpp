// Prints how causal_conv1d_bwd divides channel-last problems among the blocks of GPUs: the blocks of a launch, and its waves (NVIDIA:
// warps) per SIMD unit (NVIDIA: scheduler). The kernels have 4 taps, and 4 channels per thread.
#include <stdio.h>

#include "../../../csrc/kernels/causal_conv1d/bwd/plan.h"

using namespace aiter::conv1d::bwd;
using aiter::conv1d::Topology;

namespace {

struct Gpu {
  const char* target;
  const char* name;
  Topology topology;
  bool amd;
};

// Each multiprocessor of these GPUs has four SIMD units (NVIDIA: schedulers).
constexpr Gpu kGpus[] = {
    {"gfx90a", "MI250X, one die", {110, 6, 0}, true}, {"gfx942", "MI300X", {304, 6, 0}, true},
    {"gfx950", "MI355X", {256, 6, 0}, true},          {"gfx1100", "RX 7900 XTX", {48, 5, 0}, true},
    {"gfx1201", "RX 9070 XT", {32, 5, 0}, true},      {"sm_90", "H200", {132, 5, 0}, false},
};

constexpr int kShapes[][3] = {{1, 8192, 16384}, {2, 4096, 4096}, {8, 2048, 1024}, {16, 2048, 4096}, {1, 768, 2048}, {2, 64, 128}};

void print(const Gpu& gpu, const int (&shape)[3], int size) {
  aiter::conv1d::Backward p{};
  p.batch = shape[0], p.dim = shape[1], p.seqlen = shape[2], p.width = 4;
  const int blocks = gpu.amd ? amd_blocks(amd_waves(4, 4, size, false)) : nvidia_blocks(4, 4, size);
  const KernelTraits kernel = {4, 4 * size, blocks, gpu.amd ? 1 : 8, !gpu.amd, false};
  const TilePlan plan = choose_tile_plan(p, kernel, gpu.topology);
  const double waves = double(plan.groups * plan.segments) * (kChannelLastThreads >> gpu.topology.warp_bits) / double(gpu.topology.multiprocessors * 4);
  const int lanes = 1 << gpu.topology.warp_bits, resident = blocks * kChannelLastThreads / lanes / 4;
  printf("%-8s %-16s %d bytes (%d, %d, %d): %lld blocks, %.2f waves of %d resident\n", gpu.target, gpu.name, size, shape[0], shape[1],
         shape[2], static_cast<long long>(plan.groups * plan.segments), waves, resident);
}

}  // namespace

int main() {
  for (const Gpu& gpu : kGpus)
    for (const auto& shape : kShapes)
      for (int size = 2; size <= 4; size += 2) print(gpu, shape, size);
}
