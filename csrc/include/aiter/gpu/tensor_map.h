// Copies of tiles between global and shared memory by the tensor memory accelerator of sm_90. A tensor map, which host code makes,
// describes the tensor. One thread starts the copy of a whole tile.
#pragma once

#include "launch.h"

#if AITER_CUDA
#if !defined(__CUDA_ARCH__)
#include <cuda.h>
#endif

namespace aiter {

// TensorMap describes rows of 16-bit elements as lines of 64 elements (128 bytes). A tile is adjacent lines of one row. In shared memory
// it has the layout of wgmma_columns (wgmma.h), swizzled in 128 bytes: vector v of the line at address 128 n has place v ^ (n % 8). Lines
// outside a row are loaded as zeros and are not stored.
struct alignas(128) TensorMap {
  unsigned char bytes[128];
};

// TensorRows is the tensor of a map: batch x dim rows of `lines` whole lines. Row (b, d) begins at the address data + b * batch_bytes +
// d * dim_bytes.
struct TensorRows {
  void* data;
  int64_t batch, dim, lines, batch_bytes, dim_bytes;
};

// make_tensor_map makes a map of tiles of `tile_lines` lines, at most 256. It reports whether the driver can describe the tensor. The
// driver requires addresses and distances that are multiples of 16 bytes, and distances below 2^40 bytes.
#if defined(__CUDA_ARCH__)
bool make_tensor_map(TensorMap* map, const TensorRows& of, int tile_lines);
#else
inline bool make_tensor_map(TensorMap* map, const TensorRows& of, int tile_lines) {
  using Encode = decltype(&cuTensorMapEncodeTiled);
  static const Encode encode = [] {
    void* f = nullptr;
    cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
    const cudaError_t e = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault, &found);
#else
    const cudaError_t e = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &f, cudaEnableDefault, &found);
#endif
    if (e != cudaSuccess) (void)gpu_last_error();  // clears it: the next caller must not find it
    return e == cudaSuccess && found == cudaDriverEntryPointSuccess ? reinterpret_cast<Encode>(f) : nullptr;
  }();
  const int64_t row = of.lines * 128, dim_bytes = of.dim > 1 ? of.dim_bytes : row, batch_bytes = of.batch > 1 ? of.batch_bytes : row;
  if (!encode || dim_bytes < 0 || batch_bytes < 0) return false;
  const cuuint64_t sizes[] = {64, cuuint64_t(of.lines), cuuint64_t(of.dim), cuuint64_t(of.batch)};
  const cuuint64_t distances[] = {128, cuuint64_t(dim_bytes), cuuint64_t(batch_bytes)};
  const cuuint32_t tile[] = {64, cuuint32_t(tile_lines), 1, 1}, steps[] = {1, 1, 1, 1};
  static_assert(sizeof(TensorMap) == sizeof(CUtensorMap) && alignof(TensorMap) >= alignof(CUtensorMap));
  const auto make = [&] {
    return encode(reinterpret_cast<CUtensorMap*>(map), CU_TENSOR_MAP_DATA_TYPE_UINT16, 4, of.data, sizes, distances, tile, steps,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  };
  CUresult result = make();
  if (result == CUDA_ERROR_INVALID_CONTEXT) {  // a thread has no context before its first call of the runtime that needs one
    int device = 0;
    if (cudaGetDevice(&device) == cudaSuccess && cudaSetDevice(device) == cudaSuccess) result = make();
    else (void)gpu_last_error();
  }
  return result == CUDA_SUCCESS;
}
#endif

#if __CUDA_ARCH__ >= 900
// load_tile starts to load the tile that begins with line `line`, which may be negative, of row (b, d). The current phase of `barrier` ends
// after the tile's bytes have arrived: the caller announces them with PhaseBarrier::arrive_with.
AITER_DEVICE void load_tile(uint32_t to, const TensorMap& map, int line, uint32_t d, uint32_t b, uint32_t barrier) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6];"
               ::"r"(to), "l"(&map), "r"(0), "r"(line), "r"(d), "r"(b), "r"(barrier) : "memory");
}
// load_bytes starts to load `bytes`, a multiple of 16, as load_tile does.
AITER_DEVICE void load_bytes(uint32_t to, const void* from, int bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               ::"r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}
// store_tile starts to store a tile. Each thread that wrote to the tile must have called wgmma_fence_shared (wgmma.h) and then passed a
// barrier together with the calling thread.
AITER_DEVICE void store_tile(uint32_t from, const TensorMap& map, int line, uint32_t d, uint32_t b) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%1, {%2, %3, %4, %5}], [%0];"
               ::"r"(from), "l"(&map), "r"(0), "r"(line), "r"(d), "r"(b) : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// wait_stores_read waits until all of this thread's stores have read shared memory. wait_stores waits until global memory has their tiles.
AITER_DEVICE void wait_stores_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
AITER_DEVICE void wait_stores() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
#endif

}  // namespace aiter
#endif
