// The checks of tensors that the rope modules of AIter share.
#pragma once
#include "../check.h"

#include "kernels/rope/rope_common.h"  // of the checkout

// AIter compiles each kernel for all pairs of a type of the input and one of the tables. Here tables have the type of the input or
// float32, which takes half of the time. The code that AIter hands to this macro uses the names that the last line declares.
#undef DISPATCH_ROPE_TYPES_PARAMS
#define DISPATCH_ROPE_TYPES_PARAMS(type, table, style, reuse, last, name, ...)                                             \
  ::aiter::upstream::rope_dispatch(type, table, style, reuse, last, [&]<class A, class B, int32_t S, bool R, bool L>() {   \
    using scalar_t_0 = A;                                                                                                  \
    using scalar_t_1 = B;                                                                                                  \
    constexpr int32_t RotateStyle = S;                                                                                     \
    [[maybe_unused]] constexpr bool ReuseFreqsFrontPart = R, NopeFirst = L;                                                \
    __VA_ARGS__;                                                                                                           \
  })

namespace aiter::upstream {

using Tensor = aiter_tensor_t;

#ifdef AITER_ROPE_IMAGE  // images have no shorter tables
constexpr bool kReuse = false;
#else
constexpr bool kReuse = true;
#endif

template <class A, class B, int32_t S, class F> void rope_flags(bool reuse, bool last, const F& f) {
  if (reuse && last) f.template operator()<A, B, S, kReuse, true>();
  else if (reuse) f.template operator()<A, B, S, kReuse, false>();
  else if (last) f.template operator()<A, B, S, false, true>();
  else f.template operator()<A, B, S, false, false>();
}

template <class A, class B, class F> void rope_style(int32_t style, bool reuse, bool last, const F& f) {
  AITER_CHECK(style == ROTATE_STYLE_NEOX || style == ROTATE_STYLE_GPTJ, "rotate_style: expected 0 or 1, got ", style);
  if (style == ROTATE_STYLE_NEOX) rope_flags<A, B, ROTATE_STYLE_NEOX>(reuse, last, f);
  else rope_flags<A, B, ROTATE_STYLE_GPTJ>(reuse, last, f);
}

template <class F>
void rope_dispatch(AiterDtype type, AiterDtype table, int32_t style, bool reuse, bool last, const F& f) {
  AITER_CHECK(table == type || table == AITER_DTYPE_fp32, "expected tables of float32 or of the element type of the rotated tensor");
  if (type == AITER_DTYPE_fp32) return rope_style<float, float>(style, reuse, last, f);
  if (type == AITER_DTYPE_fp16 && table == type) return rope_style<__half, __half>(style, reuse, last, f);
  if (type == AITER_DTYPE_fp16) return rope_style<__half, float>(style, reuse, last, f);
  if (table == type) return rope_style<hip_bfloat16, hip_bfloat16>(style, reuse, last, f);
  rope_style<hip_bfloat16, float>(style, reuse, last, f);
}

// expect_channel checks an input and its output. In place they must be the same tensor.
inline void expect_channel(const char* out_name, const Tensor& out, const char* in_name, const Tensor& in, int rank) {
  AITER_CHECK(is_float(in.dtype()), in_name, ": expected float32, float16 or bfloat16");
  AITER_CHECK(in.dim() == rank, in_name, ": expected ", rank, " dimensions, got ", in.dim());
  expect_same(out_name, out, in_name, in);
  expect_reach(in_name, in), expect_reach(out_name, out);
  for (int i = 0; i < rank; i++)
    AITER_CHECK(out.ptr != in.ptr || in.size(i) == 1 || out.stride(i) == in.stride(i), out_name, ": expected the strides of ", in_name,
                ", which has the same memory");
}

// expect_table checks angles, cosines or sines for the rotated elements of a head.
inline void expect_table(const char* name, const Tensor& t, int64_t rows, int64_t head, bool reuse) {
  AITER_CHECK(is_float(t.dtype()), name, ": expected float32, float16 or bfloat16");
  expect_sizes(name, t, {-1, 1, 1, -1}), expect_packed(name, t), expect_reach(name, t);
  AITER_CHECK(t.size(0) >= rows, name, ": expected ", rows, " rows or more, got ", t.size(0));
  const int64_t rotated = t.size(3) * (reuse ? 2 : 1);
  AITER_CHECK(rotated > 0 && rotated <= head && rotated % 2 == 0, name, ": expected rows for an even number of elements, at most ", head,
              ", got one for ", rotated);
}

inline void expect_pair(const char* name, const Tensor& t, const char* of, const Tensor& other) {
  expect_same(name, t, of, other), expect_packed(name, t);
}

inline void expect_second(const char* name, const Tensor& y, const char* of, const Tensor& x) {
  expect_sizes(name, y, {x.size(0), x.size(1), -1, x.size(3)});
  AITER_CHECK(y.dtype() == x.dtype(), name, ": expected the element type of ", of);
  AITER_CHECK(x.size(2) > 0 && y.size(2) > 0, of, " and ", name, ": expected one head or more");
}

inline void expect_indices(const char* name, const Tensor& t, const Tensor& in) {
  expect_type(name, t, AITER_DTYPE_i64), expect_sizes(name, t, {in.size(0), in.size(1)}), expect_packed(name, t);
}

// The next functions check the arguments of AIter's fn and call it. Gradients go from the output's to the input's.
template <auto fn, bool bwd> void rope_uncached(Tensor& out, const Tensor& in, const Tensor& freqs, int32_t style, bool reuse, bool last) {
  expect_channel(bwd ? "input_grads" : "output", out, bwd ? "output_grads" : "input", in, 4);
  expect_table("freqs", freqs, in.size(0), in.size(3), reuse);
  if (in.numel() == 0) return;
  fn(out, in, freqs, style, reuse, last);
  HIP_CALL(hipGetLastError());
}

template <auto fn, bool bwd>
void rope_cached(Tensor& out, const Tensor& in, const Tensor& cos, const Tensor& sin, int32_t style, bool reuse, bool last) {
  expect_channel(bwd ? "input_grads" : "output", out, bwd ? "output_grads" : "input", in, 4);
  expect_table("cos", cos, in.size(0), in.size(3), reuse), expect_pair("sin", sin, "cos", cos);
  if (in.numel() == 0) return;
  fn(out, in, cos, sin, style, reuse, last);
  HIP_CALL(hipGetLastError());
}

inline void expect_channels(bool bwd, const Tensor& out_x, const Tensor& out_y, const Tensor& in_x, const Tensor& in_y) {
  expect_channel(bwd ? "input_grads_x" : "output_x", out_x, bwd ? "output_grads_x" : "input_x", in_x, 4);
  expect_channel(bwd ? "input_grads_y" : "output_y", out_y, bwd ? "output_grads_y" : "input_y", in_y, 4);
  expect_second(bwd ? "output_grads_y" : "input_y", in_y, bwd ? "output_grads_x" : "input_x", in_x);
  AITER_CHECK((out_x.ptr == in_x.ptr) == (out_y.ptr == in_y.ptr),
              bwd ? "input_grads_x and input_grads_y" : "output_x and output_y", ": expected both in place or none");
}

template <auto fn, bool bwd>
void rope_2c_uncached(Tensor& out_x, Tensor& out_y, const Tensor& in_x, const Tensor& in_y, const Tensor& freqs, int32_t style, bool reuse,
                      bool last) {
  expect_channels(bwd, out_x, out_y, in_x, in_y);
  expect_table("freqs", freqs, in_x.size(0), in_x.size(3), reuse);
  if (in_x.numel() == 0) return;
  fn(out_x, out_y, in_x, in_y, freqs, style, reuse, last);
  HIP_CALL(hipGetLastError());
}

template <auto fn, bool bwd>
void rope_2c_cached(Tensor& out_x, Tensor& out_y, const Tensor& in_x, const Tensor& in_y, const Tensor& cos, const Tensor& sin,
                    int32_t style, bool reuse, bool last) {
  expect_channels(bwd, out_x, out_y, in_x, in_y);
  expect_table("cos", cos, in_x.size(0), in_x.size(3), reuse), expect_pair("sin", sin, "cos", cos);
  if (in_x.numel() == 0) return;
  fn(out_x, out_y, in_x, in_y, cos, sin, style, reuse, last);
  HIP_CALL(hipGetLastError());
}

template <auto fn>
void rope_positions(Tensor& out, const Tensor& in, const Tensor& cos, const Tensor& sin, const Tensor& positions, int32_t style, bool reuse,
                    bool last) {
  expect_channel("output", out, "input", in, 4), expect_indices("positions", positions, in);
  expect_table("cos", cos, 0, in.size(3), reuse), expect_pair("sin", sin, "cos", cos);
  if (in.numel() == 0) return;
  fn(out, in, cos, sin, positions, style, reuse, last);
  HIP_CALL(hipGetLastError());
}

template <auto fn>
void rope_positions_offsets(Tensor& out, const Tensor& in, const Tensor& cos, const Tensor& sin, const Tensor& positions,
                            const Tensor& offsets, int32_t style, bool reuse, bool last) {
  expect_channel("output", out, "input", in, 4), expect_indices("positions", positions, in), expect_indices("offsets", offsets, in);
  expect_table("cos", cos, 0, in.size(3), reuse), expect_pair("sin", sin, "cos", cos);
  if (in.numel() == 0) return;
  fn(out, in, cos, sin, positions, offsets, style, reuse, last);
  HIP_CALL(hipGetLastError());
}

template <auto fn>
void rope_2c_positions(Tensor& out_x, Tensor& out_y, const Tensor& in_x, const Tensor& in_y, const Tensor& cos, const Tensor& sin,
                       const Tensor& positions, int32_t style, bool reuse, bool last) {
  expect_channels(false, out_x, out_y, in_x, in_y), expect_indices("positions", positions, in_x);
  expect_table("cos", cos, 0, in_x.size(3), reuse), expect_pair("sin", sin, "cos", cos);
  if (in_x.numel() == 0) return;
  fn(out_x, out_y, in_x, in_y, cos, sin, positions, style, reuse, last);
  HIP_CALL(hipGetLastError());
}

template <auto fn>
void rope_2c_positions_offsets(Tensor& out_x, Tensor& out_y, const Tensor& in_x, const Tensor& in_y, const Tensor& cos, const Tensor& sin,
                               const Tensor& positions, const Tensor& offsets, int32_t style, bool reuse, bool last) {
  expect_channels(false, out_x, out_y, in_x, in_y);
  expect_indices("positions", positions, in_x), expect_indices("offsets", offsets, in_x);
  expect_table("cos", cos, 0, in_x.size(3), reuse), expect_pair("sin", sin, "cos", cos);
  if (in_x.numel() == 0) return;
  fn(out_x, out_y, in_x, in_y, cos, sin, positions, offsets, style, reuse, last);
  HIP_CALL(hipGetLastError());
}

template <auto fn, bool bwd>
void rope_thd(Tensor& out, const Tensor& in, const Tensor& cu_seqlens, const Tensor& freqs, int32_t style, bool reuse, bool last) {
  expect_channel(bwd ? "input_grads" : "output", out, bwd ? "output_grads" : "input", in, 3);
  expect_table("freqs", freqs, 1, in.size(2), reuse);
  expect_type("cu_seqlens", cu_seqlens, AITER_DTYPE_i32), expect_packed("cu_seqlens", cu_seqlens);
  AITER_CHECK(cu_seqlens.dim() == 1 && cu_seqlens.size(0) > 0, "cu_seqlens: expected one dimension, one element or more");
  if (in.numel() == 0 || cu_seqlens.size(0) == 1) return;
  fn(out, in, cu_seqlens, freqs, style, reuse, last);
  HIP_CALL(hipGetLastError());
}

// AIter's kernels with reuse_freqs_front_part rotate past the half of a head, so it is refused.
template <auto fn, bool bwd>
void rope_2d(Tensor& out, const Tensor& in, const Tensor& cos_h, const Tensor& sin_h, const Tensor& cos_w, const Tensor& sin_w,
             int32_t height, int32_t width, int32_t style, bool reuse, bool last) {
  const char* name = bwd ? "output_grads" : "input";
  expect_channel(bwd ? "input_grads" : "output", out, name, in, 4);
  AITER_CHECK(!reuse, "reuse_freqs_front_part: expected false for images");
  AITER_CHECK(height >= 0 && width >= 0 && in.size(1) == int64_t(height) * width, name, ": expected img_height * img_width positions");
  AITER_CHECK(in.size(3) > 0 && in.size(3) % 4 == 0, name, ": expected heads of a multiple of 4 elements, got ", in.size(3));
  expect_sizes("cos_h", cos_h, {1, -1, 1, in.size(3) / 2}), expect_sizes("cos_w", cos_w, {1, 1, -1, in.size(3) / 2});
  AITER_CHECK(is_float(cos_h.dtype()) && cos_w.dtype() == cos_h.dtype(), "cos_h and cos_w: expected one floating-point type");
  AITER_CHECK(cos_h.size(1) >= height && cos_w.size(2) >= width, "cos_h and cos_w: expected a row for each line and column");
  expect_packed("cos_h", cos_h), expect_packed("cos_w", cos_w), expect_reach("cos_h", cos_h), expect_reach("cos_w", cos_w);
  expect_pair("sin_h", sin_h, "cos_h", cos_h), expect_pair("sin_w", sin_w, "cos_w", cos_w);
  if (in.numel() == 0) return;
  fn(out, in, cos_h, sin_h, cos_w, sin_w, height, width, style, reuse, last);
  HIP_CALL(hipGetLastError());
}

}  // namespace aiter::upstream

#define AITER_ROPE_OPTIONS arg("rotate_style"), arg("reuse_freqs_front_part"), arg("nope_first")
