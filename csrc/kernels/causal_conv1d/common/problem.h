// The common part of all causal_conv1d kernels: the problem as plain numbers and pointers, and the checks of the arguments.
//
// Position t of a row (one batch, one channel) runs from -(width-1), the oldest initial state, to seqlen-1. With sequence
// numbers only positions of its own sequence are visible to a position; positions below 0 belong to none, and a negative number is
// padding.
#pragma once

#include <aiter/check.h>

#include "layout.h"
#include "width.h"

namespace aiter::conv1d {

AITER_SHARED bool is_aligned(const void* p, int64_t bytes) { return reinterpret_cast<uintptr_t>(p) % uintptr_t(bytes) == 0; }

// Array3 is (batch, dim, seqlen) or (batch, dim, width-1); strides in elements.
struct Array3 {
  void* data;  // null: not given
  int64_t batch, dim, last;

  template <class T> AITER_SHARED T* row(int64_t b, int64_t d) const {
    return static_cast<T*>(data) + b * batch + d * dim;
  }
};

// Array2 is (groups, width), (dim, width), (dim) or (batch, seqlen); strides in elements.
struct Array2 {
  void* data;  // null: not given
  DType dtype;
  int64_t first, last;

  AITER_SHARED float get(int64_t i, int64_t j) const { return load(data, dtype, i * first + j * last); }
  AITER_SHARED void set(int64_t i, int64_t j, float v) const { store(data, dtype, i * first + j * last, v); }
};

// Problem is what forward and backward have in common.
struct Problem {
  int64_t batch, dim, seqlen, width;
  bool silu, channel_last;
  Array3 x, initial;
  Array2 weight, bias, seq;

  // value is X[t] of a row: x, the initial state before it, or 0.
  template <class T> AITER_SHARED float value(int64_t b, int64_t d, int64_t t) const {
    if (t >= 0) return to_float(x.row<T>(b, d)[t * x.last]);
    return initial.data ? to_float(initial.row<T>(b, d)[(t + width - 1) * initial.last]) : 0.0f;
  }

  // sequence is the sequence number of t >= 0.
  AITER_SHARED int32_t sequence(int64_t b, int64_t t) const {
    return static_cast<const int32_t*>(seq.data)[b * seq.first + t * seq.last];
  }

