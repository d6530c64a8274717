// The exact walk of causal_conv1d_bwd's channel-last kernels, for row ends where the fast walk would multiply an infinity or
// a NaN by the zeros behind the row.
#pragma once

#include "channel_last.h"

namespace aiter::conv1d::bwd {

// needs_exact reports whether walk would multiply a value that is not finite by the zeros behind the row, which makes a
// spurious NaN: a tap or, in a group that has positions of the strip and positions behind the row, one of the row's last
// inputs. Gated kernels tell such positions apart. With SiLU each gradient that sees an infinity is NaN anyway.
template <class T, int W, int N, bool Gated, bool Shifted>
AITER_DEVICE bool Column<T, W, N, Gated, Shifted>::needs_exact(int to) const {
  const Backward& p = again(a).p;
  if (Gated || p.silu || to + H <= int(p.seqlen)) return false;
  bool all_finite = true;
  AITER_UNROLL
  for (int k = 0; k < W; k++) all_finite = all_finite && finite(weight[k]);
  if (to % kAhead == 0) return !all_finite;
  const T* last = p.x.row<T>(b, d) + (to - H) * p.x.last;
  AITER_UNROLL
  for (int k = 0; k < H; k++, last += p.x.last)
    // past has the positions in front of the strip: those that the group sees only if the strip is shorter than that.
    all_finite = all_finite && (to >= H || finite(past[k])) && (to - H + k < 0 || read(last).finite());
  return !all_finite;
}

// walk_exact computes what walk computes without SiLU, one position after another from memory: positions from..to of row b,
// channels from d on. Positions behind the row contribute nothing.
template <class T, int W, int N, bool Gated, bool Shifted>
AITER_DEVICE void Column<T, W, N, Gated, Shifted>::walk_exact(int64_t b, int64_t d, int from, int to) {
  await<0>();
  const Backward& p = again(a).p;
  AITER_ROLLED
  for (int t = from; t < to + H; t++) {
    const bool there = t < int(p.seqlen);
    Token token = {};
    if (there) token.x = read(p.x.row<T>(b, d) + t * p.x.last), token.dout = read(p.dout.row<T>(b, d) + t * p.dout.last);
    float out[N];
    step([there, this](int k) { return there && exists(k); }, token, false, t < to, out);
    if (t - H >= from && t - H < to) write(p.dx.row<T>(b, d) + (t - H) * p.dx.last, pack<T, N>(out));
  }
}

// may_have_spurious_nan reports whether walk may have made a NaN that the exact walk does not make.
template <class T, int W, int N, bool Gated, bool Shifted>
AITER_DEVICE bool Column<T, W, N, Gated, Shifted>::may_have_spurious_nan(int to) const {
  const Backward& p = again(a).p;
  if (Gated || p.silu || to + H <= int(p.seqlen)) return false;
  bool all_finite = true;
  AITER_UNROLL
  for (int k = 0; k < W; k++) all_finite = all_finite && finite(weight[k]) && finite(sums[k]);
  return !all_finite;
}

// redo_exact repeats the strip from memory.
template <class T, int W, int N, bool Gated, bool Shifted>
AITER_DEVICE void Column<T, W, N, Gated, Shifted>::redo_exact(int64_t b, int64_t d, int from, int to) {
  const Backward& p = again(a).p;
  AITER_UNROLL
  for (int k = 0; k <= W; k++) {
    AITER_UNROLL
    for (int i = 0; i < N; i++) sums[k][i] = 0.0f;
  }
  AITER_ROLLED
  for (int u = from - H; u < from; u++) {  // registers have no index: all move on by one
    AITER_UNROLL
    for (int i = 0; i < N; i++) {
      AITER_UNROLL
      for (int k = 0; k + 1 < H; k++) past[k][i] = past[k + 1][i];
      past[H - 1][i] = u >= 0 || u + int(p.width) > 0 ? p.value<T>(b, d + i, u) : 0.0f;
    }
  }
  AITER_UNROLL
  for (int k = 0; k < H; k++) {
    AITER_UNROLL
    for (int i = 0; i < N; i++) unfinished[k][i] = 0.0f;
  }
  walk_exact(b, d, from, to);
}

}  // namespace aiter::conv1d::bwd
