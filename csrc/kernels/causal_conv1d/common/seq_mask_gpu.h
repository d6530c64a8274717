// The sequence masks of the forward kernels: which earlier positions of a row each position sees, by sequence numbers or by the
// sequences of a packed row; and the states before and behind a row.
#pragma once

#include "../fwd/channel_first_gpu.h"
#include "state_gpu.h"

namespace aiter::conv1d {

// bits_from returns the bits from n on, of 32.
AITER_DEVICE uint32_t bits_from(int n) { return n < 0 ? ~0u : n > 31 ? 0 : ~0u << n; }

// SeqMask is the mask of up to 32 positions, one bit a position: bit i of distance[m-1] is set if position i sees the position m
// before it, of live if it belongs to a sequence, of skip if another kernel writes its output.
template <int W> struct SeqMask {
  uint32_t distance[W - 1], live, skip;

  AITER_DEVICE bool visible(int i, int m) const { return distance[m - 1] >> i & 1; }

  // hidden returns the positions that do not see the position m before them.
  AITER_DEVICE uint32_t hidden(int m) const { return ~distance[m - 1]; }

  // merge adds the mask of other positions, from bit `at` on.
  AITER_DEVICE void merge(const SeqMask& s, int at) {
    AITER_UNROLL
    for (int m = 0; m < W - 1; m++) distance[m] |= s.distance[m] << at;
    live |= s.live << at, skip |= s.skip << at;
  }

  // uniform is the mask of positions that see either all or nothing, as their bits say.
  static AITER_DEVICE SeqMask uniform(uint32_t bits) {
    SeqMask s;
    AITER_UNROLL
    for (int m = 0; m < W - 1; m++) s.distance[m] = bits;
    s.live = bits, s.skip = 0;
    return s;
  }

  // fully_visible returns the positions that see all taps.
  AITER_DEVICE uint32_t fully_visible() const {
    uint32_t bits = live & ~skip;
    AITER_UNROLL
    for (int m = 0; m < W - 1; m++) bits &= distance[m];
    return bits;
  }

  // launder_all prevents the compiler from hoisting expressions of the mask out of a loop.
  AITER_DEVICE void launder_all() {
    AITER_UNROLL
    for (int m = 0; m < W - 1; m++) launder(distance[m]);
    launder(live), launder(skip);
  }
};

// SequenceRange is the sequence of a position, or a range without a sequence.
struct SequenceRange {
  int64_t first, end;
  bool live;

  AITER_DEVICE bool has(int64_t t) const { return t >= first && t < end; }
};

// find_sequence finds the sequence of t in a packed row. For any content of starts the result contains t or is not live; if
// sequences are out of order it may miss one.
AITER_DEVICE SequenceRange find_sequence(const Stateful& p, int64_t t) {
  int64_t low = 0;
  AITER_ROLLED
  for (int64_t n = p.batch; n > 1; n -= n / 2)  // the last sequence that starts by t is one of n
    if (p.starts[low + n / 2] <= t) low += n / 2;
  if (p.batch == 0 || p.starts[low] > t) return {t, t + 1, false};
  const Sequence s = p.sequence(low);
  const SequenceRange found{s.start, s.start + s.len, s.live};
  return found.has(t) ? found : SequenceRange{t, t + 1, false};
}

// MaskSource computes masks. With sequence numbers a position sees nothing before position 0. In packed rows with states, another
// kernel writes the first width-1 positions of each sequence.
class MaskSource {
 public:
  static constexpr bool kUnmasked = false;

  explicit MaskSource(const Forward& p) : p_(p), packed_() {}
  MaskSource(const Forward& p, const Stateful& packed) : p_(p), packed_(packed) {}

  // masks reports whether a position may not see an existing position.
  AITER_SHARED bool masks() const { return p_.seq.data || packed_.starts.data; }

  // multiplies_padding reports whether hidden positions count as zeros, which taps multiply: those in front of a packed
  // sequence do; those that a sequence number hides do not.
  AITER_SHARED bool multiplies_padding() const { return packed_.starts.data; }

  // has_states reports whether there are states.
  AITER_SHARED bool has_states() const { return p_.initial.data || p_.final.data; }

  // writes_final_states reports whether there are states to write.
  AITER_SHARED bool writes_final_states() const { return p_.final.data; }