  // visible reports whether position u <= t is visible to position t of sequence s.
  AITER_SHARED bool visible(int64_t b, int32_t s, int64_t u) const {
    return !seq.data || (u >= 0 && s >= 0 && sequence(b, u) == s);
  }
};

struct Forward : Problem {
  Array3 out, final;
};

// final_states copies the last width-1 values of a row, bit for bit: value `first` and every `step`-th one behind it.
template <class T> AITER_SHARED void final_states(const Forward& p, int64_t b, int64_t d, int64_t first = 0, int64_t step = 1) {
  T* final = p.final.row<T>(b, d);
  for (int64_t j = first; j < p.width - 1; j += step) {
    const int64_t t = p.seqlen - (p.width - 1) + j;
    T v = round_to<T>(0.0f);
    if (t >= 0) v = p.x.row<T>(b, d)[t * p.x.last];
    else if (p.initial.data) v = p.initial.row<T>(b, d)[(t + p.width - 1) * p.initial.last];
    final[j * p.final.last] = v;
  }
}

struct Backward : Problem {
  Array3 dout, dx, dinitial, dfinal;
  Array2 dweight, dbias;
};

inline Array3 array3(const TensorView& t) { return {t.data(), t.stride(0), t.stride(1), t.stride(2)}; }
inline Array3 array3(const Optional<TensorView>& t) { return t ? array3(*t) : Array3{}; }
inline Array2 array2(const TensorView& t) {
  return {t.data(), t.dtype(), t.stride(0), t.rank() > 1 ? t.stride(1) : 0};
}
inline Array2 array2(const Optional<TensorView>& t) { return t ? array2(*t) : Array2{}; }

// given drops a tensor without elements: an empty bias means none.
inline Optional<TensorView> given(const Optional<TensorView>& t) {
  return t && !t->empty() ? t : Optional<TensorView>{};
}

// like_x checks the type, which is x's, and the shape of a tensor.
inline Status like_x(const Optional<TensorView>& t, DType dtype, const int64_t (&shape)[3], const char* meaning) {
  if (!t) return Status();
  AITER_TRY(check_dtype(*t, dtype, " as 'x'"));
  return check_shape(*t, shape, meaning);
}
inline Status like_x(const TensorView& t, DType dtype, const int64_t (&shape)[3], const char* meaning) {
  return like_x(Optional<TensorView>{true, t}, dtype, shape, meaning);
}

// check_groups checks the shape of a weight: a filter for each group of dim / groups neighbouring channels.
inline Status check_groups(const TensorView& weight, int64_t dim) {
  const int64_t groups = weight.size(0), W = weight.size(1), shape[2] = {dim, W};
  if (groups == dim || dim == 0) return check_shape(weight, shape, "(dim, width)");
  if (groups < 1 || dim % groups != 0)
    return value_error("argument '%s': expected shape (groups, width) with groups that divide dim = %lld, got %s", weight.name(),
                       static_cast<long long>(dim), shape_text(weight).data);
  if (W <= INT64_MAX / 8 / dim) return Status();  // the operators copy the filters, one for each channel
  return value_error("argument '%s': filters of shape %s (dim, width) exceed the address space, got shape %s", weight.name(),
                     shape_text(shape, 2).data, shape_text(weight).data);
}

inline Status check_channels(const Optional<TensorView>& t, int64_t dim) {
  if (!t) return Status();
  const int64_t shape[1] = {dim};
  return check_shape(*t, shape, "(dim,)");
}

// Inputs are the arguments that both directions take.
struct Inputs {
  TensorView x, weight;
  Optional<TensorView> bias, seq_idx, initial_states;
};

// check_inputs checks the arguments of both directions, and fills p in.
inline Status check_inputs(const Inputs& in, bool silu, Problem* p) {
  AITER_TRY(check_rank(in.x, 3, "(batch, dim, seqlen)"));
  AITER_TRY(check_held(in.x));
  AITER_TRY(check_rank(in.weight, 2, "(groups, width)"));
  AITER_TRY(check_float(in.weight));
  const int64_t B = in.x.size(0), D = in.x.size(1), L = in.x.size(2), W = in.weight.size(1);
  AITER_TRY(check_width(in.weight));
  AITER_TRY(check_groups(in.weight, D));
  const int64_t seq_shape[2] = {B, L}, state_shape[3] = {B, D, W - 1};
  if (in.bias) AITER_TRY(check_float(*in.bias));
  AITER_TRY(check_channels(in.bias, D));
  if (in.seq_idx) {
    AITER_TRY(check_dtype(*in.seq_idx, DType::I32, ""));
    AITER_TRY(check_shape(*in.seq_idx, seq_shape, "(batch, seqlen)"));
  }
  AITER_TRY(like_x(in.initial_states, in.x.dtype(), state_shape, "(batch, dim, width-1)"));
  p->batch = B, p->dim = D, p->seqlen = L, p->width = W;
  p->silu = silu, p->channel_last = is_channel_last(in.x);
  p->x = array3(in.x), p->initial = array3(in.initial_states);
  p->weight = array2(in.weight), p->bias = array2(in.bias), p->seq = array2(in.seq_idx);
  return Status();
}

inline void list_inputs(const Inputs& in, Tensors* all) {
  all->input(in.x), all->input(in.weight), all->input(in.bias), all->input(in.seq_idx), all->input(in.initial_states);
}

// check_forward checks the arguments of causal_conv1d_fwd and fills p in.
inline Status check_forward(const Inputs& in, const TensorView& out, const Optional<TensorView>& final_states_out,
                            bool silu, Forward* p) {
  AITER_TRY(check_inputs(in, silu, p));
  const int64_t shape[3] = {p->batch, p->dim, p->seqlen}, states[3] = {p->batch, p->dim, p->width - 1};
  AITER_TRY(like_x(out, in.x.dtype(), shape, "(batch, dim, seqlen)"));
  AITER_TRY(like_x(final_states_out, in.x.dtype(), states, "(batch, dim, width-1)"));
  p->out = array3(out), p->final = array3(final_states_out);
  Tensors all;
  all.output(out), all.output(final_states_out);
  list_inputs(in, &all);
  return all.check();
}

// Gradients are the arguments that only backward takes.
struct Gradients {
  TensorView dx, dweight, dout;
  Optional<TensorView> dbias, dfinal_states, dinitial_states;
};

// check_backward checks the arguments of causal_conv1d_bwd and fills p in.
inline Status check_backward(const Inputs& in, const Gradients& g, bool silu, Backward* p) {
  AITER_TRY(check_inputs(in, silu, p));
  const DType dtype = in.x.dtype();
  const int64_t shape[3] = {p->batch, p->dim, p->seqlen}, states[3] = {p->batch, p->dim, p->width - 1};
  const int64_t weight_shape[2] = {in.weight.size(0), p->width};
  AITER_TRY(like_x(g.dout, dtype, shape, "(batch, dim, seqlen)"));
  AITER_TRY(like_x(g.dx, dtype, shape, "(batch, dim, seqlen)"));
  p->channel_last = is_channel_last(g.dout);  // dout selects the axis `layout`
  AITER_TRY(check_float32_or(g.dweight, in.weight.dtype(), " as 'weight'"));
  AITER_TRY(check_shape(g.dweight, weight_shape, "(groups, width)"));
  if (g.dbias) AITER_TRY(check_float32_or(*g.dbias, in.weight.dtype(), " as 'weight'"));
  AITER_TRY(check_channels(g.dbias, p->dim));
  AITER_TRY(like_x(g.dfinal_states, dtype, states, "(batch, dim, width-1)"));
  AITER_TRY(like_x(g.dinitial_states, dtype, states, "(batch, dim, width-1)"));
  p->dout = array3(g.dout), p->dx = array3(g.dx), p->dweight = array2(g.dweight), p->dbias = array2(g.dbias);
  p->dfinal = array3(g.dfinal_states), p->dinitial = array3(g.dinitial_states);
  Tensors all;
  all.output(g.dx), all.output(g.dweight), all.output(g.dbias), all.output(g.dinitial_states);
  all.input(g.dout), all.input(g.dfinal_states);
  list_inputs(in, &all);
  return all.check();
}

}  // namespace aiter::conv1d
