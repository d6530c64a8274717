// Products on the matrix cores of sm_90a, by a group of four warps: wgmma.
//
// D += A * B. D has 64 x N elements and is in registers. A has 64 x 16: in registers (wgmma) or in shared memory (wgmma_shared). B has
// 16 x N elements in shared memory. Warp w of the group has
// rows 16 w to 16 w + 15 of A and D. Lane 4g+t has the elements (g, 2t..), (g+8, 2t..), (g, 2t+8..) and (g+8, 2t+8..) of A, two in a word.
// It has the elements (g, 2t..) and (g+8, 2t..) of each block of 8 columns of D.
//
// Products run asynchronously until wgmma_wait. Until then nothing may write the registers and the shared memory that they use. Threads
// that wrote shared memory call wgmma_fence_shared before the barrier that precedes the products.
#pragma once

#include "codegen.h"
#include "vec.h"

namespace aiter {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
#if !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#error "sm_90 has no wgmma: compile for sm_90a (-gencode=arch=compute_90a,code=sm_90a), whose code every GPU of compute capability 9.0 runs"
#endif
#define AITER_WGMMA 1
#else
#define AITER_WGMMA 0
#endif

#if AITER_WGMMA
// wgmma_uniform returns an address that is equal in all lanes. ptxas computes descriptors from it in uniform registers, where products
// need them.
AITER_DEVICE uint32_t wgmma_uniform(uint32_t address) { return __shfl_sync(0xffffffffu, address, 0); }

// wgmma_columns returns the descriptor of B. Each column is a line of 128 bytes, in which vector v of 16 bytes has place v ^ (line % 8).
// Line 0 is at a multiple of 1024 bytes. address is that of the first of 16 adjacent elements of the first column.
AITER_DEVICE uint64_t wgmma_columns(uint32_t address) { return uint64_t(address >> 4) | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62; }

AITER_DEVICE void wgmma_fence_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// wgmma_copy copies a word of A before products begin. In C++ ptxas would copy it between them, and wait for the first one.
AITER_DEVICE void wgmma_copy(uint32_t& to, uint32_t from) { asm volatile("mov.b32 %0, %1;" : "=r"(to) : "r"(from)); }
AITER_DEVICE void wgmma_start() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
AITER_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// wgmma_wait waits until at most kPending groups of products are incomplete.
template <int kPending> AITER_DEVICE void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory"); }

// wgmma_rows returns the descriptor of B whose columns are adjacent in memory, in lines of 128 bytes, one a row, swizzled as those of
// wgmma_columns. Columns from 64 on of a row are in the next line, which is also the first line of the next row.
AITER_DEVICE uint64_t wgmma_rows(uint32_t address) { return wgmma_columns(address) | uint64_t(128 >> 4) << 16; }

// wgmma_blocks returns the descriptor of A of blocks of 8 x 8 elements, 128 bytes each with rows of 16 bytes. Blocks of the next rows are
// 128 bytes further, those of the next columns `columns` bytes.
AITER_DEVICE uint64_t wgmma_blocks(uint32_t address, uint32_t columns) {
  return uint64_t(address >> 4) | uint64_t(columns >> 4) << 16 | uint64_t(128 >> 4) << 32;
}

// wgmma_further returns the descriptor of what is `bytes` further.
AITER_DEVICE uint64_t wgmma_further(uint64_t descriptor, int bytes) {
  return descriptor >> 32 << 32 | uint32_t(uint32_t(descriptor) + uint32_t(bytes / 16));
}

// wgmma starts d += a * b. kN is the number of columns; a lane has kN / 2 elements of D. kRows: b is of wgmma_rows.
#define AITER_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define AITER_D8(i) AITER_D4(i), AITER_D4(i + 4)
#define AITER_D32(i) AITER_D8(i), AITER_D8(i + 8), AITER_D8(i + 16), AITER_D8(i + 24)
#define AITER_D36 AITER_D32(0), AITER_D4(32)
#define AITER_D40 AITER_D32(0), AITER_D8(32)
#define AITER_D48 AITER_D40, AITER_D8(40)
#define AITER_D64 AITER_D32(0), AITER_D32(32)
#define AITER_D96 AITER_D64, AITER_D32(64)
#define AITER_NAMES32                                                                                                        \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, " \
  "%26, %27, %28, %29, %30, %31"
#define AITER_NAMES36 AITER_NAMES32 ", %32, %33, %34, %35"
#define AITER_NAMES40 AITER_NAMES36 ", %36, %37, %38, %39"
#define AITER_NAMES48 AITER_NAMES40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define AITER_NAMES64 AITER_NAMES48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define AITER_NAMES96                                                                                                         \
  AITER_NAMES64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, " \
                "%85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define AITER_WGMMA_OF(type, n, names, factors, rows, ...)                                                                   \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type " {" names "}, " factors ", 1, 1, 1, " rows ";" \
               : __VA_ARGS__ : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
#define AITER_WGMMA_N(type)                                                                                                          \
  if constexpr (kN == 64) AITER_WGMMA_OF(type, "64", AITER_NAMES32, "{%32, %33, %34, %35}, %36", "0", AITER_D32(0));                 \
  else if constexpr (kN == 72) AITER_WGMMA_OF(type, "72", AITER_NAMES36, "{%36, %37, %38, %39}, %40", "0", AITER_D36);               \
  else if constexpr (kN == 80) AITER_WGMMA_OF(type, "80", AITER_NAMES40, "{%40, %41, %42, %43}, %44", "1", AITER_D40);               \
  else if constexpr (kN == 96) AITER_WGMMA_OF(type, "96", AITER_NAMES48, "{%48, %49, %50, %51}, %52", "1", AITER_D48);               \
  else if constexpr (kN == 128) AITER_WGMMA_OF(type, "128", AITER_NAMES64, "{%64, %65, %66, %67}, %68", "1", AITER_D64);             \
  else AITER_WGMMA_OF(type, "192", AITER_NAMES96, "{%96, %97, %98, %99}, %100", "1", AITER_D96)
template <class T, int kN, bool kRows = false> AITER_DEVICE void wgmma(const uint32_t (&a)[4], uint64_t b, float (&d)[kN / 2]) {
  static_assert(kRows ? kN == 80 || kN == 96 || kN == 128 || kN == 192 : kN == 64 || kN == 72, "a number of columns that is listed");
  if constexpr (kIsBf16<T>) { AITER_WGMMA_N("bf16"); }
  else { AITER_WGMMA_N("f16"); }
}

// wgmma_shared starts d = a * b, or, with add, d += a * b. Both factors are in shared memory. Without kRows a is a descriptor of
// wgmma_blocks and b one of wgmma_columns. With kRows both are of wgmma_rows: row k in memory has column k of A and row k of B.
#define AITER_WGMMA_SHARED(type, n, names, factors, adds, rows, ...)                                            \
  asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, " adds ", 0;\n"                                               \
               "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type " {" names "}, " factors ", p, 1, 1, " rows ", " rows ";\n}" \
               : __VA_ARGS__ : "l"(a), "l"(b), "r"(int(add)))
