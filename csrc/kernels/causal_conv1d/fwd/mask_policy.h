// The policies of the forward kernels: where the masks and states of a row come from.
//
//   NoMask      a row is one sequence without states
//   MaskSource  any sequence numbers, packed sequences and states; for the general kernels
//   MaskWords   memory: a kernel before computed the masks
//   SeqIdx      adjacent and aligned sequence numbers, which threads compare
//   States      initial and final states, without masks
#pragma once

#include "../common/launch_gpu.h"
#include "../common/seq_mask_gpu.h"
#include "../common/state_gpu.h"

namespace aiter::conv1d {

struct NoMask {
  static constexpr bool kMasked = false, kPads = false, kStates = false, pads = false;
  static constexpr int kBlocks = 12;  // of a multiprocessor, for kVectorizedFirstBlocks
  template <int W, int N> struct Mask {
    AITER_DEVICE bool visible(int, int) const { return true; }
  };
};

// load_initial_states loads X[-(W-1)..-1] of a row; positions that a narrower filter does not reach are 0.
template <class T, int W>
AITER_DEVICE void load_initial_states(const Array3& initial, int width, int64_t b, int64_t d, T (&past)[W - 1]) {
  const int missing = W - width;
  const T* row = initial.row<T>(b, d) - missing * initial.last;
  AITER_UNROLL
  for (int k = 0; k < W - 1; k++) past[k] = initial.data && k >= missing ? load_readonly_element(row + k * initial.last) : T{};
}

// bits_from returns the bits from n on, of 32.
AITER_DEVICE uint32_t bits_from(int n) { return n < 0 ? ~0u : n > 31 ? 0 : ~0u << n; }

// MaskSource computes masks. With sequence numbers positions before 0 are not visible. In packed rows with states, another
// kernel writes the first width-1 positions of each sequence.
class MaskSource {
 public:
  static constexpr bool kMasked = true;
  static constexpr int kMaskThreads = 64;

  explicit MaskSource(const Forward& p) : p_(p), packed_() {}
  MaskSource(const Forward& p, const Stateful& packed) : p_(p), packed_(packed) {}

  // masks reports whether an existing position may not be visible to a later one.
  AITER_SHARED bool masks() const { return p_.seq.data || packed_.starts.data; }

  // multiplies_padding reports whether hidden positions count as zeros, which taps multiply: those in front of a packed
  // sequence do; those that a sequence number hides do not.
  AITER_SHARED bool multiplies_padding() const { return packed_.starts.data; }

  // has_states reports whether there are states.
  AITER_SHARED bool has_states() const { return p_.initial.data || p_.final.data; }

  // writes_final_states reports whether there are states to write.
  AITER_SHARED bool writes_final_states() const { return p_.final.data; }

  // find_mask adds the mask of n positions from start+t on, with sequence numbers G at a time, to the positions from `at` on of s.
  template <int W, int N, int G = N>
  AITER_DEVICE void find_mask(int64_t b, int64_t start, int t, int n, const Bounds& has, int at, SeqMask<W, N>* s) const {
    if (packed_.starts.data) return find_packed_mask(start + t, n, at, s);
    AITER_ROLLED
    for (int i = 0; i < n; i += G) {
      SequenceIds<W, G> ids;
      load_ids<W + G>(b, start, t + i - W, has, ids.id);
      s->merge(ids, at + i);
    }
  }

  // mask computes the mask of unit i of row b, a vector or a strip. A row's last unit ends with the row.
  template <int W, int N> AITER_DEVICE void mask(int64_t b, int64_t i, SeqMask<W, N>* out) const {
    const int64_t first = min64(i * N, p_.seqlen - N);
    auto mask = SeqMask<W, N>::none();
    find_mask(b, first, 0, N, {int(max64(-first, -32)), N}, 0, &mask);
    mask.show_missing_taps(int(p_.width));
    *out = mask;
  }

  // initial_state returns X[u] for u < 0.
  template <class T> AITER_DEVICE float initial_state(int64_t b, int64_t d, int64_t u) const {
    const int64_t i = u + p_.width - 1;
    return p_.initial.data && !p_.seq.data && i >= 0 ? to_float(p_.initial.row<T>(b, d)[i * p_.initial.last]) : 0.0f;
  }

  // insert_initial_states puts X[-(W-1)..-1] of a row among the values from t-W on.
  template <class T, int W, int M>
  AITER_DEVICE void insert_initial_states(int64_t b, int64_t d, int t, float (&value)[M]) const {
    if (!p_.initial.data || p_.seq.data) return;
    T past[W - 1];
    load_initial_states<T, W>(p_.initial, int(p_.width), b, d, past);
    AITER_ROLLED
    for (int k = 0; k < W - 1; k++) {  // registers cannot be indexed: all move by one
      const float v = to_float(past[0]);
      AITER_UNROLL
      for (int i = 1; i < M; i++) value[i] = t == k + 1 - i ? v : value[i];
      AITER_UNROLL
      for (int j = 0; j + 1 < W - 1; j++) past[j] = past[j + 1];
    }
  }

