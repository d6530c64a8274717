// What lies before the positions of a row, and which of it they see: sequence
// numbers, the sequences of a packed row, and states.
#pragma once

#include "../fwd/channel_first_gpu.h"
#include "state_gpu.h"

namespace aiter::conv1d {

// bits_from has the bits from n on, of 32.
AITER_DEVICE uint32_t bits_from(int n) { return n < 0 ? ~0u : n > 31 ? 0 : ~0u << n; }

// Sight is what up to 32 positions see: bit i of see[m-1] says that position i sees
// the one m before it, of live that it has a sequence, and of skip that its output is
// another kernel's.
template <int W> struct Sight {
  uint32_t see[W - 1], live, skip;

  AITER_DEVICE bool sees(int i, int m) const { return see[m - 1] >> i & 1; }

  // hides has the positions that do not see the one m before them.
  AITER_DEVICE uint32_t hides(int m) const { return ~see[m - 1]; }

  // add puts in what other positions see, from the at-th on.
  AITER_DEVICE void add(const Sight& s, int at) {
    AITER_UNROLL
    for (int m = 0; m < W - 1; m++) see[m] |= s.see[m] << at;
    live |= s.live << at, skip |= s.skip << at;
  }

  // all is the sight of positions that see either all or nothing, as their bits say.
  static AITER_DEVICE Sight all(uint32_t bits) {
    Sight s;
    AITER_UNROLL
    for (int m = 0; m < W - 1; m++) s.see[m] = bits;
    s.live = bits, s.skip = 0;
    return s;
  }

  // clear has the positions that see all.
  AITER_DEVICE uint32_t clear() const {
    uint32_t bits = live & ~skip;
    AITER_UNROLL
    for (int m = 0; m < W - 1; m++) bits &= see[m];
    return bits;
  }

  // forget keeps what a loop would compute of it before out of registers.
  AITER_DEVICE void forget() {
    AITER_UNROLL
    for (int m = 0; m < W - 1; m++) opaque(see[m]);
    opaque(live), opaque(skip);
  }
};

// Stretch is the sequence around a position, or a stretch without any.
struct Stretch {
  int64_t first, end;
  bool live;

  AITER_DEVICE bool has(int64_t t) const { return t >= first && t < end; }
};

// find looks t up in a packed row. Whatever starts holds, the answer has t or is not
// live; where sequences are out of order it may miss one.
AITER_DEVICE Stretch find(const Stateful& p, int64_t t) {
  int64_t low = 0;
  AITER_ROLLED
  for (int64_t n = p.batch; n > 1; n -= n / 2)  // the last that starts by t is one of n
    if (p.starts[low + n / 2] <= t) low += n / 2;
  if (p.batch == 0 || p.starts[low] > t) return {t, t + 1, false};
  const Sequence s = p.sequence(low);
  const Stretch found{s.start, s.start + s.len, s.live};
  return found.has(t) ? found : Stretch{t, t + 1, false};
}

// Gate is for rows with sequence numbers, where a position sees nothing before
// position 0, for rows with states, and for packed rows, of which the first width-1
// positions of each sequence are not the kernel's where there are states.
class Gate {
 public:
  static constexpr bool kPlain = false;

  explicit Gate(const Forward& p) : p_(p), packed_() {}
  Gate(const Forward& p, const Stateful& packed) : p_(p), packed_(packed) {}

  // hides says whether a position may not see one that there is.
  AITER_SHARED bool hides() const { return p_.seq.data || packed_.starts.data; }

  // pads reports whether positions that one does not see are zeros to it, which taps multiply: those in front of a
  // packed sequence are. With those that a sequence number hides there is no product.
  AITER_SHARED bool pads() const { return packed_.starts.data; }

  // keeps says whether there are states.
  AITER_SHARED bool keeps() const { return p_.initial.data || p_.final.data; }

  // finishes says whether there are states to write.
  AITER_SHARED bool finishes() const { return p_.final.data; }

  // look finds out what n positions from start+t on see, G at a time where there are
  // sequence numbers, and puts it into the bits from `at` on.
  template <int W, int G> AITER_DEVICE void look(int64_t b, int64_t start, int t, int n, const Bounds& has, int at, Sight<W>* s) const {
    if (packed_.starts.data) return look_packed<W>(start + t, n, at, s);
    AITER_ROLLED
    for (int i = 0; i < n; i += G) {
      int32_t id[W + G], differ = 0;
      load_ids<W + G>(b, start, t + i - W, has, id);
      AITER_UNROLL
      for (int k = 1; k < W + G; k++) differ |= id[k] ^ id[W];
      if (differ == 0 && id[W] >= 0) s->add(Sight<W>::all((1u << G) - 1), at + i);
      else s->add(compare<W, G>(id), at + i);
    }
  }

