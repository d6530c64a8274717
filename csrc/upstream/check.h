// Checks that AIter's kernels leave to its Python or to their callers. aiter/upstream.h appends what was given to their texts.
#pragma once
#include <aiter/upstream.h>

#include <initializer_list>

namespace aiter::upstream {

inline bool is_float(AiterDtype t) { return t == AITER_DTYPE_fp32 || t == AITER_DTYPE_fp16 || t == AITER_DTYPE_bf16; }
inline bool is_float16(AiterDtype t) { return t == AITER_DTYPE_fp16 || t == AITER_DTYPE_bf16; }

// expect_sizes checks the rank and the sizes; a negative size stands for any.
inline void expect_sizes(const char* name, const aiter_tensor_t& t, std::initializer_list<int64_t> sizes) {
  bool same = t.dim() == int(sizes.size());
  int i = 0;
  for (int64_t s : sizes) same = same && (s < 0 || t.size(i) == s), i++;
  if (same) [[likely]] return;
  std::ostringstream text;
  text << name << ": expected shape (";
  const char* separator = "";
  for (int64_t s : sizes) (s < 0 ? text << separator << "any" : text << separator << s), separator = ", ";
  AITER_CHECK(false, text.str() + ")");
}

inline void expect_type(const char* name, const aiter_tensor_t& t, AiterDtype type) {
  AITER_CHECK(t.dtype() == type, name, ": expected dtype ", type_name(type));
}

inline void expect_packed(const char* name, const aiter_tensor_t& t) {
  AITER_CHECK(packed(t), name, ": expected row-major elements without gaps");
}

inline void expect_same(const char* name, const aiter_tensor_t& t, const char* of, const aiter_tensor_t& other) {
  bool same = t.dtype() == other.dtype() && t.dim() == other.dim();
  for (int i = 0; same && i < t.dim(); i++) same = t.size(i) == other.size(i);
  AITER_CHECK(same, name, ": expected the shape and the element type of ", of, ", ", given(other));
}

// expect_reach checks that no stride is negative, and that the last element is less than 2^bits elements behind the first: with 28 bits,
// offsets in bytes have 32 bits for each type.
inline void expect_reach(const char* name, const aiter_tensor_t& t, int bits = 28) {
  const int64_t most = (int64_t(1) << bits) - 1;
  int64_t last = 0;
  for (int i = 0; i < t.dim() && t.numel() > 0; i++) {
    const int64_t steps = t.size(i) - 1;
    if (steps == 0) continue;
    AITER_CHECK(t.stride(i) >= 0, name, ": expected no negative stride");
    AITER_CHECK(t.stride(i) <= most && steps <= most && (last += steps * t.stride(i)) <= most, name, ": expected a tensor of less than 2^",
                bits, " elements from the first to the last");
  }
}

// expect_aligned checks the address, and that rows of all but the last dimension begin at multiples of a number of bytes.
inline void expect_aligned(const char* name, const aiter_tensor_t& t, int64_t bytes, int64_t element_size) {
  bool aligned = reinterpret_cast<uintptr_t>(t.ptr) % uintptr_t(bytes) == 0;
  for (int i = 0; i + 1 < t.dim(); i++) aligned = aligned && (t.size(i) == 1 || t.stride(i) * element_size % bytes == 0);
  AITER_CHECK(aligned, name, ": expected rows at multiples of ", bytes, " bytes");
}

}  // namespace aiter::upstream
