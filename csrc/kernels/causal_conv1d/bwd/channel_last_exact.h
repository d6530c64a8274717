// The exact walk of causal_conv1d_bwd's channel-last kernels, for row ends where the fast walk would multiply an infinity or
// a NaN by the zeros behind the row.
#pragma once

#include "channel_last.h"

namespace aiter::conv1d::bwd {

// needs_exact reports whether walk would multiply a value that is not finite by the zeros behind the row, which makes a
// spurious NaN: a tap or, in a group with positions on both sides of the strip's end, one of the row's last inputs. Masked
// kernels distinguish such positions. With SiLU each gradient that sees an infinity is NaN anyway.
template <class T, int W, int N, bool kMasked, bool kUnaligned>
AITER_DEVICE bool ChannelLastWalk<T, W, N, kMasked, kUnaligned>::needs_exact(int to) const {
  const Backward& p = reload_kernarg(a).p;
  if (kMasked || p.silu || to + H <= int(p.seqlen)) return false;
  bool all_finite = true;
  AITER_UNROLL
  for (int k = 0; k < W; k++) all_finite = all_finite && finite(weight[k]);
  if (to % kGroup == 0) return !all_finite;
  const T* last = p.x.row<T>(b, d) + (to - H) * p.x.last;
  AITER_UNROLL
  for (int k = 0; k < H; k++, last += p.x.last)
    // past_x has the positions in front of the strip: the group sees those only if the strip is shorter than that.
    all_finite = all_finite && (to >= H || finite(past_x[k])) && (to - H + k < 0 || load_channels(last).finite());
  return !all_finite;
}

// walk_exact computes what walk computes without SiLU, one position at a time from memory: positions from..to of row b,
// channels from d on. Positions behind the row contribute nothing.
template <class T, int W, int N, bool kMasked, bool kUnaligned>
AITER_DEVICE void ChannelLastWalk<T, W, N, kMasked, kUnaligned>::walk_exact(int64_t b, int64_t d, int from, int to) {
  wait_group<0>();
  const Backward& p = reload_kernarg(a).p;
  AITER_ROLLED
  for (int t = from; t < to + H; t++) {
    const bool there = t < int(p.seqlen);
    Token token = {};
    if (there) token.x = load_channels(p.x.row<T>(b, d) + t * p.x.last), token.dout = load_channels(p.dout.row<T>(b, d) + t * p.dout.last);
    float out[N];
    step([there, this](int k) { return there && tap_exists(k); }, token, false, t < to, out);
    if (t - H >= from && t - H < to) store_channels(p.dx.row<T>(b, d) + (t - H) * p.dx.last, pack_vec<T, N>(out));
  }
}

// may_have_spurious_nan reports whether walk may have made a NaN that the exact walk does not make.
template <class T, int W, int N, bool kMasked, bool kUnaligned>
AITER_DEVICE bool ChannelLastWalk<T, W, N, kMasked, kUnaligned>::may_have_spurious_nan(int to) const {
  const Backward& p = reload_kernarg(a).p;
  if (kMasked || p.silu || to + H <= int(p.seqlen)) return false;
  bool all_finite = true;
  AITER_UNROLL
  for (int k = 0; k < W; k++) all_finite = all_finite && finite(weight[k]) && finite(sums[k]);
  return !all_finite;
}

// redo_exact repeats the strip from memory.
template <class T, int W, int N, bool kMasked, bool kUnaligned>
AITER_DEVICE void ChannelLastWalk<T, W, N, kMasked, kUnaligned>::redo_exact(int64_t b, int64_t d, int from, int to) {
  const Backward& p = reload_kernarg(a).p;
  AITER_UNROLL
  for (int k = 0; k <= W; k++) {
    AITER_UNROLL
    for (int i = 0; i < N; i++) sums[k][i] = 0.0f;
  }
  AITER_ROLLED
  for (int u = from - H; u < from; u++) {  // registers cannot be indexed: all move by one
    AITER_UNROLL
    for (int i = 0; i < N; i++) {
      AITER_UNROLL
      for (int k = 0; k + 1 < H; k++) past_x[k][i] = past_x[k + 1][i];
      past_x[H - 1][i] = u >= 0 || u + int(p.width) > 0 ? p.value<T>(b, d + i, u) : 0.0f;
    }
  }
  AITER_UNROLL
  for (int k = 0; k < H; k++) {
    AITER_UNROLL
    for (int i = 0; i < N; i++) partial_dx[k][i] = 0.0f;
  }
  walk_exact(b, d, from, to);
}

}  // namespace aiter::conv1d::bwd
