// The common part of causal_conv1d_update and causal_conv1d_varlen_fwd: sequences that continue the content of a slot of conv_state.
//
// X[u] of a sequence is x for u >= 0, and the slot's content, or 0, before. Afterwards the slot holds the last S positions of X.
// One thread alone reads and writes a slot's channel.
//
// Index tensors are in device memory, so kernels check them. A sequence is skipped if its slot is pad_slot_id or not in
// conv_state, or if it extends beyond x: its out is 0 and no state changes. Sequences that share a slot run in the
// order of the batch, each on the state that the previous one left, as separate calls would, on every device. Starts that
// decrease, except at the end, leave out's values unspecified, and nothing else.
#pragma once

#include "problem.h"

namespace aiter::conv1d {

// IndexArray is a (n) tensor of indices or flags.
template <class T> struct IndexArray {
  const T* data;  // null: not given
  int64_t stride;

  AITER_SHARED T operator[](int64_t i) const { return data[i * stride]; }
  // packed reports whether the elements are adjacent, the first at a multiple of 16 bytes.
  AITER_SHARED bool packed() const { return stride == 1 && is_aligned(data, 16); }
};

template <class T> IndexArray<T> index_array(const Optional<TensorView>& t) {
  return t ? IndexArray<T>{t->as<const T>(), t->stride(0)} : IndexArray<T>{};
}

// Sequence is one sequence of the batch: positions start..start+len of a row of x.
struct Sequence {
  int64_t row, start, len;
  int64_t slot;      // in conv_state
  int64_t origin;    // place of x[0] in the slot; the history precedes it
  bool live;         // false: skip it
  bool has_initial;  // the slot's content comes before x
};

// Stateful is the problem. A row of x is a sequence (update), or x is one row and starts has its sequences (varlen).
struct Stateful : Problem {
  Array3 out, state;
  int64_t slots, length;  // N and S
  int64_t pad;            // pad_slot_id
  bool has_state;         // a conv_state is given
  IndexArray<int32_t> cache_seqlens, indices, starts;
  IndexArray<uint8_t> has_initial_state;

  AITER_SHARED Sequence sequence(int64_t b) const {
    Sequence s{starts.data ? 0 : b, 0, seqlen, b, 0, true, has_state};
    if (starts.data) {
      s.start = starts[b], s.len = starts[b + 1] - s.start;
      s.live = s.start >= 0 && s.len >= 0 && s.start + s.len <= seqlen;
      s.has_initial = has_state && has_initial_state.data && has_initial_state[b];
    }
    if (indices.data) {
      s.slot = indices[b];
      s.live = s.live && s.slot != pad;
    }
    if (has_state) s.live = s.live && s.slot >= 0 && s.slot < slots;
    if (cache_seqlens.data && length > 0) {
      const int32_t processed = cache_seqlens[b];
      s.origin = length > INT32_MAX ? processed : processed % int32_t(length);  // a GPU's 64-bit division is long
      if (s.origin < 0) s.origin += length;
    }
    return s;
  }

  // history returns the place of X[u], -(W-1) <= u < 0, in the slot.
  AITER_SHARED int64_t history(const Sequence& s, int64_t u) const {
    return s.origin + u < 0 ? s.origin + u + length : s.origin + u;
  }

  template <class T> AITER_SHARED T* inputs(const Sequence& s, int64_t d) const {
    return x.row<T>(s.row, d) + s.start * x.last;
  }
  template <class T> AITER_SHARED T* outputs(const Sequence& s, int64_t d) const {
    return out.row<T>(s.row, d) + s.start * out.last;
  }

  // before returns X[u] for u < 0, bit for bit.
  template <class T> AITER_SHARED T before(const Sequence& s, int64_t d, int64_t u) const {
    return s.has_initial ? state.row<T>(s.slot, d)[history(s, u) * state.last] : round_to<T>(0.0f);
  }

