// Serving updates of adjacent channels on the GPU: 2 to 8 taps, x, out and states of one type in aligned vectors of 16 bytes.
//
// Tiling: a block has 64 threads of one sequence, a thread C adjacent channels, tile by tile of tokens. The loads of the filter, of the
// state and of the first tile are in flight together.
// Bytes: x and out once; of a state what is read and what is kept; the taps once a sequence, from cache. In trees values of x and of
// the state are read once a tap, from cache.
// Reduction: over the width, in one thread's fp32 registers, the oldest value first.
#pragma once

#include "../common/filter_gpu.h"
#include "../common/served.h"
#include "../common/state_gpu.h"
#include "index.h"

namespace aiter::conv1d::serve {

// TokenForm is what a kernel computes.
enum class TokenForm {
  kMany,  // any number of tokens, accepted tokens, blocks; W taps of type T
  kAny,   // everything; at most W taps of any type
};

// TokenVectors is C channels of a sequence.
template <class T, int W, int C, TokenForm kForm> class TokenVectors {
  using V = Vec<T, C>;
  static constexpr bool kAny = kForm == TokenForm::kAny;
  static constexpr int H = W - 1, kTile = kAny ? 2 : 4;
  static constexpr int kTogether = C == kVecElems<T> ? 1 : 2;  // tokens whose sums are side by side

 public:
  // The constructor issues the loads of the filter.
  AITER_DEVICE TokenVectors(const Served& p, int64_t d) : d_(d), none_(kAny ? W - int(p.width) : 0) { filter_.load(filter_of(p), d); }

  // load_x issues the loads of the first tile.
  AITER_DEVICE void load_x(const Served& p, const ServedSequence& r) {
    const int part = p.part_of(d_);
    out_ = p.out[part].row<T>(r.row, d_ - p.begin_of(part)), step_ = p.out[part].last;
    load_tile(p, r, 0);
  }

  // load_state issues the loads of the values before the first token.
  AITER_DEVICE void load_state(const Served& p, const ServedSequence& r) {
    const T* at = entry(p, r.from, r.end - H);
    AITER_UNROLL
    for (int k = 0; k < H; k++)
      if (has_tap(k)) value_[k] = load_vec<T, C>(at + k * p.state.last);
  }

  AITER_DEVICE void convert_filter(const Served& p) { filter_.convert(filter_of(p)); }

  // run computes the sequence and writes its slot. out may be x, without a tree.
  AITER_DEVICE void run(const Served& p, const ServedSequence& r, int64_t b) {
    const int64_t row = kAny ? p.window_row(r, b) : -1;
    if constexpr (kAny) {
      if (p.parents.data) return run_tree(p, r, b, row);
    }
    const bool rolls = !p.accepted.data && p.kept == p.width - 1;  // the slot is the window
    const int len = int(r.len);
    if (!rolls) shift(p, r);
    AITER_ROLLED
    for (int t = 0;;) {
      AITER_UNROLL
      for (int i = 0; i < kTile; i += kTogether) {
        if (t + i < len) compute<kTogether>(p, r, t + i, i, row);
        AITER_UNROLL
        for (int n = 1; n <= kTogether; n++)
          if (t + i + n == len && rolls) keep(p, r, i + n);
      }
      if ((t += kTile) >= len) return;
      AITER_UNROLL
      for (int k = 0; k < H; k++) value_[k] = value_[k + kTile];
      load_tile(p, r, t);
    }
  }

  // clear_outside clears the positions that belong to no sequence, of which sequence b is a neighbour.
  AITER_DEVICE void clear_outside(const Served& p, const ServedSequence& r, int64_t b) const {
    if (!p.clears || (r.live && !p.starts.data)) return;
    const int64_t from = p.starts.data ? p.starts.at(b) : 0, to = p.starts.data ? p.starts.at(b + 1) : p.seqlen;
    if (!r.live) clear(p, from, to);
    if (!p.starts.data) return;
    if (b == 0) clear(p, 0, from);
    if (b == p.batch - 1) clear(p, to >= from ? to : from, p.seqlen);
  }

 private:
  AITER_DEVICE static FilterSource filter_of(const Served& p) {
    return {p.weight, p.bias, p.dim, int32_t(p.width), p.packed_weight, p.packed_bias};
  }
  AITER_DEVICE bool has_tap(int k) const { return !kAny || filter_.has_tap(k); }

  AITER_DEVICE T* entry(const Served& p, int64_t slot, int64_t i) const { return p.state.row<T>(slot, d_) + i * p.state.last; }

  AITER_DEVICE void load_tile(const Served& p, const ServedSequence& r, int t) {
    const T* at = p.inputs<T>(r, d_) + t * p.x.last;
    AITER_UNROLL
    for (int i = 0; i < kTile; i++)
      if (t + i < int(r.len)) value_[H + i] = load_vec<T, C>(at + i * p.x.last);
  }

  // compute computes token t from the values i to i + W - 1, and together with it the next ones, up to N, that exist.
  template <int N> AITER_DEVICE void compute(const Served& p, const ServedSequence& r, int t, int i, int64_t row) const {
    float y[N][C];
    AITER_UNROLL
    for (int n = 0; n < N; n++) {
      AITER_UNROLL
      for (int c = 0; c < C; c++) {
        y[n][c] = filter_.bias[c];
        AITER_UNROLL
        for (int k = 0; k < W; k++)
          if (has_tap(k)) y[n][c] = fmaf(filter_.weight[c][k], value_[i + n + k].value(c), y[n][c]);
      }
    }
    if (p.silu) {
      AITER_UNROLL
      for (int n = 0; n < N; n++)
        AITER_UNROLL
        for (int c = 0; c < C; c++) y[n][c] *= sigmoid(y[n][c]);
    }
    AITER_UNROLL
    for (int n = 0; n < N; n++) {
      if (n > 0 && t + n >= int(r.len)) return;
      finish(p, r, t + n, y[n]);
      if constexpr (kAny) {
        if (row >= 0 && t + n < p.steps) save_window(p, row, t + n, i + n + 1);
      }
      if (p.accepted.data && r.to >= 0 && !p.parents.data) store_vec<T, C>(entry(p, r.to, p.width - 2 + t + n), value_[i + n + H]);
    }
  }

  AITER_DEVICE void finish(const Served& p, const ServedSequence& r, int t, float (&y)[C]) const {
    if constexpr (kAny) {
      if (p.residual.data) {
        const V added = load_vec<T, C>(p.residual.row<T>(r.row, d_) + (r.start + t) * p.residual.last);
        AITER_UNROLL
        for (int c = 0; c < C; c++) y[c] += added.value(c);
      }
    }
    V result;
    AITER_UNROLL
    for (int n = 0; n < V::kWords; n++) result.word[n] = pack_word<T>(y + n * kWordElems<T>);
    store_vec<T, C>(out_ + (r.start + t) * step_, result);
  }

  // keep writes the values from `first` on as the slot.
  AITER_DEVICE void keep(const Served& p, const ServedSequence& r, int first) const {
    if (r.to < 0) return;
    T* at = entry(p, r.to, -none_);
    AITER_UNROLL
    for (int k = 0; k < H; k++)
      if (has_tap(k)) store_vec<T, C>(at + k * p.state.last, value_[first + k]);
  }

  // shift writes the slot before the tokens are computed: with accepted tokens the values in front of them, otherwise all.
  AITER_DEVICE void shift(const Served& p, const ServedSequence& r) const {
    if (!p.accepted.data) return store_state(p, r, p.kept);
    if (r.to < 0) return;
    T* at = entry(p, r.to, -none_ - 1);
    AITER_UNROLL
    for (int k = 1; k < H; k++)
      if (has_tap(k - 1)) store_vec<T, C>(at + k * p.state.last, value_[k]);
  }

  // store_state writes the last n values to the slot, from memory. It reads each value before it writes the value's place.
  AITER_DEVICE void store_state(const Served& p, const ServedSequence& r, int64_t n) const {
    constexpr int kAtOnce = 2;
    if (r.to < 0) return;
    AITER_ROLLED
    for (int64_t j = 0; j < n; j += kAtOnce) {
      V v[kAtOnce];
      AITER_UNROLL
      for (int i = 0; i < kAtOnce; i++)
        if (j + i < n) v[i] = load_vec<T, C>(place(p, r, r.len - n + j + i));
      AITER_UNROLL
      for (int i = 0; i < kAtOnce; i++)
        if (j + i < n) store_vec<T, C>(entry(p, r.to, j + i), v[i]);
    }
  }

  // place returns the address of X[u].
  AITER_DEVICE const T* place(const Served& p, const ServedSequence& r, int64_t u) const {
    return u >= 0 ? p.inputs<T>(r, d_) + u * p.x.last : entry(p, r.from, r.end + u);
  }

  AITER_DEVICE void run_tree(const Served& p, const ServedSequence& r, int64_t b, int64_t row) {
    AITER_ROLLED
    for (int t = 0; t < int(r.len); t++) {
      const T* at[W];
      int64_t u = t;
      AITER_UNROLL
      for (int k = H; k >= 0; k--) {
        if (!has_tap(k)) continue;
        at[k] = place(p, r, u);
        u = u > 0 ? p.parent(b, u) : u - 1;
      }
      AITER_UNROLL
      for (int k = 0; k < W; k++)
        if (has_tap(k)) value_[k] = load_vec<T, C>(at[k]);
      compute<1>(p, r, t, 0, row);
    }
    store_state(p, r, p.accepted.data ? p.width - 2 + r.len : p.kept);
  }

  AITER_DEVICE void save_window(const Served& p, int64_t row, int64_t t, int first) const {
    T* at = static_cast<T*>(p.window.data) + row * p.window.batch + t * p.step + d_ * p.window.dim - none_ * p.window.last;
    AITER_UNROLL
    for (int k = 0; k < H; k++) {
      if (!has_tap(k)) continue;
      AITER_UNROLL
      for (int c = 0; c < C; c++) at[c * p.window.dim + k * p.window.last] = value_[first + k].get(c);
    }
  }

  AITER_DEVICE void clear(const Served& p, int64_t from, int64_t to) const {
    AITER_ROLLED
    for (int64_t t = from > 0 ? from : 0; t < to && t < p.seqlen; t++) store_vec<T, C>(out_ + t * step_, V{});
  }

  Filter<std::conditional_t<kAny, float, T>, W, C, kAny ? FilterKind::kStrided : FilterKind::kPacked, T, true> filter_;
  int64_t d_;
  int none_;            // taps that do not exist
  T* out_;              // position 0 of the row
  int64_t step_;        // between its positions
  V value_[H + kTile];  // the values before a tile, and its tokens
};

// index_bits issues the load of an element of indices, if it is present.
AITER_DEVICE IndexBits index_bits(const Indices& a, bool present, int64_t i, int64_t j = 0) {
  return IndexBits(present, a.is_int64, static_cast<const uint32_t*>(a.data) + ((i * a.row + j * a.column) << a.is_int64));
}

// LoadedSequence is Served::sequence with all loads in flight together; only slots in columns of the table wait for the columns.
class LoadedSequence {
 public:
  AITER_DEVICE LoadedSequence(const Served& p, int64_t b)
      : start_(index_bits(p.starts, p.starts.data, b)), end_(index_bits(p.starts, p.starts.data, b + 1)),
        accepted_(index_bits(p.accepted, p.accepted.data, b)), first_(index_bits(p.first, p.first.data, b)),
        last_(index_bits(p.last, p.last.data, b)), slot_(index_bits(p.table, p.table.data && p.table.columns > 0, b)) {}

