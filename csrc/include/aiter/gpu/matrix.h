// Products of tiles on matrix cores, 16-bit factors with float32 sums: MFMA (gfx90a, gfx942, gfx950), WMMA (gfx1100, gfx1201),
// mma.sync (NVIDIA GPUs from sm_80 on).
//
// A step computes D += A * B. A has kStep x kStep elements, B and D have kStep x 16; kStep is 16, on gfx950 also 32. The
// hardware fixes which lane holds which element, but the order of the contraction and of D's rows is free. MatrixStep orders
// them so that a lane owns neighbouring elements of a column, which one instruction loads or stores:
//
//   B[depth(lane) + i][column(lane, c)]   i < kDepthRun, c < kColumns   struct Right
//   D[row(lane) + i][column(lane, c)]     i < kRowRun                   struct Sums
//   A[left_row(lane, e)][depth(lane) + i] e < kParts                    struct Left
//
//              gfx90a, gfx942   gfx950, step 32   gfx1100   gfx1201   NVIDIA
//   kDepthRun  4                8                 16        8         4
//   kRowRun    4                8                 8         8         4
//   kColumns   1                1                 1         1         2
//   kParts     1                2                 1         1         2
//
// transpose exchanges the two indices of a Right: the result is a factor whose contraction runs over the columns.
#pragma once

#include "vec.h"
#include "warp.h"