  // store_state writes the last S positions of X to the slot. The outputs that read its old content must be done.
  template <class T> AITER_DEVICE void store_state(const Sequence& s, int64_t d) const {
    T* slot = state.row<T>(s.slot, d);
    const T* from = inputs<T>(s, d);
    if (cache_seqlens.data) {
      int64_t u = s.len > length ? s.len - length : 0, at = s.origin + u;
      if (u < s.len && at >= length && at <= INT32_MAX) at = int32_t(at) % int32_t(length);
      AITER_ROLLED
      while (u < s.len && at >= length) at -= length;
      AITER_ROLLED
      for (; u < s.len; u++, at = at + 1 < length ? at + 1 : 0) slot[at * state.last] = from[u * x.last];
      return;
    }
    AITER_ROLLED
    for (int64_t j = 0; j < length; j++) {  // ascending: each element is read before its place is written
      const int64_t u = s.len - length + j;
      slot[j * state.last] = u >= 0 ? from[u * x.last] : s.has_initial ? slot[(u + length) * state.last] : round_to<T>(0.0f);
    }
  }
};

inline Status check_vector(const Optional<TensorView>& t, DType dtype, int64_t size, const char* meaning) {
  if (!t) return Status();
  AITER_TRY(check_dtype(*t, dtype, ""));
  const int64_t shape[1] = {size};
  return check_shape(*t, shape, meaning);
}

// check_filter checks weight and bias for dim channels and fills p in.
inline Status check_filter(const TensorView& weight, const Optional<TensorView>& bias, int64_t dim, Problem* p) {
  AITER_TRY(check_rank(weight, 2, "(groups, width)"));
  AITER_TRY(check_float(weight));
  const int64_t W = weight.size(1);
  AITER_TRY(check_width(weight));
  AITER_TRY(check_groups(weight, dim));
  if (bias) AITER_TRY(check_float(*bias));
  AITER_TRY(check_channels(bias, dim));
  p->dim = dim, p->width = W, p->weight = array2(weight), p->bias = array2(bias);
  return Status();
}

// check_slots checks a (N, dim, S) conv_state and fills p in. indexed: sequences name their slots.
inline Status check_slots(const TensorView& state, DType dtype, bool indexed, Stateful* p) {
  AITER_TRY(check_dtype(state, dtype, " as 'x'"));
  AITER_TRY(check_rank(state, 3, "(slots, dim, length)"));
  const int64_t N = state.size(0), S = state.size(2), shape[3] = {N, p->dim, S};
  AITER_TRY(check_shape(state, shape, "(slots, dim, length)"));
  if (S < p->width - 1)
    return value_error("argument '%s': expected a length of at least width-1 = %lld, got shape %s", state.name(),
                       static_cast<long long>(p->width - 1), shape_text(state).data);
  if (!indexed && N < p->batch)
    return value_error("argument '%s': expected at least %lld slots, one for each sequence, got shape %s", state.name(),
                       static_cast<long long>(p->batch), shape_text(state).data);
  p->has_state = true, p->slots = N, p->length = S, p->state = array3(state);
  return Status();
}

// Arguments are the arguments of either operator.
struct Arguments {
  TensorView out, x, weight;
  Optional<TensorView> conv_state, bias, cache_seqlens, indices, starts, has_initial_state;
};

inline Status check_memory(const Arguments& a) {
  Tensors all;
  all.output(a.out), all.output(a.conv_state);
  all.input(a.x), all.input(a.weight), all.input(a.bias), all.input(a.cache_seqlens), all.input(a.indices);
  all.input(a.starts), all.input(a.has_initial_state);
  return all.check();
}

// same_shape checks that out is of x's type and shape.
inline Status same_shape(const TensorView& out, const TensorView& x) {
  AITER_TRY(check_dtype(out, x.dtype(), " as 'x'"));
  bool same = out.rank() == x.rank();
  for (int i = 0; same && i < x.rank(); i++) same = out.size(i) == x.size(i);
  if (same) return Status();
  return value_error("argument 'out': expected shape %s as 'x', got %s", shape_text(x).data, shape_text(out).data);
}

// check_update checks the arguments of causal_conv1d_update and fills p in.
inline Status check_update(const Arguments& a, bool silu, int64_t pad, Stateful* p) {
  const TensorView& x = a.x;
  AITER_TRY(check_held(x));
  if (x.rank() != 2) AITER_TRY(check_rank(x, 3, "(batch, dim, seqlen), or 2 (batch, dim)"));
  AITER_TRY(same_shape(a.out, x));
  AITER_TRY(check_filter(a.weight, a.bias, x.size(1), p));
  p->batch = x.size(0), p->seqlen = x.rank() == 3 ? x.size(2) : 1, p->silu = silu, p->pad = pad;
  AITER_TRY(check_slots(*a.conv_state, x.dtype(), a.indices.given, p));
  AITER_TRY(check_vector(a.cache_seqlens, DType::I32, p->batch, "(batch,)"));
  AITER_TRY(check_vector(a.indices, DType::I32, p->batch, "(batch,)"));
  p->x = {x.data(), x.stride(0), x.stride(1), x.rank() == 3 ? x.stride(2) : 0};
  p->out = {a.out.data(), a.out.stride(0), a.out.stride(1), x.rank() == 3 ? a.out.stride(2) : 0};
  p->cache_seqlens = index_array<int32_t>(a.cache_seqlens), p->indices = index_array<int32_t>(a.indices);
  return check_memory(a);
}

// check_varlen checks the arguments of causal_conv1d_varlen_fwd and fills p in.
inline Status check_varlen(const Arguments& a, bool silu, int64_t pad, Stateful* p) {
  const TensorView &x = a.x, &starts = *a.starts;
  AITER_TRY(check_held(x));
  AITER_TRY(check_rank(x, 2, "(dim, tokens)"));
  AITER_TRY(same_shape(a.out, x));
  AITER_TRY(check_filter(a.weight, a.bias, x.size(0), p));
  AITER_TRY(check_dtype(starts, DType::I32, ""));
  AITER_TRY(check_rank(starts, 1, "(batch+1,)"));
  if (starts.size(0) < 1) return value_error("argument '%s': expected batch+1 elements, got none", starts.name());
  p->batch = starts.size(0) - 1, p->seqlen = x.size(1), p->silu = silu, p->pad = pad;
  if (a.conv_state) AITER_TRY(check_slots(*a.conv_state, x.dtype(), a.indices.given, p));
  AITER_TRY(check_vector(a.indices, DType::I32, p->batch, "(batch,)"));
  AITER_TRY(check_vector(a.has_initial_state, DType::Bool, p->batch, "(batch,)"));
  p->x = {x.data(), 0, x.stride(0), x.stride(1)}, p->out = {a.out.data(), 0, a.out.stride(0), a.out.stride(1)};
  const int64_t channel = x.stride(0) < 0 ? -x.stride(0) : x.stride(0), token = x.stride(1) < 0 ? -x.stride(1) : x.stride(1);
  p->channel_last = x.size(0) > 1 && (x.size(1) == 1 || channel < token);
  p->starts = index_array<int32_t>(a.starts), p->indices = index_array<int32_t>(a.indices);
  p->has_initial_state = index_array<uint8_t>(a.has_initial_state);
  return check_memory(a);
}

// TailStates is the problem of causal_conv1d_varlen_states.
struct TailStates {
  int64_t batch, dim, tokens, length;
  const void* x;
  int64_t x_token, x_dim;  // strides of x
  Array3 states;
  IndexArray<int32_t> starts;

