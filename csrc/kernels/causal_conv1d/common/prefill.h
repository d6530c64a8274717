// The common part of causal_conv1d_serve_fwd and causal_conv1d_fwd_split_qkv: packed sequences of any length whose states are slots that
// a table of blocks names.
//
// X[u] of a sequence is x for u >= 0, and the content of its slot, or 0, before. A call writes the last values of X to the sequence's slot;
// with state blocks also the values that end with each multiple of the block size, counted from the sequence's first token of all.
//
// The outputs of all positions but the first W-1 of a sequence depend on x alone: they take the kernels of causal_conv1d_varlen_fwd. The
// index tensors are checked where they are read, as common/served.h describes.
#pragma once

#include "any_width.h"
#include "served.h"

namespace aiter::conv1d::serve {

struct Prefill : Served {
  Indices first_block, computed;  // columns of the first blocks to write; earlier tokens
  IndexArray<uint8_t> has_initial_state;
  int64_t block;  // tokens of a block
  bool skips_empty;
  DType element;  // of x

  // sequence returns sequence b. Its tokens of this and all earlier calls can be counted.
  AITER_SHARED ServedSequence sequence(int64_t b) const {
    ServedSequence r = Served::sequence(b);
    if (computed.data) {
      const int64_t done = computed.at(b);
      r.live = r.live && done >= 0 && done <= INT64_MAX - seqlen;
    }
    return r;
  }

  AITER_SHARED bool has_initial(int64_t b) const { return has_initial_state.data && has_initial_state[b]; }

  // value is X[u]; past: the slot's content precedes x.
  template <class T> AITER_SHARED float value(const ServedSequence& r, bool past, int64_t d, int64_t u) const {
    if (u >= 0) return to_float(inputs<T>(r, d)[u * x.last]);
    return past ? state.get(r.from, d, r.end + u) : 0.0f;
  }

  // each_state calls write(slot, end) for each slot to write: that of the sequence, then those of blocks, the last block first. The slot
  // receives the values of X in front of end.
  template <class Write> AITER_SHARED void each_state(const ServedSequence& r, int64_t b, const Write& write) const {
    if (r.to >= 0) write(r.to, r.len);
    if (!first_block.data || r.len == 0) return;
    const int64_t done = computed.data ? computed.at(b) : 0, first = first_block.at(b), finish = last.at(b);
    if (first < 0 || finish > table.columns) return;
    int64_t end = (done + r.len - 1) / block * block - done;
    AITER_ROLLED
    for (int64_t column = finish - 1; column >= first && end > 0; column--, end -= block) {
      const int64_t to = slot(b, column);
      if (to >= 0) write(to, end);
    }
  }

  // store_state writes the slots of a channel. The slot that the sequence reads is the last one.
  template <class T> AITER_SHARED void store_state(const ServedSequence& r, int64_t b, int64_t d) const {
    if (r.len == 0 && skips_empty) return;
    const bool past = has_initial(b);
    AITER_ROLLED
    for (int own = 0; own < 2; own++)
      each_state(r, b, [&](int64_t to, int64_t end) {
        if ((to == r.from) != (own != 0)) return;
        AITER_ROLLED
        for (int64_t j = 0; j < kept; j++)  // ascending: each element is read before its place is written
          state.set(to, d, j, value<T>(r, past, d, end - kept + j));
      });
  }
};

// run_head computes the first positions of a sequence with all values from memory: any width. act is the activation.
template <class T, class Act> AITER_SHARED void run_head(const Prefill& p, const ServedSequence& r, int64_t b, int64_t d, const Act& act) {
  const bool past = p.has_initial(b);
  AITER_ROLLED
  for (int64_t t = 0; t < p.width - 1 && t < r.len; t++) {
    const float y = filter_output(p, d, t, [&](int64_t u, float* v) {
      *v = p.value<T>(r, past, d, u);
      return true;
    });
    p.finish<T>(r, d, t, act(y));
  }
}

// PrefillRows is the problem of causal_conv1d_varlen_fwd that computes the outputs which do not depend on states.
struct PrefillRows : Stateful {
  explicit PrefillRows(const Prefill& p) : Stateful() {
    static_cast<Problem&>(*this) = p;
    batch = p.batch, has_state = true, slots = p.slots;
  }

  // take reads the arrays (batch+1) of starts, and of slots, which are -1 for sequences to skip.
  void take(const int32_t* from, const int32_t* of_sequences) {
    starts = {from, 1}, indices = {of_sequences, 1};
    pad = -1, slots = 1;
  }

  // part is the rows of the channels of output i.
  PrefillRows part(const Prefill& p, int i) const {
    PrefillRows r = *this;
    const int64_t d = p.begin_of(i), end = i == 2 ? p.dim : p.ends[i];
    r.dim = end - d, r.out = p.out[i];
    move(&r.x.data, d * r.x.dim, p.element);
    move(&r.weight.data, d * r.weight.first, r.weight.dtype);
    if (r.bias.data) move(&r.bias.data, d * r.bias.first, r.bias.dtype);
    return r;
  }

 private:
  static void move(void** data, int64_t elements, DType dtype) { *data = static_cast<char*>(*data) + elements * dtype_size(dtype); }
};

// row_start and row_slot are the elements of the arrays that PrefillRows::take reads.
AITER_SHARED int32_t row_start(const Prefill& p, int64_t i) {
  const int64_t start = p.starts.at(i);
  return int32_t(start < 0 ? -1 : start > p.seqlen ? p.seqlen + 1 : start);
}
AITER_SHARED int32_t row_slot(const Prefill& p, int64_t b) { return p.sequence(b).live ? 0 : -1; }

}  // namespace aiter::conv1d::serve