  AITER_DEVICE ServedSequence get(const Served& p, int64_t b) const {
    ServedSequence r{p.starts.data ? 0 : b, 0, p.seqlen, 0, 0, p.kept, true};
    if (p.starts.data) {
      r.start = start_.value();
      r.live = r.start >= 0 && end_.value() >= r.start && end_.value() <= p.seqlen;
      r.len = r.live ? end_.value() - r.start : 0;
    }
    r.from = slot_of(p, b, p.table.columns > 0, slot_);
    if (p.first.data) r.from = slot_in(p, b, first_.value());
    r.to = p.last.data ? slot_in(p, b, last_.value()) : r.from;
    r.live = r.live && r.from >= 0 && r.len <= p.longest;
    if (p.accepted.data) {
      const int64_t a = accepted_.value();
      r.live = r.live && a >= 1 && a <= p.length - (p.width - 2);
      r.end = p.width - 2 + a;
    }
    return r;
  }

 private:
  AITER_DEVICE static int64_t slot_of(const Served& p, int64_t b, bool exists, const IndexBits& bits) {
    if (!p.table.data) return b;
    const int64_t s = bits.value();
    return !exists || s == p.pad || s < 0 || s >= p.slots ? -1 : s;
  }
  AITER_DEVICE static int64_t slot_in(const Served& p, int64_t b, int64_t column) {
    const bool exists = column >= 0 && column < p.table.columns;
    return slot_of(p, b, exists, index_bits(p.table, exists, b, column));
  }