  // copy writes element j of a state: a value of x, or 0 left of a short sequence. A sequence that extends beyond x counts
  // as empty.
  template <class U> AITER_SHARED void copy(int64_t b, int64_t d, int64_t j) const {
    const int64_t first = starts[b], end = starts[b + 1], t = end - length + j;
    const bool inside = first >= 0 && end <= tokens && t >= first;
    states.row<U>(b, d)[j * states.last] = inside ? static_cast<const U*>(x)[t * x_token + d * x_dim] : U(0);
  }
};

// check_tails checks the arguments of causal_conv1d_varlen_states and fills p in.
inline Status check_tails(const TensorView& states, const TensorView& x, const TensorView& cu_seqlens, TailStates* p) {
  AITER_TRY(check_rank(x, 2, "(tokens, dim)"));
  AITER_TRY(check_held(x));
  AITER_TRY(check_dtype(cu_seqlens, DType::I32, ""));
  AITER_TRY(check_rank(cu_seqlens, 1, "(batch+1,)"));
  if (cu_seqlens.size(0) < 1) return value_error("argument 'cu_seqlens': expected batch+1 elements, got none");
  AITER_TRY(check_dtype(states, x.dtype(), " as 'x'"));
  AITER_TRY(check_rank(states, 3, "(batch, dim, length)"));
  const int64_t shape[3] = {cu_seqlens.size(0) - 1, x.size(1), states.size(2)};
  AITER_TRY(check_shape(states, shape, "(batch, dim, length)"));
  *p = {shape[0], shape[1], x.size(0), shape[2], x.data(), x.stride(0), x.stride(1), array3(states),
        {cu_seqlens.as<const int32_t>(), cu_seqlens.stride(0)}};
  Tensors all;
  all.output(states), all.input(x), all.input(cu_seqlens);
  return all.check();
}

}  // namespace aiter::conv1d
