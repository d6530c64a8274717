// The common part of causal_conv1d_serve_update and causal_conv1d_update_split_qkv: sequences of a few tokens whose states are slots
// that a table of blocks names.
//
// X[u] of a sequence is x for u >= 0, and its slot's content before. Slots are read and written in two forms:
//   without num_accepted_tokens   a slot keeps the last n values of X: n = W-1, in its first entries, or all S entries
//   with it, a = its value        a slot keeps W-2 values and then the tokens of the call: the next call reads the W-1 values that
//                                 end with token a-1, so that the tokens behind it are rolled back
//
// Index tensors are in device memory, so kernels check them. A sequence is skipped if a slot that it reads does not exist, if it
// extends beyond x, or if num_accepted_tokens is not within its slot: its out is 0 (or stays), and no state changes. A slot that
// does not exist is not written. No sequence may write a slot that another sequence of the call reads or writes: its content would
// depend on their order, and nothing else.
#pragma once

#include "state.h"

namespace aiter::conv1d::serve {

// Indices is a (n) or (n, columns) tensor of int32 or int64.
struct Indices {
  const void* data;  // null: not given
  int64_t row, column, columns;
  bool is_int64;

  AITER_SHARED int64_t at(int64_t i, int64_t j = 0) const {
    const int64_t k = i * row + j * column;
    return is_int64 ? static_cast<const int64_t*>(data)[k] : static_cast<const int32_t*>(data)[k];
  }
};

// Entries is an array whose element type is known at run time; its first dimension is slots.
struct Entries : Array3 {
  DType dtype;

  AITER_SHARED float get(int64_t slot, int64_t d, int64_t i) const { return load(data, dtype, slot * batch + d * dim + i * last); }
  AITER_SHARED void set(int64_t slot, int64_t d, int64_t i, float v) const { store(data, dtype, slot * batch + d * dim + i * last, v); }
};

// ServedSequence is one sequence of a serving operator: positions start..start+len of a row of x.
struct ServedSequence {
  int64_t row, start, len;
  int64_t from, to;  // slots that it reads and writes; -1: none
  int64_t end;       // X[u] for u < 0 is entry end + u of its slot
  bool live;         // false: skip it
};

// Served is the problem. A row of x is a sequence, or x is one row and starts has its sequences.
struct Served : Problem {
  Array3 out[3];          // of channels below ends[0], below ends[1], and the others
  int64_t ends[2];
  Array3 residual;
  Entries state, window;  // window: (M, D, W-1) for each step
  int64_t slots, length;  // N and S
  int64_t kept;           // n
  int64_t windows, steps, step;  // M, steps and the stride of steps
  int64_t longest;        // tokens of a sequence, at most
  int64_t pad;            // pad_slot_id
  bool clears;            // skipped positions are 0
  bool packed_weight, packed_bias;  // the taps of a channel, and all biases, are aligned vectors
  Indices starts, table, accepted, first, last, parents, window_rows;

  // slot returns the slot in a column of the table, or -1.
  AITER_SHARED int64_t slot(int64_t b, int64_t column) const {
    if (!table.data) return b;
    if (column < 0 || column >= table.columns) return -1;
    const int64_t s = table.at(b, column);
    return s == pad || s < 0 || s >= slots ? -1 : s;
  }

  AITER_SHARED ServedSequence sequence(int64_t b) const {
    ServedSequence r{starts.data ? 0 : b, 0, seqlen, 0, 0, kept, true};
    if (starts.data) {
      const int64_t end = starts.at(b + 1);
      r.start = starts.at(b);
      r.live = r.start >= 0 && end >= r.start && end <= seqlen;
      r.len = r.live ? end - r.start : 0;
    }
    r.from = slot(b, first.data ? first.at(b) : 0);
    r.to = last.data ? slot(b, last.at(b)) : r.from;
    r.live = r.live && r.from >= 0 && r.len <= longest;
    if (accepted.data) {
      const int64_t a = accepted.at(b);
      r.live = r.live && a >= 1 && a <= length - (width - 2);
      r.end = width - 2 + a;
    }
    return r;
  }

  // parent returns the token before token t > 0 in the tree, or -1: the newest value of the state.
  AITER_SHARED int64_t parent(int64_t b, int64_t t) const {
    if (!parents.data) return t - 1;
    const int64_t u = parents.at(b, t);
    return u >= 0 && u < t ? u : -1;
  }

  template <class T> AITER_SHARED const T* inputs(const ServedSequence& r, int64_t d) const {
    return x.row<T>(r.row, d) + r.start * x.last;
  }