  // write_final_states copies a row's last values, bit for bit. All loads come first.
  template <class T, int W> AITER_DEVICE void write_final_states(int64_t b, int64_t d) const {
    if (!p_.final.data) return;
    const int n = int(p_.width) - 1;
    T value[W - 1], *final = p_.final.row<T>(b, d);
    const T *x = p_.x.row<T>(b, d), *initial = p_.initial.row<T>(b, d);
    AITER_UNROLL
    for (int j = 0; j < W - 1; j++) {
      const int64_t t = p_.seqlen - n + j;
      value[j] = T{};
      if (j < n && (t >= 0 || p_.initial.data)) value[j] = *(t >= 0 ? x + t * p_.x.last : initial + (t + n) * p_.initial.last);
    }
    AITER_UNROLL
    for (int j = 0; j < W - 1; j++)
      if (j < n) final[j * p_.final.last] = value[j];
  }

 private:
  // find_packed_mask is find_mask of a packed row, from position `first` on.
  template <int W, int N> AITER_DEVICE void find_packed_mask(int64_t first, int n, int at, SeqMask<W, N>* mask) const {
    const int64_t end = min64(first + n, p_.seqlen), head = packed_.has_state ? p_.width - 1 : 0;
    SequenceRange s;
    AITER_ROLLED
    for (int64_t u = first < 0 ? 0 : first; u < end; u = s.end) {
      s = find_sequence(packed_, u);
      if (!s.live) continue;
      const int since = int(max64(s.first - first, -32)), till = int(min64(s.end - first, n));  // 32 reach any filter
      const uint32_t own = bits_from(int(u - first)) & ~bits_from(till);
      const uint32_t skip = own & ~bits_from(since + int(min64(head, 32))), live = own & ~skip;
      mask->add(0, live << at), mask->add(1, skip << at);
      AITER_UNROLL
      for (int m = 1; m < W; m++) mask->add(m, (live & bits_from(since + m)) << at);
    }
  }

  // load_ids loads the sequence numbers of N positions from start+t on: -1 before the row, anything behind it.
  template <int N> AITER_DEVICE void load_ids(int64_t b, int64_t start, int t, const Bounds& has, int32_t* id) const {
    const int32_t* row = static_cast<const int32_t*>(p_.seq.data) + b * p_.seq.first + start * p_.seq.last;
    const bool packed = p_.seq.last == 1 && (reinterpret_cast<uintptr_t>(row + t) & 15) == 0 && (t & 3) == 0;
    AITER_UNROLL
    for (int i = 0; i < N; i += 4) {
      Words<4> w = {{~0u, ~0u, ~0u, ~0u}};
      if (packed) {
        if (t + i >= has.low && t + i < has.high) w = load_readonly<4>(row + t + i);
      } else {
        AITER_UNROLL
        for (int k = 0; k < 4; k++)
          if (t + i + k >= has.low && t + i + k < has.high)
            w.word[k] = load_readonly_element(reinterpret_cast<const uint32_t*>(row) + (t + i + k) * p_.seq.last);
      }
      AITER_UNROLL
      for (int k = 0; k < 4; k++) id[i + k] = int32_t(w.word[k]);
    }
  }

  Forward p_;
  Stateful packed_;
};

// MaskWords has a SeqMask for each vector of a row, or for each strip.
struct MaskWords {
  static constexpr bool kMasked = true, kPads = true, kStates = false;
  static constexpr int kBlocks = 10;
  const uint32_t* words;
  bool pads;  // MaskSource::multiplies_padding

  template <int W, int N> using Mask = SeqMask<W, N>;

  AITER_DEVICE void wait() const { pdl_wait(); }

  // load loads the mask of a unit of N positions of row b, which has `units` units.
  template <int W, int N> AITER_DEVICE Mask<W, N> load(uint32_t b, uint32_t unit, uint32_t units) const {
    return reinterpret_cast<const SeqMask<W, N>*>(words)[b * units + unit];
  }
};

// SeqIdx has sequence numbers that are adjacent and aligned to 16 bytes.
struct SeqIdx {
  static constexpr bool kMasked = true, kPads = false, kStates = false, pads = false;
  static constexpr int kBlocks = 6;
  const int32_t* data;
  int64_t batch;  // stride, in elements

  template <int W, int N> using Mask = SequenceIds<W, N>;

  AITER_DEVICE void wait() const {}

  template <int W, int N> AITER_DEVICE Mask<W, N> load(uint32_t b, uint32_t unit, uint32_t) const {
    const int32_t* row = data + b * batch + uint64_t(unit) * N - W;
    SequenceIds<W, N> s;  // -1 before the row
    AITER_UNROLL
    for (int k = 0; k < W + N; k += 4) {
      Words<4> w = {{~0u, ~0u, ~0u, ~0u}};
      if (k >= W || unit * N + k >= W) w = load_readonly<4>(row + k);
      __builtin_memcpy(s.id + k, &w, sizeof w);
    }
    return s;
  }
};

// States has states of rows of up to 4 taps whose positions are adjacent.
struct States {
  static constexpr bool kMasked = false, kPads = false, kStates = true, pads = false;
  static constexpr int kBlocks = 12;
  template <int W, int N> using Mask = NoMask::Mask<W, N>;
  Array3 initial, final;

  // store_final copies the last values of row d, bit for bit, from its last vector.
  template <class T> AITER_DEVICE void store_final(int width, uint32_t b, uint32_t d, const uint32_t* word) const {
    if (!final.data) return;
    constexpr int N = kVecElems<T>;
    T v[N], *row = final.row<T>(b, d) + (width - N - 1) * final.last;
    __builtin_memcpy(v, word, sizeof v);
    AITER_UNROLL
    for (int i = N - 3; i < N; i++)
      if (i > N - width) row[i * final.last] = v[i];
  }
};

}  // namespace aiter::conv1d
