// causal_conv1d_fwd on the GPU: the kernels of rows with sequence numbers or states,
// and of rows of which x and out lie differently. Tiling, bytes and reduction are
// those of causal_conv1d_fwd.hip.

#include "causal_conv1d_fwd_gpu.h"

namespace aiter::conv1d::fwd {

// States are those before and after rows, if any. With sequence numbers a position
// sees nothing before position 0.
class States {
 public:
  explicit States(const Forward& p) : p_(p) {}

  template <class T> AITER_DEVICE float before(int64_t b, int64_t d, int64_t u) const {
    const int64_t i = u + p_.width - 1;
    return p_.initial.data && !p_.seq.data && i >= 0 ? to_float(p_.initial.row<T>(b, d)[i * p_.initial.last]) : 0.0f;
  }

  // Past is X from -(W-1) on to -1, for those who see it.
  template <class T, int W> struct Past {
    T x[W - 1];

    AITER_DEVICE void load(const States& s, const Tile<T>& tile) {
      AITER_UNROLL
      for (int k = 0; k < W - 1; k++) x[k] = T{};
      if (tile.start + tile.first >= W || !s.p_.initial.data) return;
      const int missing = W - int(s.p_.width);
      const T* row = s.p_.initial.row<T>(tile.b, tile.d) - missing * s.p_.initial.last;
      AITER_UNROLL
      for (int k = 0; k < W - 1; k++)
        if (k >= missing) x[k] = load_item(row + k * s.p_.initial.last);
    }

    // put puts it among the values from t-W on.
    template <int M> AITER_DEVICE void put(int t, float (&value)[M]) const {
      AITER_UNROLL
      for (int k = 0; k < W - 1; k++) {
        const float past = to_float(x[k]);
        AITER_UNROLL
        for (int i = 1; i < M; i++) value[i] = t == k + 1 - i ? past : value[i];
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

 protected:
  Forward p_;
};

// Sequences is the gate of rows with sequence numbers, and of tokens with states.
class Sequences : public States {
 public:
  static constexpr bool kPlain = false;

  explicit Sequences(const Forward& p) : States(p) {}

  // Ids are the numbers of a vector of N positions and of W before it.
  template <int W, int N> struct Ids {
    int32_t id[W + N];

    AITER_DEVICE void load(const Sequences& s, int64_t b, int64_t start, int t, const Bounds& has) {
      if (s.p_.seq.data) s.load_ids<W + N>(b, start, t - W, has, id);
    }

    // whole says whether all the positions see all.
    AITER_DEVICE bool whole(const Sequences& s) const {
      if (!s.p_.seq.data) return true;
      int32_t differ = 0;
      AITER_UNROLL
      for (int i = 1; i < W + N; i++) differ |= id[i] ^ id[W];
      return differ == 0 && id[W] >= 0;
    }

    AITER_DEVICE Sight<W> sight(const Sequences&, int64_t, int) const {
      Sight<W> sight{};
      AITER_UNROLL
      for (int i = 0; i < N; i++) {
        sight.live |= id[W + i] >= 0 ? 1u << i : 0;
        AITER_UNROLL
        for (int m = 1; m < W; m++) sight.see[m - 1] |= id[W + i] == id[W + i - m] ? 1u << i : 0;
      }
      return sight;
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

  // whole says whether the next A positions see all.
  template <int W, int A> AITER_DEVICE bool whole(int64_t) const {
    if (!p_.seq.data) return true;
    int32_t differ = 0;
    AITER_UNROLL
    for (int u = 1; u < A; u++) differ |= ahead_[u] ^ ahead_[0];
    AITER_UNROLL
    for (int k = 0; k < W - 1; k++) differ |= past_[k] ^ ahead_[0];
    return differ == 0 && ahead_[0] >= 0;
  }

  // next is the byte of the next position, and goes on to the one after it.
  template <int W, int A> AITER_DEVICE uint32_t next(int64_t, bool*) {
    if (!p_.seq.data) return ~0u;
    const int32_t id = ahead_[0];
    uint32_t see = id < 0 ? 0 : 0x80;
    AITER_UNROLL
    for (int u = 0; u + 1 < A; u++) ahead_[u] = ahead_[u + 1];
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

  int32_t past_[7], ahead_[8];
};

template <class T, int W>
__global__ void __launch_bounds__(kThreads) causal_conv1d_fwd_groups_kernel(Rows a, Sequences gate) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < a.total) run_groups<T, W>(a, gate, i);
}

template <class T, int W> void launch(const Forward& p, gpu_stream_t stream) {
  Rows a = rows_of(p, p.out);
  if (!in_rows(p)) return launch_tokens<T, W>(a, p, stream, Sequences(p));
  const Extent rows = extent_of_rows<T>(a, p.batch, kVectors);
  if (!p.seq.data && !p.initial.data && !p.final.data) return launch_rows<T, W, true>(a, rows, stream, Stateless());
  if (!p.seq.data) return launch_rows<T, W, true>(a, rows, stream, States(p));
  const Extent e = extent_of_groups<T>(&a, p.batch);
  for_parts(a, e, [&](const Rows& part, unsigned grid, unsigned threads) {
    causal_conv1d_fwd_groups_kernel<T, W><<<grid, threads, 0, stream>>>(part, Sequences(p));
  });
}

Status launch_sequences(const TensorView& x, const Forward& p, gpu_stream_t stream) {
  return dispatch_float(x, [&](auto zero) {
    p.width > 4 ? launch<decltype(zero), 8>(p, stream) : launch<decltype(zero), 4>(p, stream);
    return check_launch("causal_conv1d_fwd");
  });
}

}  // namespace aiter::conv1d::fwd
