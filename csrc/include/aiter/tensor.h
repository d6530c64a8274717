// A tensor argument: DLPack's description, with the argument's name for errors.
#pragma once

#include "dtype.h"
#include "status.h"

namespace aiter {

struct DLDevice {
  int32_t type;
  int32_t id;
};

struct DLDataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};

// DLTensor is DLPack's struct. Strides count elements; null means row-major.
struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};
static_assert(sizeof(DLTensor) == 48, "DLPack's layout");

// TensorView borrows a DLTensor for the length of a call.
class TensorView {
 public:
  TensorView() = default;
  TensorView(const DLTensor* t, const char* name) : t_(t), name_(name) {}

  const char* name() const { return name_; }
  int rank() const { return t_->ndim; }
  int64_t size(int i) const { return t_->shape[i]; }
  DLDevice device() const { return t_->device; }
  DLDataType raw_dtype() const { return t_->dtype; }

  // data returns the address of element 0.
  void* data() const { return t_->data ? static_cast<char*>(t_->data) + t_->byte_offset : nullptr; }
  template <class T> T* as() const { return static_cast<T*>(data()); }

  // stride counts elements, also if the producer left strides out.
  int64_t stride(int i) const {
    return t_->strides ? t_->strides[i] : packed_stride(i);
  }

  // element_size returns the bytes of an element of any type.
  int64_t element_size() const { return (int64_t(t_->dtype.bits) * t_->dtype.lanes + 7) / 8; }

  // dtype returns Other for a type that no operator here computes with.
  DType dtype() const {
    const DLDataType d = t_->dtype;
    switch (uint32_t(d.lanes) << 16 | uint32_t(d.bits) << 8 | d.code) {
      case 1 << 16 | 32 << 8 | 2: return DType::F32;
      case 1 << 16 | 16 << 8 | 2: return DType::F16;
      case 1 << 16 | 16 << 8 | 4: return DType::BF16;
      case 1 << 16 | 32 << 8 | 0: return DType::I32;
      case 1 << 16 | 8 << 8 | 6: return DType::Bool;
      default: return DType::Other;
    }
  }

  bool empty() const {
    for (int i = 0; i < rank(); i++)
      if (size(i) == 0) return true;
    return false;
  }

 private:
  // Modulo 2^64: if it does not fit in 63 bits, check_layout finds that a smaller dimension reaches too far.
  AITER_COLD int64_t packed_stride(int i) const {
    uint64_t s = 1;
    for (int k = i + 1; k < rank(); k++) s *= uint64_t(size(k));
    return int64_t(s);
  }

  const DLTensor* t_ = nullptr;
  const char* name_ = "";
};

// Optional is an argument that may be None.
template <class T> struct Optional {
  bool given = false;
  T value{};

  explicit operator bool() const { return given; }
  const T* operator->() const { return &value; }
  const T& operator*() const { return value; }
};

AITER_COLD inline Text shape_text(const int64_t* sizes, int rank) {
  Text s;
  s.add("(");
  for (int i = 0; i < rank; i++) s.add(i ? ", %lld" : "%lld", static_cast<long long>(sizes[i]));
  s.add(rank == 1 ? ",)" : ")");
  return s;
}

AITER_COLD inline Text shape_text(const TensorView& t) {
  int64_t sizes[8];
  const int rank = t.rank() < 8 ? t.rank() : 8;
  for (int i = 0; i < rank; i++) sizes[i] = t.size(i);
  Text s = shape_text(sizes, rank);
  if (t.rank() > rank) s.len--, s.add(", ...)");
  return s;
}

AITER_COLD inline Text dtype_text(const TensorView& t) {
  Text s;
  const DLDataType d = t.raw_dtype();
  if (t.dtype() != DType::Other) {
    s.add("%s", dtype_name(t.dtype()));
    return s;
  }
  static const char* const codes[] = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
  static const char* const small[] = {"float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "", "float8_e8m0fnu"};  // codes from 10 on
  if (d.code >= 10 && d.code <= 14 && d.code != 13 && d.bits == 8 && d.lanes == 1) {
    s.add("%s", small[d.code - 10]);
    return s;
  }
  if (d.code == 17 && d.bits == 4 && d.lanes == 2) {
    s.add("float4_e2m1fn_x2");
    return s;
  }
  s.add("%s%d", d.code < 7 ? codes[d.code] : "type", int(d.bits));
  if (d.lanes != 1) s.add("x%d", int(d.lanes));
  return s;
}

AITER_COLD inline Text device_text(DLDevice d) {
  Text s;
  if (d.type == kCPU) s.add("cpu");
  else if (d.type == kCUDA) s.add("cuda:%d", int(d.id));
  else if (d.type == kROCM) s.add("rocm:%d", int(d.id));
  else s.add("device type %d:%d", int(d.type), int(d.id));
  return s;
}

}  // namespace aiter
