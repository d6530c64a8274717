// causal_conv1d_serve_update and causal_conv1d_update_split_qkv on the CPU.
//
// Tiling: a part is 256 channels of one sequence, one channel after another.
// Bytes: x and out once; of a state what is read and what is kept.
// Reduction: over the width, in fp32.

#include <cmath>

#include <aiter/ffi.h>

#include "groups.h"
#include "../common/served_check.h"

namespace aiter::conv1d::serve {

template <class T> static void run_part(const Served& p, int64_t b, int64_t from, int64_t to) {
  if (p.batch == 0) {
    for (int64_t d = from; d < to; d++) p.clear_all<T>(d);
    return;
  }
  const Run r = p.run(b);
  const auto act = [&](float y) { return p.silu ? y / (1.0f + std::exp(-y)) : y; };
  for (int64_t d = from; d < to; d++) {
    p.clear_outside<T>(r, b, d);
    if (!r.live || r.len == 0) continue;
    if (p.parents.data || p.width > 8) run_walk<T>(p, r, b, d, act);
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
  });
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

#include "../serve/exports.h"