namespace aiter {

// AITER_MATRIX_CORES: the GPU multiplies tiles.
#if defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__)
#define AITER_MFMA 1
#elif defined(__gfx1100__) || defined(__gfx1101__) || defined(__gfx1102__) || \
    defined(__gfx1103__) || defined(__gfx1150__) || defined(__gfx1151__)
#define AITER_WMMA 11
#elif defined(__gfx1200__) || defined(__gfx1201__)
#define AITER_WMMA 12
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define AITER_MMA_SYNC 1
#endif
#ifndef AITER_MFMA
#define AITER_MFMA 0
#endif
#ifndef AITER_WMMA
#define AITER_WMMA 0
#endif
#ifndef AITER_MMA_SYNC
#define AITER_MMA_SYNC 0
#endif
#define AITER_MATRIX_CORES (AITER_MFMA || AITER_WMMA || AITER_MMA_SYNC)

// kMatrixStep is the step with the widest loads.
#if defined(__gfx950__)
constexpr int kMatrixStep = 32;
#else
constexpr int kMatrixStep = 16;
#endif

// MatrixShape is how the lanes of a warp own the elements of a step.
template <int kStep> struct MatrixShape {
  static_assert(kStep == 16 || kStep == kMatrixStep, "a step that the GPU has");
#if AITER_MFMA
  static constexpr int kLanes = 64, kDepthRun = kStep / 4, kRowRun = kStep / 4, kColumns = 1, kParts = kStep / 16;
#elif AITER_WMMA == 11
  static constexpr int kLanes = 32, kDepthRun = 16, kRowRun = 8, kColumns = 1, kParts = 1;
#elif AITER_WMMA == 12
  static constexpr int kLanes = 32, kDepthRun = 8, kRowRun = 8, kColumns = 1, kParts = 1;
#else
  static constexpr int kLanes = 32, kDepthRun = 4, kRowRun = 4, kColumns = 2, kParts = 2;
#endif

  // depth and row return the first of a lane's elements of B and D.
  static AITER_DEVICE int depth(int lane) {
    if (AITER_MMA_SYNC) return (lane & 3) * kDepthRun;
    return AITER_WMMA == 11 ? 0 : (lane >> 4) * kDepthRun;
  }
  static AITER_DEVICE int row(int lane) { return (AITER_MMA_SYNC ? lane & 3 : lane >> 4) * kRowRun; }

  // column returns a lane's column c of B and D.
  static AITER_DEVICE int column(int lane, int c) { return AITER_MMA_SYNC ? (lane >> 2) + 8 * c : lane & 15; }

  // transposed_row and transposed_column return the row i and the column c of a lane's sums whose two factors transpose made.
  static AITER_DEVICE int transposed_row(int lane, int i) { return AITER_WMMA == 11 ? 2 * i + (lane >> 4) : row(lane) + i; }
  static AITER_DEVICE int transposed_column(int lane, int c) {
    const int g = lane >> 2;
    return AITER_MMA_SYNC ? 4 * (g >> 1) + (g & 1) + 2 * c : lane & 15;
  }

  // left_row returns the row of A whose elements a lane holds in part e.
  static AITER_DEVICE int left_row(int lane, int e) {
    if (AITER_MMA_SYNC) return 4 * (lane >> 3) + 2 * e + (lane >> 2 & 1);
    const int i = lane & 15;
    if (AITER_WMMA == 11) return 8 * (i & 1) + (i >> 1);
    return kParts == 2 ? 8 * (i >> 2) + 4 * e + (i & 3) : i;
  }
};

template <class T, int kStep = kMatrixStep> struct MatrixStep : MatrixShape<kStep> {
  static_assert(sizeof(T) == 2, "half_t or bf16_t");
  using Shape = MatrixShape<kStep>;
  using Run = Vec<T, Shape::kDepthRun>;

  struct Left {
    Run part[Shape::kParts];
  };
  struct Right {
    Run column[Shape::kColumns];
  };
  struct Sums {
    float column[Shape::kColumns][Shape::kRowRun];

    AITER_DEVICE void fill(float v) {
      AITER_UNROLL
      for (int c = 0; c < Shape::kColumns; c++) {
        AITER_UNROLL
        for (int i = 0; i < Shape::kRowRun; i++) column[c][i] = v;
      }
    }
  };
  // Transposed is a Right whose indices are exchanged. left and right return it as a factor. Two transposed factors contract over the
  // columns of the original ones.
  struct Transposed {
    uint32_t word[Shape::kColumns * Run::kWords];

    AITER_DEVICE Left left() const;
    AITER_DEVICE Right right() const;
  };

  static AITER_DEVICE void multiply(const Left& a, const Right& b, Sums* d);
  static AITER_DEVICE Transposed transpose(const Right& f);
};

#if AITER_MFMA || AITER_WMMA
// The types of factors and sums in the compilers' built-in functions.
template <class T> struct MatrixElement;
template <> struct MatrixElement<half_t> { typedef _Float16 type; };
#if defined(__gfx950__)
template <> struct MatrixElement<bf16_t> { typedef __bf16 type; };
#else
template <> struct MatrixElement<bf16_t> { typedef short type; };
#endif

// matrix_multiply returns d + a * b of one instruction. N is the number of a lane's elements of a factor.
template <class T, int N, int M> AITER_DEVICE void matrix_multiply(const Vec<T, N>& a, const Vec<T, N>& b, float (&d)[M]) {
  typedef float Sum __attribute__((ext_vector_type(M)));
  Sum s;
  __builtin_memcpy(&s, d, sizeof s);
#if defined(__gfx950__)
  if constexpr (N == 8) {
    typedef typename MatrixElement<T>::type Factor __attribute__((ext_vector_type(N)));
    const Factor x = __builtin_bit_cast(Factor, a.word), y = __builtin_bit_cast(Factor, b.word);
    if constexpr (kIsBf16<T>) s = __builtin_amdgcn_mfma_f32_16x16x32_bf16(x, y, s, 0, 0, 0);
    else s = __builtin_amdgcn_mfma_f32_16x16x32_f16(x, y, s, 0, 0, 0);
    __builtin_memcpy(d, &s, sizeof s);
    return;
  }
#endif
  if constexpr (kIsBf16<T>) {
    typedef short Factor __attribute__((ext_vector_type(N)));
    const Factor x = __builtin_bit_cast(Factor, a.word), y = __builtin_bit_cast(Factor, b.word);
#if AITER_MFMA
    if constexpr (N == 4) s = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(x, y, s, 0, 0, 0);
#elif AITER_WMMA == 11
    s = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(x, y, s);
#else
    s = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(x, y, s);
#endif
  } else {
    typedef _Float16 Factor __attribute__((ext_vector_type(N)));
    const Factor x = __builtin_bit_cast(Factor, a.word), y = __builtin_bit_cast(Factor, b.word);
#if AITER_MFMA
    if constexpr (N == 4) s = __builtin_amdgcn_mfma_f32_16x16x16f16(x, y, s, 0, 0, 0);
#elif AITER_WMMA == 11
    s = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(x, y, s);
#else
    s = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(x, y, s);
#endif
  }
  __builtin_memcpy(d, &s, sizeof s);
}

template <class T, int kStep> AITER_DEVICE void MatrixStep<T, kStep>::multiply(const Left& a, const Right& b, Sums* d) {
  constexpr int kEach = Shape::kRowRun / Shape::kParts;
  AITER_UNROLL
  for (int e = 0; e < Shape::kParts; e++) {
    float sums[kEach];
    __builtin_memcpy(sums, d->column[0] + e * kEach, sizeof sums);
    matrix_multiply(a.part[e], b.column[0], sums);
    __builtin_memcpy(d->column[0] + e * kEach, sums, sizeof sums);
  }
}

// A product with the identity is exact, and a lane's sums are what it holds of the transposed factor: column and row of D are
// lane and element.
template <class T, int kStep> AITER_DEVICE typename MatrixStep<T, kStep>::Transposed MatrixStep<T, kStep>::transpose(const Right& f) {
  static_assert(kStep == 16, "sums have 16 rows of the transposed factor");
  constexpr uint32_t kOne = kIsBf16<T> ? 0x3f80 : 0x3c00;
  const int lane = int(threadIdx.x) & (Shape::kLanes - 1);
  Run identity;
  identity.clear();
  identity.or_at((lane & 15) - Shape::depth(lane), T{uint16_t(kOne)});
  float sums[Shape::kRowRun] = {};
  matrix_multiply(f.column[0], identity, sums);
  Transposed t;
  constexpr int kOwn = Shape::kRowRun / 2;
  AITER_UNROLL
  for (int i = 0; i < kOwn; i++) t.word[i] = pack_word<T>(sums + 2 * i);
#if AITER_WMMA == 11
  // Both halves of the wave hold all columns: the first half's, then the second half's.
  uint32_t low = 0x76543210, high = 0xfedcba98;
  asm("" : "+s"(low), "+s"(high));
  const bool second = lane & 16;
  AITER_UNROLL
  for (int i = 0; i < kOwn; i++) {
    const uint32_t own = t.word[i], other = __builtin_amdgcn_permlanex16(own, own, low, high, false, false);
    t.word[i] = second ? other : own, t.word[i + kOwn] = second ? own : other;
  }
#endif
  return t;
}

template <class T, int kStep> AITER_DEVICE typename MatrixStep<T, kStep>::Left MatrixStep<T, kStep>::Transposed::left() const {
  Left f;
  __builtin_memcpy(&f, word, sizeof f);
  return f;
}
template <class T, int kStep> AITER_DEVICE typename MatrixStep<T, kStep>::Right MatrixStep<T, kStep>::Transposed::right() const {
  Right f;
  __builtin_memcpy(&f, word, sizeof f);
  return f;
}
#elif AITER_MMA_SYNC
// The instruction's A is our B: its rows are the columns, and the halves of its depth are a lane's words. Its B is one part of our A.
template <class T> AITER_DEVICE void matrix_multiply(const Vec<T, 4>& a, const Vec<T, 4> (&b)[2], float* d0, float* d1) {
#define AITER_MMA(type)                                                                                          \
  asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
      : "+f"(d0[0]), "+f"(d0[1]), "+f"(d1[0]), "+f"(d1[1])                                                        \
      : "r"(b[0].word[0]), "r"(b[1].word[0]), "r"(b[0].word[1]), "r"(b[1].word[1]), "r"(a.word[0]), "r"(a.word[1]))
  if constexpr (kIsBf16<T>) AITER_MMA("bf16");
  else AITER_MMA("f16");
#undef AITER_MMA
}

