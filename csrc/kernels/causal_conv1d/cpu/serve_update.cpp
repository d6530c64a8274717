// causal_conv1d_serve_update and causal_conv1d_update_split_qkv on the CPU.
//
// Tiling: a part is 256 channels of one sequence, one channel after another.
// Bytes: x and out once; of a state what is read and what is kept.
// Reduction: over the width, in fp32.

#include <aiter/ffi.h>
#include <aiter/tuning.h>

#include "exponential.h"
#include "groups.h"
#include "../common/served_check.h"

namespace aiter::conv1d::serve {

// run_window is run_walk on the CPU for up to W taps, without a tree. The last values are in registers: out may be x.
template <class T, int W, class Act> static void run_window(const Served& p, const ServedSequence& r,
    int64_t b, int64_t d, const Act& act) {
  const int64_t row = p.window_row(r, b);
  const int none = W - int(p.width);  // taps that do not exist
  const T* x = p.inputs<T>(r, d);
  float weight[W], v[W];
  for (int k = 0; k < W; k++) {
    weight[k] = k >= none ? p.weight.get(d, k - none) : 0.0f;
    v[k] = k >= none && k < W - 1 ? p.state.get(r.from, d, r.end + k - (W - 1)) : 0.0f;
  }
  const float bias = p.bias.data ? p.bias.get(d, 0) : 0.0f;
  p.store_state<T>(r, d);
  for (int64_t t = 0; t < r.len; t++) {
    v[W - 1] = to_float(x[t * p.x.last]);
    float y = bias;
    for (int k = 0; k < W; k++) y += k >= none ? weight[k] * v[k] : 0.0f;
    p.finish<T>(r, d, t, act(y));
    for (int k = 0; k < W - 1; k++) v[k] = v[k + 1];
    for (int k = 0; k < W - 1; k++)
      if (row >= 0 && t < p.steps && k >= none) p.save(row, t, d, k - none, v[k]);
  }
}

template <class T> static void run_part(const Served& p, int64_t b, int64_t from, int64_t to) {
  if (p.batch == 0) {
    for (int64_t d = from; d < to; d++) p.clear_all<T>(d);
    return;
  }
  const ServedSequence r = p.sequence(b);
  const auto act = [&](float y) { return p.silu ? y / (1.0f + exponential(-y)) : y; };
  for (int64_t d = from; d < to; d++) {
    p.clear_outside<T>(r, b, d);
    if (!r.live || r.len == 0) continue;
    if (p.parents.data || is_wide(p.width)) run_walk<T>(p, r, b, d, act);
    else if (p.width > 4) run_window<T, 8>(p, r, b, d, act);
    else run_window<T, 4>(p, r, b, d, act);
  }
}

template <class T> static void run_all(const Served& p) {
  constexpr int64_t kPartChannels = 256;
  const int64_t parts = (p.dim + kPartChannels - 1) / kPartChannels;
  cpu::parallel((p.batch > 0 ? p.batch : 1) * parts, [&](int64_t part) {
    const int64_t first = part % parts * kPartChannels;
    run_part<T>(p, part / parts, first, shorter(first + kPartChannels, p.dim));
  }, tuned("threads", cpu::kMostThreads));
}

static Status run(const Arguments& a, Served p, const char*) {
  AITER_TRY(cpu::check_settings());
  if (a.x.empty()) return Status();
  ChannelFilters filters;
  AITER_TRY(filters.expand(a.weight, &p));
  if (a.x.dtype() == DType::F32) run_all<float>(p);
  else if (a.x.dtype() == DType::F16) run_all<half_t>(p);
  else run_all<bf16_t>(p);
  return Status();
}

}  // namespace aiter::conv1d::serve

#include "../common/served_exports.h"
