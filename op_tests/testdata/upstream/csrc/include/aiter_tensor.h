#pragma once
#include "aiter_hip_common.h"

struct aiter_tensor_t {
  void* ptr;
  size_t numel_;
  int ndim;
  int64_t shape[8];
  int64_t strides[8];
  AiterDtype dtype_;
  int device_id;

  int64_t size(int i) const { return shape[i < 0 ? ndim + i : i]; }
  int64_t stride(int i) const { return strides[i < 0 ? ndim + i : i]; }
  void* data_ptr() const { return ptr; }
  size_t numel() const { return numel_; }
  int dim() const { return ndim; }
  AiterDtype dtype() const { return dtype_; }
  bool is_gpu() const { return device_id >= 0; }
  bool is_contiguous() const {
    if (numel_ == 0) return true;
    int64_t packed = 1;
    for (int i = ndim - 1; i >= 0; packed *= shape[i--])
      if (shape[i] != 1 && strides[i] != packed) return false;
    return true;
  }
};
