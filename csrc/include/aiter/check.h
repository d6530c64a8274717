// Checks of an entry point's tensors. Each error names the argument, the expected and the actual value.
#pragma once

#include "dispatch.h"
#include "overlap.h"

namespace aiter {

// check_layout checks that sizes and strides describe memory that can exist, and that element 0 is aligned to its type.
inline Status check_layout(const TensorView& t) {
  if (t.rank() < 0 || t.rank() > 8) return value_error("argument '%s': expected rank 0 to 8, got %d", t.name(), t.rank());
  bool negative = false, empty = false;
  int far = -1;  // the first dimension that reaches too far
  uint64_t extent = 0;
  for (int i = 0; i < t.rank(); i++) {
    const int64_t n = t.size(i), stride = t.stride(i);
    negative |= n < 0, empty |= n == 0;
    uint64_t span;
    if (__builtin_mul_overflow(uint64_t(n) - 1, stride < 0 ? -uint64_t(stride) : uint64_t(stride), &span) ||
        __builtin_add_overflow(extent, span, &extent) || extent > uint64_t(INT64_MAX >> 4))
      far = far < 0 ? i : far;
  }
  if (negative) return value_error("argument '%s': negative size in shape %s", t.name(), shape_text(t).data);
  if (empty) return Status();
  if (far >= 0)
    return value_error("argument '%s': stride %lld of dimension %d reaches past the address space", t.name(),
                       static_cast<long long>(t.stride(far)), far);
  if (!t.data()) return value_error("argument '%s': data is null but shape is %s", t.name(), shape_text(t).data);
  const int64_t size = dtype_size(t.dtype());
  if (size > 0 && (reinterpret_cast<uintptr_t>(t.data()) & uintptr_t(size - 1)))
    return value_error("argument '%s': data is not aligned to its %d-byte elements", t.name(), int(size));
  return Status();
}

// check_float accepts float32, float16 and bfloat16.
inline Status check_float(const TensorView& t) {
  if (t.dtype() == DType::F32 || t.dtype() == DType::F16 || t.dtype() == DType::BF16) return check_layout(t);
  return type_error("argument '%s': expected dtype float32, float16 or bfloat16, got %s", t.name(), dtype_text(t).data);
}

// check_held is check_float of the tensor whose element type selects the code.
inline Status check_held(const TensorView& t) {
  AITER_TRY(check_float(t));
  return holds(t.dtype()) ? Status() : not_held(t);
}

inline Status check_dtype(const TensorView& t, DType want, const char* why) {
  if (t.dtype() == want) return check_layout(t);
  return type_error("argument '%s': expected dtype %s%s, got %s", t.name(), dtype_name(want), why, dtype_text(t).data);
}

// check_float32_or accepts float32 and one more type.
inline Status check_float32_or(const TensorView& t, DType other, const char* why) {
  if (t.dtype() == DType::F32 || t.dtype() == other) return check_layout(t);
  Text either;
  if (other != DType::F32) either.add(" or %s%s", dtype_name(other), why);
  return type_error("argument '%s': expected dtype float32%s, got %s", t.name(), either.data, dtype_text(t).data);
}

inline Status check_rank(const TensorView& t, int rank, const char* meaning) {
  if (t.rank() == rank) return Status();
  return value_error("argument '%s': expected rank %d %s, got rank %d, shape %s", t.name(), rank, meaning, t.rank(),
                     shape_text(t).data);
}

template <int N> Status check_shape(const TensorView& t, const int64_t (&want)[N], const char* meaning) {
  bool same = t.rank() == N;
  for (int i = 0; same && i < N; i++) same = t.size(i) == want[i];
  if (same) return Status();
  return value_error("argument '%s': expected shape %s %s, got %s", t.name(), shape_text(want, N).data, meaning,
                     shape_text(t).data);
}

// check_same_shape checks that t has the shape of another tensor.
inline Status check_same_shape(const TensorView& t, const TensorView& like) {
  bool same = t.rank() == like.rank();
  for (int i = 0; same && i < t.rank(); i++) same = t.size(i) == like.size(i);
  if (same) return Status();
  return value_error("argument '%s': expected shape %s as '%s', got %s", t.name(), shape_text(like).data, like.name(),
                     shape_text(t).data);
}

inline Status check_module_device(const TensorView& t) {
  if (runs_on(t.device().type)) return Status();
  return value_error("argument '%s': is on %s, this build runs on %s", t.name(), device_text(t.device()).data,
                     module_device());
}

inline Status check_device(const TensorView& t, const TensorView& like) {
  const DLDevice a = t.device(), b = like.device();
  if (a.type == b.type && a.id == b.id) return Status();
  return value_error("argument '%s': expected device %s as '%s', got %s", t.name(), device_text(b).data, like.name(),
                     device_text(a).data);
}

// Tensors collects a call's tensors, at most kMost, for the checks that concern all of them. check_layout has passed the
// tensors, and they outlive it.
class Tensors {
 public:
  void output(TensorView&&) = delete;
  void input(TensorView&&) = delete;
  void output(Optional<TensorView>&&) = delete;
  void input(Optional<TensorView>&&) = delete;
  void output(const TensorView& t) { add(t, true); }
  void input(const TensorView& t) { add(t, false); }
  void output(const Optional<TensorView>& t) { if (t) output(*t); }
  void input(const Optional<TensorView>& t) { if (t) input(*t); }

  // check checks that all tensors are on one device, and that no output shares memory with another tensor.
  Status check() const {
    if (full_) return runtime_error("the operator has more than %d tensors: raise Tensors::kMost in aiter/check.h", kMost);
    if (n_ == 0) return Status();
    AITER_TRY(check_module_device(*all_[0].t));
    for (int i = 1; i < n_; i++) AITER_TRY(check_device(*all_[i].t, *all_[0].t));
    for (int i = 0; i < n_; i++)
      if (all_[i].written) AITER_TRY(check_output(i));
    return Status();
  }

 private:
  static constexpr int kMost = 16;

  struct Tensor {
    const TensorView* t;
    int64_t size;  // bytes of an element
    Range range;
    bool written;
  };

  void add(const TensorView& t, bool written) {
    if (n_ == kMost) {
      full_ = true;
      return;
    }
    const int64_t size = t.element_size();
    all_[n_++] = {&t, size, byte_range(t, size), written};
  }

  Status check_output(int i) const {
    const Tensor& out = all_[i];
    if (overlaps_itself(*out.t, out.size))
      return value_error("argument '%s': is an output, but its strides let elements share memory; "
                         "pass a tensor with memory for each element", out.t->name());
    for (int k = 0; k < n_; k++) {
      const Tensor& other = all_[k];
      if (k == i || (other.written && k < i) || !out.range.meets(other.range)) continue;
      if (overlaps(*out.t, out.size, *other.t, other.size))
        return value_error("arguments '%s' and '%s': an output must not overlap another argument, these share memory",
                           out.t->name(), other.t->name());
    }
    return Status();
  }

  Tensor all_[kMost];
  int n_ = 0;
  bool full_ = false;
};

}  // namespace aiter