  // find_mask computes the mask of n positions from start+t on, with sequence numbers G at a time, into the bits from `at` on.
  template <int W, int G>
  AITER_DEVICE void find_mask(int64_t b, int64_t start, int t, int n, const Bounds& has, int at, SeqMask<W>* s) const {
    if (packed_.starts.data) return find_packed_mask<W>(start + t, n, at, s);
    AITER_ROLLED
    for (int i = 0; i < n; i += G) {
      int32_t id[W + G], differ = 0;
      load_ids<W + G>(b, start, t + i - W, has, id);
      AITER_UNROLL
      for (int k = 1; k < W + G; k++) differ |= id[k] ^ id[W];
      if (differ == 0 && id[W] >= 0) s->merge(SeqMask<W>::uniform((1u << G) - 1), at + i);
      else s->merge(compare<W, G>(id), at + i);
    }
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
    const int missing = W - int(p_.width);
    const T* row = p_.initial.row<T>(b, d) - missing * p_.initial.last;
    T past[W - 1];
    AITER_UNROLL
    for (int k = 0; k < W - 1; k++) past[k] = k >= missing ? load_readonly_element(row + k * p_.initial.last) : T{};
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

  // StripMask is the mask of up to 32 positions that do not cross a multiple of 32: position t has bit t % 32.
  template <int W> class StripMask {
   public:
    // load computes the mask of n positions from t on.
    AITER_DEVICE void load(const MaskSource& source, int64_t b, int64_t t, int n) {
      pads_ = source.multiplies_padding() ? 1u << 8 : 0;
      sight_ = SeqMask<W>::uniform(source.masks() ? 0 : ~0u);
      if (source.masks()) source.find_mask<W, 8>(b, t, 0, n, {int(max64(-t, -32)), n}, int(t & 31), &sight_);
      hidden_ = ~sight_.fully_visible();
    }

    // all_visible reports whether the A positions from t on see all taps. at returns the mask of position t: a bit a tap, bit 7 if
    // it belongs to a sequence, bit 8 if hidden positions count as zeros.
    template <int A> AITER_DEVICE bool all_visible(int64_t t) const { return !(hidden_ >> (t & 31) & ((1u << A) - 1)); }
    AITER_DEVICE uint32_t at(int64_t t, bool* skip) const {
      uint32_t visible = (sight_.live >> (t & 31) & 1) << 7 | pads_;
      AITER_UNROLL
      for (int k = 0; k < W - 1; k++) visible |= (sight_.distance[W - 2 - k] >> (t & 31) & 1) << k;
      *skip = sight_.skip >> (t & 31) & 1;
      return visible;
    }

   private:
    SeqMask<W> sight_;
    uint32_t hidden_, pads_;
  };

 private:
  // compare computes the mask of G positions from their sequence numbers and those of the W positions before.
  template <int W, int G> static AITER_DEVICE SeqMask<W> compare(const int32_t* id) {
    SeqMask<W> s = SeqMask<W>::uniform(0);
    AITER_UNROLL
    for (int i = 0; i < G; i++) {
      s.live |= id[W + i] >= 0 ? 1u << i : 0;
      AITER_UNROLL
      for (int m = 1; m < W; m++) s.distance[m - 1] |= id[W + i] == id[W + i - m] ? 1u << i : 0;
    }
    return s;
  }

  // find_packed_mask is find_mask of a packed row, from position `first` on.
  template <int W> AITER_DEVICE void find_packed_mask(int64_t first, int n, int at, SeqMask<W>* mask) const {
    const int64_t end = min64(first + n, p_.seqlen), head = packed_.keeps ? p_.width - 1 : 0;
    SequenceRange s;
    AITER_ROLLED
    for (int64_t u = first < 0 ? 0 : first; u < end; u = s.end) {
      s = find_sequence(packed_, u);
      if (!s.live) continue;
      const int since = int(max64(s.first - first, -32)), till = int(min64(s.end - first, n));  // 32 reach any filter
      const uint32_t own = bits_from(int(u - first)) & ~bits_from(till);
      SeqMask<W> found;
      found.live = own, found.skip = own & ~bits_from(since + int(min64(head, 32)));
      AITER_UNROLL
      for (int m = 1; m < W; m++) found.distance[m - 1] = own & bits_from(since + m);
      mask->merge(found, at);
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

}  // namespace aiter::conv1d
