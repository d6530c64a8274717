// A sequence and its slot, on the CPU: tiles of 16 channels by 128 positions.
#pragma once

#include "causal_conv1d_cpu.h"
#include "causal_conv1d_state.h"

namespace aiter::conv1d {

// Runner computes sequences of some channels. It holds the memory of one tile.
template <class T> class Runner {
 public:
  explicit Runner(const Stateful& p) : p_(p), halo_(p.width - 1) {}

  bool prepare() {
    return halo_ <= (INT64_MAX >> 8) && filter_.grow(p_.width) && x_.grow(kTokens + halo_) && y_.grow(kTokens);
  }

  // take chooses the channels: kLanes from d on, or what is left.
  void take(int64_t d) {
    d_ = d, count_ = int(least(kLanes, p_.dim - d));
    filter_.read(p_, {0, d_, count_});
  }

  // run computes a sequence and leaves its state, or clears its out.
  void run(const Sequence& s) {
    if (!s.live) return clear(s);
    const Channels c{s.row, d_, count_};
    for (int64_t t = 0; t < s.len; t += kTokens) {
      const int64_t n = least(kTokens, s.len - t);
      values(s, c, t - halo_, n + halo_);
      for (int64_t i = 0; i < n; i++) {
        filter_.sum(p_, s.row, s.start + t + i, x_.row(i), y_.row(i));
        if (p_.silu) activate(y_.row(i));
      }
      scatter<T>(p_.out, c, s.start + t, n, y_.row(0));
    }
    for (int j = 0; p_.keeps && j < count_; j++) p_.template remember<T>(s, d_ + j);
  }

  // clear writes zeros where s lies within x.
  void clear(const Sequence& s) {
    const int64_t from = s.start > 0 ? s.start : 0, end = least(s.start + s.len, p_.seqlen);
    for (int64_t t = from; t < end; t++)
      for (int j = 0; j < count_; j++) p_.out.template row<T>(s.row, d_ + j)[t * p_.out.last] = round_to<T>(0.0f);
  }

 private:
  // values reads X[from..from+n] of the sequence into x_.
  void values(const Sequence& s, const Channels& c, int64_t from, int64_t n) {
    const int64_t before = least(from < 0 ? -from : 0, n);
    for (int64_t i = 0; i < before; i++) {
      if (s.remembers) gather<T>(p_.state, {s.slot, c.d, c.count}, p_.history(s, from + i), 1, x_.row(i));
      else for (int j = 0; j < kLanes; j++) x_.row(i)[j] = 0.0f;
    }
    if (before < n) gather<T>(p_.x, c, s.start + from + before, n - before, x_.row(before));
  }

  static void activate(float* y) {
    float s[kLanes];
    sigmoid(y, s);
    for (int j = 0; j < kLanes; j++) y[j] *= s[j];
  }

  const Stateful& p_;
  const int64_t halo_;  // W-1
  int64_t d_ = 0;
  int count_ = 0;
  Filter filter_;
  Buffer x_, y_;
};

}  // namespace aiter::conv1d