  // clear writes 0 to out of channel d at the positions from..to of a row that exist.
  template <class T> AITER_SHARED void clear(int64_t row, int64_t d, int64_t from, int64_t to) const {
    const int part = part_of(d);
    T* at = out[part].row<T>(row, d - begin_of(part));
    AITER_ROLLED
    for (int64_t t = from > 0 ? from : 0; t < to && t < seqlen; t++) at[t * out[part].last] = round_to<T>(0.0f);
  }

  // clear_outside clears the positions that belong to no sequence, of which sequence b is a neighbour.
  template <class T> AITER_SHARED void clear_outside(const ServedSequence& r, int64_t b, int64_t d) const {
    if (!clears) return;
    const int64_t from = starts.data ? starts.at(b) : 0, to = starts.data ? starts.at(b + 1) : seqlen;
    if (!r.live) clear<T>(r.row, d, from, to);
    if (!starts.data) return;
    if (b == 0) clear<T>(0, d, 0, from);
    if (b == batch - 1) clear<T>(0, d, to >= from ? to : from, seqlen);
  }

  // clear_all clears a channel of packed rows without a sequence.
  template <class T> AITER_SHARED void clear_all(int64_t d) const {
    if (clears) clear<T>(0, d, 0, seqlen);
  }

  AITER_SHARED int part_of(int64_t d) const { return int(d >= ends[0]) + int(d >= ends[1]); }
  AITER_SHARED int64_t begin_of(int part) const { return part == 0 ? 0 : ends[part - 1]; }

  // finish adds the residual to y and writes the output at position t.
  template <class T> AITER_SHARED void finish(const ServedSequence& r, int64_t d, int64_t t, float y) const {
    if (residual.data) y += to_float(residual.row<T>(r.row, d)[(r.start + t) * residual.last]);
    const int part = part_of(d);
    out[part].row<T>(r.row, d - begin_of(part))[(r.start + t) * out[part].last] = round_to<T>(y);
  }

  // store_state writes the sequence's slot. The values of the slot that it reads are not used afterwards.
  template <class T> AITER_SHARED void store_state(const ServedSequence& r, int64_t d) const {
    if (r.to < 0) return;
    const T* from = inputs<T>(r, d);
    const int64_t n = accepted.data ? width - 2 + r.len : kept;
    AITER_ROLLED
    for (int64_t j = 0; j < n; j++) {  // ascending: each element is read before its place is written
      const int64_t u = r.len - n + j;
      state.set(r.to, d, j, u >= 0 ? to_float(from[u * x.last]) : state.get(r.from, d, r.end + u));
    }
  }

  // window_row returns the row of window of a sequence, or -1.
  AITER_SHARED int64_t window_row(const ServedSequence& r, int64_t b) const {
    if (!window.data) return -1;
    const int64_t m = window_rows.data ? window_rows.at(b) : r.from;
    return m >= 0 && m < windows ? m : -1;
  }

  AITER_SHARED void save(int64_t row, int64_t t, int64_t d, int64_t k, float v) const {
    store(window.data, window.dtype, row * window.batch + t * step + d * window.dim + k * window.last, v);
  }
};

// walk calls value(k, v) for the taps of token t of channel d, the newest first: the token, its parent, the parent's, then the state.
template <class T, class Value>
AITER_SHARED void walk(const Served& p, const ServedSequence& r, int64_t b, int64_t d, int64_t t, const Value& value) {
  const T* x = p.inputs<T>(r, d);
  int64_t u = t;
  AITER_ROLLED
  for (int64_t k = p.width - 1; k >= 0; k--) {
    value(k, u >= 0 ? to_float(x[u * p.x.last]) : p.state.get(r.from, d, r.end + u));
    u = u > 0 ? p.parent(b, u) : u - 1;
  }
}

// run_walk computes a sequence of a channel with all values from memory: any width, trees. act is the activation.
template <class T, class Act> AITER_SHARED void run_walk(const Served& p, const ServedSequence& r, int64_t b, int64_t d, const Act& act) {
  const int64_t row = p.window_row(r, b);
  AITER_ROLLED
  for (int64_t t = 0; t < r.len; t++) {
    float y = p.bias.data ? p.bias.get(d, 0) : 0.0f;
    const bool saves = row >= 0 && t < p.steps;
    walk<T>(p, r, b, d, t, [&](int64_t k, float v) {
      y += p.weight.get(d, k) * v;
      if (saves && k > 0) p.save(row, t, d, k - 1, v);
    });
    p.finish<T>(r, d, t, act(y));
  }
  p.store_state<T>(r, d);
}

}  // namespace aiter::conv1d::serve
