// A channel of a sequence on the GPU, for filters of up to W taps and without a tree: the last W values are in registers. All loads that
// precede the first token are issued before any of their values is used.
#pragma once

#include "../common/filter_gpu.h"
#include "../common/served.h"

namespace aiter::conv1d::serve {

template <class T, int W> class TokenWindow {
 public:
  // The constructor issues the loads of the filter.
  AITER_DEVICE TokenWindow(const Served& p, int64_t d) : d_(d), none_(W - int(p.width)) { filter_.load(filter_of(p), d); }

  // load issues the loads of the state and of the first token.
  AITER_DEVICE void load(const Served& p, const ServedSequence& r) {
    next_ = *p.inputs<T>(r, d_);
    const int64_t first = r.from * p.state.batch + d_ * p.state.dim + (r.end - (W - 1)) * p.state.last;
    if (p.state.dtype == DType::F32) load_state(static_cast<const uint32_t*>(p.state.data) + first, p.state.last);
    else load_state(static_cast<const uint16_t*>(p.state.data) + first, p.state.last);
  }

  // run computes the sequence and writes its slot. out may be x.
  AITER_DEVICE void run(const Served& p, const ServedSequence& r, int64_t b) {
    filter_.convert(filter_of(p));
    float v[W];
    AITER_UNROLL
    for (int k = 0; k < W - 1; k++) v[k] = element_to_float(p.state.dtype, bits_[k]);
    const bool rolls = !p.accepted.data && p.kept == p.width - 1;  // the slot is the window
    if (p.accepted.data && r.to >= 0) {
      AITER_UNROLL
      for (int k = 1; k < W - 1; k++)
        if (k > none_) p.state.set(r.to, d_, k - none_ - 1, v[k]);
    } else if (!rolls) {
      p.store_state<T>(r, d_);
    }
    const int64_t row = p.window_row(r, b);
    const T* x = p.inputs<T>(r, d_);
    AITER_ROLLED
    for (int64_t t = 0; t < r.len; t++) {
      v[W - 1] = to_float(next_);
      if (t + 1 < r.len) next_ = x[(t + 1) * p.x.last];
      float y = filter_.bias[0];
      AITER_UNROLL
      for (int k = 0; k < W; k++)
        if (k >= none_) y = fmaf(filter_.weight[0][k], v[k], y);
      p.finish<T>(r, d_, t, apply_activation(p.silu, y));
      AITER_UNROLL
      for (int k = 0; k < W - 1; k++) v[k] = v[k + 1];
      if (p.accepted.data && r.to >= 0 && p.width - 2 + t >= 0) p.state.set(r.to, d_, p.width - 2 + t, v[W - 2]);
      if (row >= 0 && t < p.steps) save_window(p, row, t, v);
    }
    if (!rolls || r.to < 0) return;
    AITER_UNROLL
    for (int k = 0; k < W - 1; k++)
      if (k >= none_) p.state.set(r.to, d_, k - none_, v[k]);
  }

 private:
  AITER_DEVICE static FilterSource filter_of(const Served& p) {
    FilterSource s = strided_filter(p, p.width);
    s.packed_weight = p.packed_weight;
    return s;
  }

  template <class U> AITER_DEVICE void load_state(const U* at, int64_t step) {
    AITER_UNROLL
    for (int k = 0; k < W - 1; k++) bits_[k] = k >= none_ ? uint32_t(at[k * step]) : 0;
  }

  AITER_DEVICE void save_window(const Served& p, int64_t row, int64_t t, const float (&v)[W]) const {
    AITER_UNROLL
    for (int k = 0; k < W - 1; k++)
      if (k >= none_) p.save(row, t, d_, k - none_, v[k]);
  }

  Filter<float, W, 1, FilterKind::kStrided> filter_;
  int64_t d_;
  int none_;  // taps that do not exist
  uint32_t bits_[W - 1];
  T next_;
};

}  // namespace aiter::conv1d::serve
