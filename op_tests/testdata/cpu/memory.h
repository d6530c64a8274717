// Tensors that border inaccessible pages: an access beyond the tensor ends the program.
#pragma once

#include <aiter/ffi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace aiter;

// Side is the side of a tensor's memory on which it borders an inaccessible page.
enum class Side { kBefore, kAfter };

// Guarded is memory of up to kMost bytes between two inaccessible pages, the guard pages.
class Guarded {
 public:
  static constexpr size_t kMost = 1 << 20;

  // allocate returns memory of so many bytes, filled with fill, that begins or ends at a guard page. Earlier memory becomes invalid.
  char* allocate(size_t bytes, Side side, unsigned char fill) {
    if (!start_) map();
    if (bytes > kMost) abort();
    memset(start_, fill, kMost);
    return side == Side::kBefore ? start_ : start_ + kMost - bytes;
  }

 private:
  void map() {
    const size_t page = sysconf(_SC_PAGESIZE);
    char* all = static_cast<char*>(mmap(nullptr, kMost + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (all == MAP_FAILED || mprotect(all + page, kMost, PROT_READ | PROT_WRITE)) abort();
    start_ = all + page;
  }

  char* start_ = nullptr;
};

// Array is a tensor of rank 1 to 3. Between two rows (in channel-last layout: two positions) are gap
// unused elements. The unused memory of inputs holds NaNs, that of outputs bytes of kUntouched.
class Array {
 public:
  static constexpr unsigned char kUntouched = 0xa5;

  struct Shape {
    int64_t a, b, c;  // -1: there is no such dimension
  };

  void make(DType type, Shape shape, bool last, int64_t gap, Side side, bool output) {
    type_ = type;
    const int64_t sizes[] = {shape.a, shape.b, shape.c};
    rank_ = shape.b < 0 ? 1 : shape.c < 0 ? 2 : 3;
    for (int i = 0; i < 3; i++) shape_[i] = i < rank_ ? sizes[i] : 1, strides_[i] = 0;
    int order[] = {rank_ - 1, rank_ - 2, rank_ - 3};  // from the densest dimension outwards
    if (last && rank_ == 3) order[0] = 1, order[1] = 2;
    int64_t step = 1, extent = 1;
    for (int i = 0; i < rank_; i++) {
      strides_[order[i]] = step;
      extent += (shape_[order[i]] - 1) * step;
      step = extent + gap;
    }
    bytes_ = numel() ? extent * dtype_size(type) : 0;
    data_ = memory_.allocate(bytes_, side, output ? kUntouched : 0xff);
    const uint8_t code = type == DType::BF16 ? 4 : type == DType::I32 ? 0 : type == DType::Bool ? 6 : 2;
    view_ = {data_, {kCPU, 0}, rank_, {code, uint8_t(8 * dtype_size(type)), 1}, shape_, strides_, 0};
  }

  int64_t numel() const { return shape_[0] * shape_[1] * shape_[2]; }
  int64_t size(int i) const { return shape_[i]; }

  double at(int64_t a, int64_t b = 0, int64_t c = 0) const {
    const int64_t i = index(a, b, c);
    return type_ == DType::I32 ? double(reinterpret_cast<int32_t*>(data_)[i]) : double(load(data_, type_, i));
  }
  void set(int64_t a, int64_t b, int64_t c, double v) {
    const int64_t i = index(a, b, c);
    if (type_ == DType::I32) reinterpret_cast<int32_t*>(data_)[i] = int32_t(v);
    else store(data_, type_, i, float(v));
  }

  void all_true() { memset(data_, 1, bytes_); }

  // each calls f(a, b, c) for all elements.
  template <class F> void each(const F& f) const {
    for (int64_t a = 0; a < shape_[0]; a++)
      for (int64_t b = 0; b < shape_[1]; b++)
        for (int64_t c = 0; c < shape_[2]; c++) f(a, b, c);
  }

  // strays returns how many bytes between the elements of an output were written. It overwrites the elements.
  int64_t strays() {
    each([&](int64_t a, int64_t b, int64_t c) { memset(data_ + index(a, b, c) * dtype_size(type_), kUntouched, dtype_size(type_)); });
    int64_t n = 0;
    for (size_t i = 0; i < bytes_; i++) n += static_cast<unsigned char>(data_[i]) != kUntouched;
    return n;
  }

  TVMFFIAny any() {
    TVMFFIAny v{};
    v.type_index = kDLTensorPtr, v.v_ptr = &view_;
    return v;
  }

 private:
  int64_t index(int64_t a, int64_t b, int64_t c) const { return a * strides_[0] + b * strides_[1] + c * strides_[2]; }

  Guarded memory_;
  DType type_;
  int rank_;
  int64_t shape_[3], strides_[3];
  size_t bytes_;
  char* data_;
  DLTensor view_;
};

inline TVMFFIAny none() { return TVMFFIAny{}; }
inline TVMFFIAny flag(bool v) {
  TVMFFIAny a{};
  a.type_index = kBool, a.v_int64 = v;
  return a;
}