  // before is X[u] for u < 0.
  template <class T> AITER_DEVICE float before(int64_t b, int64_t d, int64_t u) const {
    const int64_t i = u + p_.width - 1;
    return p_.initial.data && !p_.seq.data && i >= 0 ? to_float(p_.initial.row<T>(b, d)[i * p_.initial.last]) : 0.0f;
  }

  // put_before puts X from -(W-1) on to -1 of a row among the values from t-W on, if it has such.
  template <class T, int W, int M> AITER_DEVICE void put_before(int64_t b, int64_t d, int t, float (&value)[M]) const {
    if (!p_.initial.data || p_.seq.data) return;
    const int missing = W - int(p_.width);
    const T* row = p_.initial.row<T>(b, d) - missing * p_.initial.last;
    T past[W - 1];
    AITER_UNROLL
    for (int k = 0; k < W - 1; k++) past[k] = k >= missing ? load_item(row + k * p_.initial.last) : T{};
    AITER_ROLLED
    for (int k = 0; k < W - 1; k++) {  // registers have no index: all move on by one
      const float v = to_float(past[0]);
      AITER_UNROLL
      for (int i = 1; i < M; i++) value[i] = t == k + 1 - i ? v : value[i];
      AITER_UNROLL
      for (int j = 0; j + 1 < W - 1; j++) past[j] = past[j + 1];
    }
  }

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
      if (j < n && (t >= 0 || p_.initial.data)) value[j] = *(t >= 0 ? x + t * p_.x.last : initial + (t + n) * p_.initial.last);
    }
    AITER_UNROLL
    for (int j = 0; j < W - 1; j++)
      if (j < n) final[j * p_.final.last] = value[j];
  }

  // Strip is what up to 32 positions see, which do not cross a multiple of 32: those of
  // t have bit t % 32.
  template <int W> class Strip {
   public:
    // look looks up n positions from t on.
    AITER_DEVICE void look(const Gate& gate, int64_t b, int64_t t, int n) {
      pads_ = gate.pads() ? 1u << 8 : 0;
      sight_ = Sight<W>::all(gate.hides() ? 0 : ~0u);
      if (gate.hides()) gate.look<W, 8>(b, t, 0, n, {int(larger(-t, -32)), n}, int(t & 31), &sight_);
      hidden_ = ~sight_.clear();
    }

    // whole says whether the A positions from t on see all, next what one sees: a bit a
    // tap, bit 7 that it has a sequence, bit 8 that the others are zeros to it.
    template <int A> AITER_DEVICE bool whole(int64_t t) const { return !(hidden_ >> (t & 31) & ((1u << A) - 1)); }
    AITER_DEVICE uint32_t next(int64_t t, bool* skip) const {
      uint32_t see = (sight_.live >> (t & 31) & 1) << 7 | pads_;
      AITER_UNROLL
      for (int k = 0; k < W - 1; k++) see |= (sight_.see[W - 2 - k] >> (t & 31) & 1) << k;
      *skip = sight_.skip >> (t & 31) & 1;
      return see;
    }

   private:
    Sight<W> sight_;
    uint32_t hidden_, pads_;
  };

 private:
  // compare makes bits of the numbers of G positions and of W before them.
  template <int W, int G> static AITER_DEVICE Sight<W> compare(const int32_t* id) {
    Sight<W> s = Sight<W>::all(0);
    AITER_UNROLL
    for (int i = 0; i < G; i++) {
      s.live |= id[W + i] >= 0 ? 1u << i : 0;
      AITER_UNROLL
      for (int m = 1; m < W; m++) s.see[m - 1] |= id[W + i] == id[W + i - m] ? 1u << i : 0;
    }
    return s;
  }

  // look_packed is look from position `first` of a packed row on.
  template <int W> AITER_DEVICE void look_packed(int64_t first, int n, int at, Sight<W>* sight) const {
    const int64_t end = least(first + n, p_.seqlen), head = packed_.keeps ? p_.width - 1 : 0;
    Stretch s;
    AITER_ROLLED
    for (int64_t u = first < 0 ? 0 : first; u < end; u = s.end) {
      s = find(packed_, u);
      if (!s.live) continue;
      const int since = int(larger(s.first - first, -32)), till = int(least(s.end - first, n));  // 32 reach any filter
      const uint32_t own = bits_from(int(u - first)) & ~bits_from(till);
      Sight<W> found;
      found.live = own, found.skip = own & ~bits_from(since + int(least(head, 32)));
      AITER_UNROLL
      for (int m = 1; m < W; m++) found.see[m - 1] = own & bits_from(since + m);
      sight->add(found, at);
    }
  }

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
  Stateful packed_;
};

}  // namespace aiter::conv1d