template <class T, int kStep> AITER_DEVICE void MatrixStep<T, kStep>::multiply(const Left& a, const Right& b, Sums* d) {
  AITER_UNROLL
  for (int e = 0; e < 2; e++) matrix_multiply(a.part[e], b.column, d->column[0] + 2 * e, d->column[1] + 2 * e);
}

// movmatrix transposes 8 x 8 elements.
template <class T, int kStep> AITER_DEVICE typename MatrixStep<T, kStep>::Transposed MatrixStep<T, kStep>::transpose(const Right& f) {
  Transposed t;
  AITER_UNROLL
  for (int c = 0; c < 2; c++) {
    AITER_UNROLL
    for (int i = 0; i < 2; i++)
      asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(t.word[2 * i + c]) : "r"(f.column[c].word[i]));
  }
  return t;
}

// Word 2i+c holds the positions of word i, and the columns 8c.. of the original factor.
template <class T, int kStep> AITER_DEVICE typename MatrixStep<T, kStep>::Left MatrixStep<T, kStep>::Transposed::left() const {
  Left f;
  AITER_UNROLL
  for (int e = 0; e < 2; e++) f.part[e].word[0] = word[2 * e], f.part[e].word[1] = word[2 * e + 1];
  return f;
}
template <class T, int kStep> AITER_DEVICE typename MatrixStep<T, kStep>::Right MatrixStep<T, kStep>::Transposed::right() const {
  Right f;
  AITER_UNROLL
  for (int c = 0; c < 2; c++) f.column[c].word[0] = word[2 * c], f.column[c].word[1] = word[2 * c + 1];
  return f;
}
#endif

}  // namespace aiter
