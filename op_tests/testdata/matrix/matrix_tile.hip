// Products of tiles on matrix cores, for the test of aiter/gpu/matrix.h.
#include <aiter/check.h>
#include <aiter/ffi.h>
#include <aiter/gpu.h>
#include <aiter/gpu/matrix.h>

namespace aiter::matrix_tile {

constexpr int kPitch = 32;  // elements between rows of a, columns of b, and columns of the results

// multiply stores 1 + A * B of one step, where 1 is added to each element. b and out are stored column by column.
template <class T, int kStep> AITER_DEVICE void multiply(const T* a, const T* b, float* out) {
  using M = MatrixStep<T, kStep>;
  const int lane = threadIdx.x;
  typename M::Left left;
  typename M::Right right;
  typename M::Sums sums;
  AITER_UNROLL
  for (int e = 0; e < M::kParts; e++) left.part[e] = load_vec<T, M::kDepthRun>(a + M::left_row(lane, e) * kPitch + M::depth(lane));
  AITER_UNROLL
  for (int c = 0; c < M::kColumns; c++) right.column[c] = load_vec<T, M::kDepthRun>(b + M::column(lane, c) * kPitch + M::depth(lane));
  sums.fill(1.0f);
  M::multiply(left, right, &sums);
  AITER_UNROLL
  for (int c = 0; c < M::kColumns; c++) {
    AITER_UNROLL
    for (int i = 0; i < M::kRowRun; i++) out[M::column(lane, c) * kPitch + M::row(lane) + i] = sums.column[c][i];
  }
}

// multiply_transposed stores the sum over columns j of a[j][row] * b[j][column].
template <class T> AITER_DEVICE void multiply_transposed(const T* a, const T* b, float* out) {
  using M = MatrixStep<T, 16>;
  const int lane = threadIdx.x;
  typename M::Right x, y;
  typename M::Sums sums;
  AITER_UNROLL
  for (int c = 0; c < M::kColumns; c++) {
    x.column[c] = load_vec<T, M::kDepthRun>(a + M::column(lane, c) * kPitch + M::depth(lane));
    y.column[c] = load_vec<T, M::kDepthRun>(b + M::column(lane, c) * kPitch + M::depth(lane));
  }
  sums.fill(0.0f);
  M::multiply(M::transpose(x).left(), M::transpose(y).right(), &sums);
  AITER_UNROLL
  for (int c = 0; c < M::kColumns; c++) {
    AITER_UNROLL
    for (int i = 0; i < M::kRowRun; i++) out[M::transposed_column(lane, c) * kPitch + M::transposed_row(lane, i)] = sums.column[c][i];
  }
}

template <class T> __global__ void matrix_tile_kernel(const T* a, const T* b, float* widest, float* narrow, float* transposed, int32_t* step) {
  if constexpr (kDeviceCode) {
#if AITER_MATRIX_CORES
    if (int(threadIdx.x) >= MatrixShape<16>::kLanes) return;
    multiply<T, kMatrixStep>(a, b, widest);
    multiply<T, 16>(a, b, narrow);
    multiply_transposed<T>(a, b, transposed);
    if (threadIdx.x == 0) *step = kMatrixStep;
#else
    *step = 0;
#endif
  }
}

template <class T> Status launch_tile(TensorView a, TensorView b, TensorView widest, TensorView narrow, TensorView transposed, TensorView step) {
  DeviceGuard guard;
  AITER_TRY(guard.enter(a.device()));
  const OpStream stream = {static_cast<gpu_stream_t>(TVMFFIEnvGetStream(a.device().type, a.device().id)), "matrix_tile"};
  const auto floats = [](TensorView& t) { return static_cast<float*>(t.data()); };
  return launch(stream, matrix_tile_kernel<T>, {1, 64}, static_cast<const T*>(a.data()), static_cast<const T*>(b.data()), floats(widest),
                floats(narrow), floats(transposed), static_cast<int32_t*>(step.data()));
}

static Status tile(TensorView widest, TensorView narrow, TensorView transposed, TensorView step, TensorView a, TensorView b) {
  if (a.dtype() == DType::F16) return launch_tile<half_t>(a, b, widest, narrow, transposed, step);
  return launch_tile<bf16_t>(a, b, widest, narrow, transposed, step);
}

}  // namespace aiter::matrix_tile

AITER_EXPORT(matrix_tile, matrix_tile::tile, arg("widest"), arg("narrow"), arg("transposed"), arg("step"), arg("a"), arg("b"))
