// Matrices of 8 x 8 elements of 16 bits between shared memory and registers, four at a time: ldmatrix (sm_80 and later) and stmatrix
// (sm_90 and later). Code for other GPUs may name these functions, but must not call them.
//
// A matrix has 8 rows of 16 bytes. Lane 8i+r passes the address of row r of matrix i, a multiple of 16. Word i of lane 4g+t has elements
// 2t and 2t+1 of row g of matrix i; with kTransposed it has element g of rows 2t and 2t+1.
#pragma once

#include "vec.h"

namespace aiter {

// AITER_STMATRIX: the GPU has stmatrix.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define AITER_STMATRIX 1
#else
#define AITER_STMATRIX 0
#endif

template <bool kTransposed> AITER_DEVICE void load_matrices(uint32_t address, uint32_t (&v)[4]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define AITER_LDMATRIX(order)                                                            \
  asm volatile("ldmatrix.sync.aligned.m8n8.x4" order ".shared.b16 {%0, %1, %2, %3}, [%4];" \
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(address) : "memory")
  if constexpr (kTransposed) AITER_LDMATRIX(".trans");
  else AITER_LDMATRIX("");
#undef AITER_LDMATRIX
#else
  (void)address, (void)v;
#endif
}

template <bool kTransposed> AITER_DEVICE void store_matrices(uint32_t address, const uint32_t (&v)[4]) {
#if AITER_STMATRIX
#define AITER_STORE(order)                                                                 \
  asm volatile("stmatrix.sync.aligned.m8n8.x4" order ".shared.b16 [%0], {%1, %2, %3, %4};" \
               ::"r"(address), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]) : "memory")
  if constexpr (kTransposed) AITER_STORE(".trans");
  else AITER_STORE("");
#undef AITER_STORE
#else
  (void)address, (void)v;
#endif
}

}  // namespace aiter
