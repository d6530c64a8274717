// The checks of causal_conv1d_serve_update and causal_conv1d_update_split_qkv. The content of index tensors is checked where it is read.
#pragma once

#include "served.h"

namespace aiter::conv1d::serve {

// Arguments are the arguments of either operator; out has one tensor, or three for parts of the channels.
struct Arguments {
  TensorView x, conv_state, weight;
  Optional<TensorView> bias, table, starts, accepted, last, first, parents, residual, window, window_rows;
  int64_t max_query_len;
  bool silu, leading, clears;
  int64_t pad;
};

// check_indices checks an index tensor of rank 1 and `size` rows, or of rank 2 with any number of columns.
inline Status check_indices(const Optional<TensorView>& t, int64_t size, bool columns, Indices* to) {
  if (!t) return Status();
  const DLDataType type = t->raw_dtype();
  const bool is_int64 = type.code == 0 && type.bits == 64 && type.lanes == 1;
  if (t->dtype() != DType::I32 && !is_int64)
    return type_error("argument '%s': expected dtype int32 or int64, got %s", t->name(), dtype_text(*t).data);
  AITER_TRY(check_layout(*t));
  if (is_int64 && !t->empty() && reinterpret_cast<uintptr_t>(t->data()) % 8 != 0)
    return value_error("argument '%s': data is not aligned to its 8-byte elements", t->name());
  if (columns && t->rank() == 2) {
    const int64_t shape[2] = {size, t->size(1)};
    AITER_TRY(check_shape(*t, shape, "(batch, columns)"));
  } else {
    const int64_t shape[1] = {size};
    AITER_TRY(check_shape(*t, shape, columns ? "(batch,), or (batch, columns)" : "(batch,)"));
  }
  const bool rows = t->rank() == 2;
  *to = {t->data(), t->stride(0), rows ? t->stride(1) : 0, rows ? t->size(1) : 1, is_int64};
  return Status();
}

// check_starts checks query_start_loc and sets the batch.
inline Status check_starts(const TensorView& t, Served* p) {
  AITER_TRY(check_rank(t, 1, "(batch+1,)"));
  if (t.size(0) < 1) return value_error("argument '%s': expected batch+1 elements, got none", t.name());
  AITER_TRY(check_indices({true, t}, t.size(0), false, &p->starts));
  p->batch = t.size(0) - 1;
  return Status();
}

inline int64_t shorter(int64_t a, int64_t b) { return a < b ? a : b; }

inline Array3 rows_of(const TensorView& t, bool packed) {
  if (packed) return {t.data(), 0, t.stride(1), t.stride(0)};
  return {t.data(), t.stride(0), t.stride(1), t.rank() == 3 ? t.stride(2) : 0};
}

inline Status too_short(const TensorView& state, int64_t need, const char* why) {
  return value_error("argument '%s': expected a length of at least %lld (%s), got shape %s", state.name(), static_cast<long long>(need),
                     why, shape_text(state).data);
}

// check_state checks conv_state and how many tokens of a sequence it has room for.
inline Status check_state(const Arguments& a, Served* p) {
  const TensorView& state = a.conv_state;
  AITER_TRY(check_float(state));
  AITER_TRY(check_rank(state, 3, "(slots, dim, length)"));
  const int64_t N = state.size(0), S = state.size(2), shape[3] = {N, p->dim, S}, W = p->width;
  AITER_TRY(check_shape(state, shape, "(slots, dim, length)"));
  if (S < W - 1) return too_short(state, W - 1, "width-1");
  if (!a.table && N < p->batch)
    return value_error("argument '%s': expected at least %lld slots, one for each sequence, got shape %s", state.name(),
                       static_cast<long long>(p->batch), shape_text(state).data);
  if (a.max_query_len < -1)
    return value_error("argument 'max_query_len': expected -1 or a number of tokens, got %lld", static_cast<long long>(a.max_query_len));
  p->longest = a.starts ? (a.max_query_len < 0 ? p->seqlen : a.max_query_len) : p->seqlen;
  if (a.accepted && a.starts && a.max_query_len < 0) p->longest = shorter(p->longest, S - (W - 2));
  if (a.accepted && S < W - 2 + p->longest) return too_short(state, W - 2 + p->longest, "width-2 and the tokens of a sequence");
  p->slots = N, p->length = S, p->kept = a.leading ? W - 1 : S;
  static_cast<Array3&>(p->state) = array3(state), p->state.dtype = state.dtype();
  return Status();
}

// check_window checks the windows behind each token.
inline Status check_window(const Arguments& a, Served* p) {
  if (a.window_rows && !a.window) return value_error("argument 'intermediate_state_indices': expected intermediate_conv_window too");
  if (!a.window) return Status();
  const TensorView& w = *a.window;
  AITER_TRY(check_float(w));
  AITER_TRY(check_rank(w, 4, "(rows, steps, dim, width-1)"));
  const int64_t shape[4] = {w.size(0), w.size(1), p->dim, p->width - 1};
  AITER_TRY(check_shape(w, shape, "(rows, steps, dim, width-1)"));
  p->windows = shape[0], p->steps = shape[1], p->step = w.stride(1);
  p->window.data = w.data(), p->window.batch = w.stride(0), p->window.dim = w.stride(2), p->window.last = w.stride(3);
  p->window.dtype = w.dtype();
  return check_indices(a.window_rows, p->batch, false, &p->window_rows);
}

// check_tables checks the tensors of indices.
inline Status check_tables(const Arguments& a, Served* p) {
  AITER_TRY(check_indices(a.table, p->batch, true, &p->table));
  AITER_TRY(check_indices(a.accepted, p->batch, false, &p->accepted));
  AITER_TRY(check_indices(a.first, p->batch, false, &p->first));
  AITER_TRY(check_indices(a.last, p->batch, false, &p->last));
  if ((a.first || a.last) && !a.table)
    return value_error("argument '%s': is a column of the slot indices, which are missing", (a.first ? a.first : a.last)->name());
  if (!a.parents) return Status();
  AITER_TRY(check_rank(*a.parents, 2, "(batch, tokens)"));
  AITER_TRY(check_indices(a.parents, p->batch, true, &p->parents));
  if (a.starts && a.max_query_len < 0) p->longest = shorter(p->longest, p->parents.columns);
  if (p->parents.columns >= p->longest) return Status();
  return value_error("argument '%s': expected a column for each of %lld tokens, got shape %s", a.parents->name(),
                     static_cast<long long>(p->longest), shape_text(*a.parents).data);
}

// check_problem checks everything but the outputs and fills p in.
inline Status check_problem(const Arguments& a, Served* p) {
  const TensorView& x = a.x;
  AITER_TRY(check_held(x));
  const bool packed = a.starts.given;
  if (packed || x.rank() != 3) AITER_TRY(check_rank(x, 2, packed ? "(tokens, dim), since query_start_loc is given" : "(batch, dim), or 3"));
  AITER_TRY(check_filter(a.weight, a.bias, x.size(1), p));
  p->batch = x.size(0), p->seqlen = packed ? x.size(0) : x.rank() == 3 ? x.size(2) : 1;
  p->silu = a.silu, p->clears = a.clears, p->pad = a.pad;
  if (packed) AITER_TRY(check_starts(*a.starts, p));
  AITER_TRY(check_state(a, p));
  AITER_TRY(check_tables(a, p));
  AITER_TRY(check_window(a, p));
  if (a.residual) AITER_TRY(check_same_shape(*a.residual, x));
  if (a.residual) AITER_TRY(check_dtype(*a.residual, x.dtype(), " as 'x'"));
  p->x = rows_of(x, packed);
  if (a.residual) p->residual = rows_of(*a.residual, packed);
  return Status();
}

inline void list(const Arguments& a, bool in_place, Tensors* all) {
  all->output(a.conv_state), all->output(a.window);
  if (!in_place) all->input(a.x);
  all->input(a.weight), all->input(a.bias), all->input(a.table), all->input(a.starts), all->input(a.accepted), all->input(a.last);
  all->input(a.first), all->input(a.parents), all->input(a.residual), all->input(a.window_rows);
}

// is_x reports whether out is x itself.
inline bool is_x(const TensorView& out, const TensorView& x) {
  bool same = out.data() == x.data();
  for (int i = 0; same && i < x.rank(); i++) same = x.size(i) < 2 || out.stride(i) == x.stride(i);
  return same;
}

// check_served checks the arguments of causal_conv1d_serve_update and fills p in.
inline Status check_served(const Arguments& a, const TensorView& out, Served* p) {
  AITER_TRY(check_problem(a, p));
  AITER_TRY(same_shape(out, a.x));
  p->out[0] = rows_of(out, a.starts.given), p->ends[0] = p->ends[1] = p->dim;
  const bool in_place = !a.x.empty() && is_x(out, a.x);
  if (in_place && (a.parents || is_wide(p->width)))
    return value_error("arguments 'out' and 'x': share memory, which needs a width of at most 8 and no retrieve_parent_token");
  Tensors all;
  all.output(out);
  list(a, in_place, &all);
  return all.check();
}

// check_parts checks the types of q, k and v, their shapes with check_part(t), and their channels together. It fills out and ends of p
// in, and adds q, k and v to all.
template <class P, class Check>
Status check_parts(const TensorView (&out)[3], DType dtype, bool packed, Check check_part, P* p, Tensors* all) {
  int64_t end = 0;
  for (int i = 0; i < 3; i++) {
    AITER_TRY(check_dtype(out[i], dtype, " as 'x'"));
    AITER_TRY(check_part(out[i]));
    p->out[i] = rows_of(out[i], packed), end += out[i].size(1);
    if (i < 2) p->ends[i] = end;
    all->output(out[i]);
  }
  if (end == p->dim) return Status();
  return value_error("arguments 'q', 'k' and 'v': expected %lld channels together, as 'x', got %lld", static_cast<long long>(p->dim),
                     static_cast<long long>(end));
}

// check_split checks the arguments of causal_conv1d_update_split_qkv and fills p in.
inline Status check_split(const Arguments& a, const TensorView (&out)[3], Served* p) {
  Tensors all;
  const auto check_part = [&](const TensorView& t) {
    AITER_TRY(check_rank(t, a.x.rank(), "as 'x'"));
    const int64_t n = t.size(1), flat[2] = {a.x.size(0), n}, deep[3] = {a.x.size(0), n, a.x.rank() == 3 ? a.x.size(2) : 1};
    const char* const meaning = "as 'x', of some channels";
    return a.x.rank() == 3 ? check_shape(t, deep, meaning) : check_shape(t, flat, meaning);
  };
  AITER_TRY(check_problem(a, p));
  AITER_TRY(check_parts(out, a.x.dtype(), a.starts.given, check_part, p, &all));
  list(a, false, &all);
  return all.check();
}

}  // namespace aiter::conv1d::serve
