// causal_conv1d_fwd on the GPU: the kernels of rows with sequence numbers or states,
// and of rows of which x and out lie differently. Tiling, bytes and reduction are
// those of causal_conv1d_fwd.hip.

#include "causal_conv1d_fwd_gpu.h"

namespace aiter::conv1d::fwd {

// Sequences is the gate of rows with sequence numbers or states. With numbers a
// position sees nothing before position 0.
class Sequences {
 public:
  static constexpr bool kPlain = false;

  explicit Sequences(const Forward& p) : p_(p) {}

  template <class T> AITER_DEVICE float before(int64_t b, int64_t d, int64_t u) const {
    const int64_t i = u + p_.width - 1;
    return p_.initial.data && !p_.seq.data && i >= 0 ? to_float(p_.initial.row<T>(b, d)[i * p_.initial.last]) : 0.0f;
  }

  // Begun is X from -(W-1) on to -1 in registers, for rows that begin at a vector.
  template <class T, int W> struct Begun {
    T value[W - 1];

    AITER_DEVICE void load(const Sequences& s, int64_t b, int64_t d) {
      AITER_UNROLL
      for (int k = 0; k < W - 1; k++) {
        const int64_t i = k - (W - s.p_.width);
        value[k] = T{};
        if (s.p_.initial.data && !s.p_.seq.data && i >= 0) value[k] = s.p_.initial.row<T>(b, d)[i * s.p_.initial.last];
      }
    }
  };

  // finish copies a row's last values, bit for bit. All loads come first.
  template <class T, int W> AITER_DEVICE void finish(int64_t b, int64_t d) const {
    if (!p_.final.data) return;
    const int n = int(p_.width) - 1;
    T value[W - 1], *final = p_.final.row<T>(b, d);
    const T *x = p_.x.row<T>(b, d), *initial = p_.initial.row<T>(b, d);
    AITER_UNROLL
    for (int j = 0; j < W - 1; j++) {
      const int64_t t = p_.seqlen - n + j;
      value[j] = T{};
      if (j < n && t >= 0) value[j] = x[t * p_.x.last];
      else if (j < n && p_.initial.data) value[j] = initial[(t + n) * p_.initial.last];
    }
    AITER_UNROLL
    for (int j = 0; j < W - 1; j++)
      if (j < n) final[j * p_.final.last] = value[j];
  }

  // Ids are the numbers of a vector of N positions and of W before it.
  template <int W, int N> struct Ids {
    int32_t id[W + N];
    static constexpr uint32_t skip = 0;

    AITER_DEVICE void load(const Sequences& s, int64_t b, int64_t start, int t, const Bounds& has) {
      if (s.p_.seq.data) s.load_ids<W + N>(b, start, t - W, has, id);
    }

    // same says whether all the positions see all.
    AITER_DEVICE bool same(const Sequences& s) const {
      if (!s.p_.seq.data) return true;
      bool all = id[W] >= 0;
      AITER_UNROLL
      for (int i = 1; i < W + N; i++) all = all && id[i] == id[W];
      return all;
    }
  };

  template <int W> AITER_DEVICE void start(int64_t b, int64_t t) {
    if (!p_.seq.data) return;
    AITER_UNROLL
    for (int k = 0; k < W - 1; k++) past_[k] = t - (W - 1) + k < 0 ? -1 : p_.sequence(b, t - (W - 1) + k);
  }

  // fetch puts the number of position t on its way, as the u-th.
  AITER_DEVICE void fetch(int64_t b, int64_t t, int u) {
    if (p_.seq.data) ahead_[u] = load_item(static_cast<const int32_t*>(p_.seq.data) + b * p_.seq.first + t * p_.seq.last);
  }

  // at is the byte of position t, the u-th of those fetched.
  template <int W> AITER_DEVICE uint32_t at(int64_t, int u, bool*) {
    if (!p_.seq.data) return ~0u;
    const int32_t id = ahead_[u];
    uint32_t see = id < 0 ? 0 : 0x80;
    AITER_UNROLL
    for (int k = 0; k < W - 1; k++) {
      see |= past_[k] == id ? 1u << k : 0;
      past_[k] = k + 1 < W - 1 ? past_[k + 1] : id;
    }
    return see;
  }

 private:
  // load_ids reads the numbers of N positions from start+t on; those before the row
  // are -1, those after it anything.
  template <int N> AITER_DEVICE void load_ids(int64_t b, int64_t start, int t, const Bounds& has, int32_t* id) const {
    const int32_t* row = static_cast<const int32_t*>(p_.seq.data) + b * p_.seq.first + start * p_.seq.last;
    const bool packed = p_.seq.last == 1 && (reinterpret_cast<uintptr_t>(row + t) & 15) == 0 && (t & 3) == 0;
    AITER_UNROLL
    for (int i = 0; i < N; i += 4) {
      Words<4> w = {{~0u, ~0u, ~0u, ~0u}};
      if (packed) {
        if (t + i >= has.low && t + i < has.high) w = load_words<4>(row + t + i);
      } else {
        AITER_UNROLL
        for (int k = 0; k < 4; k++)
          if (t + i + k >= has.low && t + i + k < has.high)
            w.word[k] = load_item(reinterpret_cast<const uint32_t*>(row) + (t + i + k) * p_.seq.last);
      }
      AITER_UNROLL
      for (int k = 0; k < 4; k++) id[i + k] = int32_t(w.word[k]);
    }
  }

  Forward p_;
  int32_t past_[7], ahead_[kAhead];
};

template <class T> Status launch(const Forward& p, gpu_stream_t stream) {
  if (p.width > 4) Kernels<T, 8, Sequences>{p, rows_of(p, p.out), stream, Sequences(p)}.run();
  else Kernels<T, 4, Sequences>{p, rows_of(p, p.out), stream, Sequences(p)}.run();
  return check_launch("causal_conv1d_fwd");
}

Status launch_sequences(const TensorView& x, const Forward& p, gpu_stream_t stream) {
  return dispatch_float(x, [&](auto zero) { return launch<decltype(zero)>(p, stream); });
}

}  // namespace aiter::conv1d::fwd