  IndexBits start_, end_, accepted_, first_, last_, slot_;
};

// SlotTable is the indices of causal_conv1d_update, for SlotUsers.
struct SlotTable {
  IndexArray<int32_t> indices;
  int32_t batch;

  AITER_DEVICE explicit SlotTable(const Served& p)
      : indices{static_cast<const int32_t*>(p.table.data), p.table.row}, batch(int32_t(p.batch)) {}
};

// NoSlotUsers is SlotUsers where no two sequences share a slot that they write.
struct NoSlotUsers {
  AITER_DEVICE explicit NoSlotUsers(const SlotTable&) {}
  AITER_DEVICE bool share_slot(const SlotTable&, int64_t, int64_t) { return false; }
};

constexpr int kTokenThreads = 64;
// Blocks of an NVIDIA multiprocessor, or waves of an AMD SIMD unit: as many as registers allow without spilling.
template <class T, int W, int C, TokenForm kForm>
constexpr int kTokenBlocks = AITER_HIP                      ? 2
                             : kForm == TokenForm::kAny     ? (W > 4 ? 4 : 6)
                             : C == kVecElems<T>            ? 8
                                                            : 10;

// kOrdered: sequences that share a slot run in the order of the batch.
template <class T, int W, int C, TokenForm kForm, bool kOrdered>
__global__ void __launch_bounds__(kTokenThreads, (kTokenBlocks<T, W, C, kForm>))
causal_conv1d_serve_tokens_kernel(KernelParam<Served> p, FastDiv chunks) {
  if constexpr (AITER_KERNEL_CODE) {
    const uint32_t sequence = chunks.quotient(blockIdx.x);
    const int place = int((blockIdx.x - sequence * chunks.divisor) * kTokenThreads + threadIdx.x) * C;
    int64_t b = sequence;
    pdl_trigger();
    pdl_wait();
    const LoadedSequence loaded(reload_kernarg(p), b);
    TokenVectors<T, W, C, kForm> tokens(reload_kernarg(p), place < p.dim ? place : 0);
    std::conditional_t<kOrdered, SlotUsers<SlotTable>, NoSlotUsers> others(SlotTable(reload_kernarg(p)));
    ServedSequence r = loaded.get(reload_kernarg(p), b);
    tokens.load_x(reload_kernarg(p), r);
    const bool live = r.live && r.len > 0;
    if (live) tokens.load_state(reload_kernarg(p), r);
    const bool shared = others.share_slot(SlotTable(reload_kernarg(p)), b, r.from);
    if (place >= p.dim) return;
    tokens.clear_outside(reload_kernarg(p), r, b);
    if (!live) return;
    // The first sequence of those that share a slot computes them all.
    if (shared && next_with_slot(SlotTable(reload_kernarg(p)), r.from, int64_t(0), b) < b) return;
    tokens.convert_filter(reload_kernarg(p));
    AITER_ROLLED
    for (;;) {
      tokens.run(reload_kernarg(p), r, b);
      if (!shared) break;
      b = next_with_slot(SlotTable(reload_kernarg(p)), r.from, b + 1, reload_kernarg(p).batch);
      if (b == reload_kernarg(p).batch) break;
      r = reload_kernarg(p).sequence(b);
      tokens.load_x(reload_kernarg(p), r);
      tokens.load_state(reload_kernarg(p), r);
    }
  }
}

}  // namespace aiter::conv1d::serve
