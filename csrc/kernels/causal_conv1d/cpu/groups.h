// Filters that neighbouring channels share, on the CPU: a weight (groups, width) with fewer groups than channels. The kernels
// take a filter for each channel, and compute the gradient of each.
#pragma once

#include "cpu.h"

namespace aiter::conv1d {

// ChannelFilters is the filters of all channels, and their gradients, if weight has fewer filters than channels.
class ChannelFilters {
 public:
  ChannelFilters() = default;
  ChannelFilters(const ChannelFilters&) = delete;
  ~ChannelFilters() {
    free(filters_);
    free(gradients_);
  }

  // expand gives p a filter for each channel.
  Status expand(const TensorView& weight, Problem* p) {
    if (weight.size(0) == p->dim) return Status();
    const int64_t width = p->width, size = dtype_size(weight.dtype()), channels = p->dim / weight.size(0);
    filters_ = static_cast<char*>(malloc(p->dim * width * size));
    if (!filters_) return no_memory(*p);
    char* to = filters_;
    for (int64_t d = 0; d < p->dim; d += channels) {
      char* const first = to;
      const char* from = static_cast<const char*>(p->weight.data) + d / channels * p->weight.first * size;
      for (int64_t k = 0; k < width; k++, to += size) memcpy(to, from + k * p->weight.last * size, size);
      for (int64_t c = 1; c < channels; c++, to += width * size) memcpy(to, first, width * size);
    }
    p->weight = {filters_, weight.dtype(), width, 1};
    return Status();
  }

  // expand_gradient gives p a gradient for each channel, in float32.
  Status expand_gradient(const TensorView& weight, Backward* p) {
    if (weight.size(0) == p->dim) return Status();
    gradients_ = static_cast<float*>(malloc(p->dim * p->width * sizeof(float)));
    if (!gradients_) return no_memory(*p);
    p->dweight = {gradients_, DType::F32, p->width, 1};
    return Status();
  }

  // sum adds the gradients of each group, in the channels' order.
  void sum(const TensorView& dweight, const Backward& p) const {
    const Array2 to = array2(dweight);
    const int64_t groups = dweight.size(0), channels = gradients_ ? p.dim / groups : 0;
    for (int64_t i = 0; i < groups * p.width && gradients_; i++) {
      const int64_t group = i / p.width, k = i % p.width;
      double sum = 0;
      for (int64_t c = 0; c < channels; c++) sum += gradients_[(group * channels + c) * p.width + k];
      to.set(group, k, float(sum));
    }
  }

 private:
  static Status no_memory(const Problem& p) {
    return runtime_error("out of memory for the filters of %lld channels, %lld taps each", static_cast<long long>(p.dim),
                         static_cast<long long>(p.width));
  }

  char* filters_ = nullptr;
  float* gradients_ = nullptr;
};

}  // namespace aiter::conv1d