#define AITER_WGMMA_SHARED_N(type)                                                                                 \
  if constexpr (kN == 64) AITER_WGMMA_SHARED(type, "64", AITER_NAMES32, "%32, %33", "%34", "0", AITER_D32(0));     \
  else if constexpr (kN == 128) AITER_WGMMA_SHARED(type, "128", AITER_NAMES64, "%64, %65", "%66", "1", AITER_D64); \
  else AITER_WGMMA_SHARED(type, "192", AITER_NAMES96, "%96, %97", "%98", "1", AITER_D96)
template <class T, int kN, bool kRows = false>
AITER_DEVICE void wgmma_shared(uint64_t a, uint64_t b, float (&d)[kN / 2], bool add = true) {
  static_assert(kRows ? kN == 128 || kN == 192 : kN == 64, "a number of columns that is listed");
  if constexpr (kIsBf16<T>) { AITER_WGMMA_SHARED_N("bf16"); }
  else { AITER_WGMMA_SHARED_N("f16"); }
}
#undef AITER_WGMMA_SHARED_N
#undef AITER_WGMMA_SHARED
#undef AITER_WGMMA_N
#undef AITER_WGMMA_OF
#undef AITER_NAMES96
#undef AITER_NAMES64
#undef AITER_NAMES48
#undef AITER_NAMES40
#undef AITER_NAMES36
#undef AITER_NAMES32
#undef AITER_D96
#undef AITER_D64
#undef AITER_D48
#undef AITER_D40
#undef AITER_D36
#undef AITER_D32
#undef AITER_D8
#undef AITER_D4
#endif

}  // namespace aiter
