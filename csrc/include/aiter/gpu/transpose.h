// Transposes matrices in global memory: neighbours along one dimension become neighbours along the other. Kernels that need adjacent
// positions thus compute tensors whose channels are adjacent.
//
// Tiling: a block one tile of 64 rows and of columns that are 128 bytes, through shared memory. A thread loads two vectors along a row,
// writes the words of each column, which are adjacent rows, and stores two vectors along a column.
// Banks: vector v of column c takes place v ^ c / (elements of a vector) % 8, so that the lanes of a warp have no bank conflicts.
// Bytes: the matrix once and its copy once, 16 bytes an instruction where lines are aligned.
#pragma once

#include "../gpu.h"

namespace aiter {

// TransposeMatrix is `batch` matrices: element (row, column) of one is at from + row * from_row + column * from_column and goes to
// to + row * to_row + column * to_column. Strides in elements.
struct TransposeMatrix {
  const void* from;
  void* to;
  int64_t from_batch, from_row, from_column, to_batch, to_row, to_column;
  bool from_vectors, to_vectors;  // neighbours along a row of `from`, along a column of `to`, are aligned vectors of 16 bytes
};

constexpr int kTransposeMatrices = 2;

// TransposeParams is the matrices of a launch, which have the same sizes. Rows behind `rows`, up to `padded`, become zeros.
struct TransposeParams {
  TransposeMatrix matrix[kTransposeMatrices];
  int64_t rows, columns, padded;
  int64_t row_tiles, column_tiles, tiles;  // tiles: of one matrix and batch, then of the launch
  int64_t batch;
  bool along_rows;  // neighbouring blocks take neighbouring tiles along the rows, not the columns
};

constexpr int kTransposeBits = 8, kTransposeThreads = 1 << kTransposeBits, kTransposeRows = 64, kTransposeLine = 128;

// TransposeTile is a block's tile of elements of kSize bytes.
template <int kSize> class TransposeTile {
 public:
  using T = std::conditional_t<kSize == 2, half_t, uint32_t>;  // bits of any type
  // kLineVecs is the vectors of a column.
  static constexpr int kVec = 16 / kSize, kColumns = kTransposeLine / kSize, kLineVecs = kTransposeRows / kVec;
  static constexpr int kWordRows = 4 / kSize, kEach = 2;                                             // rows of a word; vectors of a thread

  AITER_DEVICE explicit TransposeTile(uint32_t* memory) : memory_(memory), self_(int(threadIdx.x)) {}

  // load reads the tile from row `row` and column `column` on of a matrix of `rows` rows and `columns` columns.
  AITER_DEVICE void load(const TransposeMatrix& m, const T* from, int64_t row, int64_t column, int64_t rows, int64_t columns) const {
    const int vector = self_ & 7, rank = self_ >> 3;
    const int64_t left = columns - column - vector * kVec;
    int at[kEach];
    Vec<T, kVec> v[kEach];
    AITER_UNROLL
    for (int i = 0; i < kEach; i++) {
      at[i] = kSize == 2 ? kEach * rank + i : rank + i * (kTransposeThreads / 8);
      v[i].clear();
      if (row + at[i] >= rows || left <= 0) continue;
      const T* p = from + (row + at[i]) * m.from_row + (column + vector * kVec) * m.from_column;
      if (m.from_vectors && left >= kVec) v[i] = load_vec<T, kVec>(p);
      else load_elements(p, m.from_column, left < kVec ? int(left) : kVec, &v[i]);
    }
    AITER_UNROLL
    for (int c = 0; c < kVec; c++) {
      if constexpr (kSize == 2) {
        const uint32_t a = v[0].word[c / 2], b = v[1].word[c / 2];
        word(vector * kVec + c, at[0]) = c % 2 ? a >> 16 | (b & 0xffff0000u) : (a & 0xffffu) | b << 16;
      } else {
        AITER_UNROLL
        for (int i = 0; i < kEach; i++) word(vector * kVec + c, at[i]) = v[i].word[c];
      }
    }
  }

  // store writes the tile. Rows are those of the matrix and of its padding.
  AITER_DEVICE void store(const TransposeMatrix& m, T* to, int64_t row, int64_t column, int64_t rows, int64_t columns) const {
    AITER_UNROLL
    for (int i = 0; i < kEach; i++) {
      const int n = self_ + i * kTransposeThreads, vector = n % kLineVecs, c = n / kLineVecs;
      const int64_t left = rows - row - vector * kVec;
      if (column + c >= columns || left <= 0) continue;
      const auto v = *reinterpret_cast<const Vec<T, kVec>*>(&word(c, vector * kVec));
      T* p = to + (row + vector * kVec) * m.to_row + (column + c) * m.to_column;
      if (m.to_vectors && left >= kVec) store_vec(p, v);
      else store_elements(p, m.to_row, left < kVec ? int(left) : kVec, v);
    }
  }

 private:
  // word returns the word of a column that holds row `row`.
  AITER_DEVICE uint32_t& word(int column, int row) const {
    const int vector = row / kVec ^ (column / kVec & 7);
    return memory_[(column * kLineVecs + vector) * 4 + row % kVec / kWordRows];
  }
  static AITER_DEVICE void load_elements(const T* p, int64_t step, int n, Vec<T, kVec>* v) {
    cold_branch();
    AITER_ROLLED
    for (int k = 0; k < n; k++) v->or_at(k, load_vec<T, 1>(p + k * step).get(0));
  }
  static AITER_DEVICE void store_elements(T* p, int64_t step, int n, const Vec<T, kVec>& v) {
    cold_branch();
    AITER_UNROLL
    for (int k = 0; k < kVec; k++) {
      Vec<T, 1> one;
      one.clear();
      one.set(0, v.get(k));
      if (k < n) store_vec(p + k * step, one);
    }
  }

  uint32_t* memory_;
  int self_;
};

template <int kSize> __global__ void __launch_bounds__(kTransposeThreads) aiter_transpose_kernel(TransposeParams a) {
  if constexpr (AITER_KERNEL_CODE) {
    __shared__ uint32_t memory[kTransposeRows * kTransposeLine / 4] __attribute__((aligned(16)));
    static_assert(sizeof memory <= kMaxSharedBytes);
    using Tile = TransposeTile<kSize>;
    using T = typename Tile::T;
    const Tile tile(memory);
    for (int64_t n = blockIdx.x; n < a.tiles; n += gridDim.x) {
      const DivMod near = divmod(n, a.along_rows ? a.row_tiles : a.column_tiles);
      const DivMod far = divmod(near.quotient, a.along_rows ? a.column_tiles : a.row_tiles);
      const DivMod of = divmod(far.quotient, a.batch);
      const int64_t row = (a.along_rows ? near.remainder : far.remainder) * kTransposeRows;
      const int64_t column = (a.along_rows ? far.remainder : near.remainder) * Tile::kColumns;
      const TransposeMatrix& m = a.matrix[of.quotient];
      tile.load(m, static_cast<const T*>(m.from) + of.remainder * m.from_batch, row, column, a.rows, a.columns);
      block_barrier();
      tile.store(m, static_cast<T*>(m.to) + of.remainder * m.to_batch, row, column, a.padded, a.columns);
      block_barrier();
    }
  }
}

// launch_transpose transposes the first `count` matrices of a, whose sizes and strides are filled in.
template <int kSize> Status launch_transpose(TransposeParams a, int count, const OpStream& stream) {
  constexpr int64_t kColumns = TransposeTile<kSize>::kColumns;
  if (a.padded < a.rows) a.padded = a.rows;
  const auto aligned = [](const void* p, int64_t batch, int64_t line, int64_t step) {
    return step == 1 && (reinterpret_cast<uintptr_t>(p) | uintptr_t(batch * kSize) | uintptr_t(line * kSize)) % 16 == 0;
  };
  for (int i = 0; i < count; i++) {
    TransposeMatrix& m = a.matrix[i];
    m.from_vectors = aligned(m.from, m.from_batch, m.from_row, m.from_column);
    m.to_vectors = aligned(m.to, m.to_batch, m.to_column, m.to_row);
  }
  a.row_tiles = (a.padded + kTransposeRows - 1) / kTransposeRows, a.column_tiles = (a.columns + kColumns - 1) / kColumns;
  a.tiles = a.row_tiles * a.column_tiles * a.batch * count;
  if (a.tiles == 0) return Status();
  return launch(stream, aiter_transpose_kernel<kSize>, {grid_for(a.tiles), kTransposeThreads}, a);
}

}  // namespace aiter
