// Sequences and their slots on the CPU: rows with adjacent positions, tokens with adjacent channels or with one position, tiles
// for other layouts.
//
// A part of the work is some channels of all sequences, in the batch's order, since sequences may share a slot; if each has its
// own slot, of some sequences. T is any type of the elements' size.
#pragma once

#include <aiter/tuning.h>

#include "cpu.h"
#include "../common/state.h"

namespace aiter::conv1d::state {

constexpr int64_t kPart = 32 << 10;  // elements

// clear writes zeros to n positions from t on of some channels, if they are within out.
template <class T> void clear(const Stateful& p, int64_t row, int64_t d, int64_t count, int64_t t, int64_t n) {
  const int64_t from = t > 0 ? t : 0, end = least(t + n, p.seqlen);
  for (int64_t u = from; u < end; u++)
    for (int64_t j = 0; j < count; j++) p.out.row<T>(row, d + j)[u * p.out.last] = round_to<T>(0.0f);
}

template <class T> void store_state(const Stateful& p, const Sequence& s, int64_t d, int64_t count) {
  for (int64_t j = 0; p.has_state && j < count; j++) p.template store_state<T>(s, d + j);
}

// ChannelFirstSequences computes channels one after another.
template <class T> struct ChannelFirstSequences {
  const Stateful& p;
  const DType dtype;
  const Kernels& table;
  RowStart<T> front;
  RowFilter taps;
  LongFilter filter;

  ChannelFirstSequences(const Stateful& problem, DType type) : p(problem), dtype(type), table(kernels(type)) {}
  static bool fits(const Stateful& p) { return p.x.last == 1 && p.out.last == 1; }
  bool prepare() {
    const int64_t size = long_size(p.width, p.starts.data ? p.seqlen / (p.batch > 0 ? p.batch : 1) : p.seqlen, 1, false);
    return taps.grow(p.width) && front.grow(p.width) && (!size || filter.grow(size));
  }

  void run(const Sequence& s, int64_t d, int64_t count) {
    const bool transforms = filter.size && long_size(p.width, s.len, 1, false);
    for (int64_t j = d; j < d + count; j++) {
      taps.read(p, j);
      if (transforms) transform_filter(taps, &filter);
      for (int64_t u = 1 - p.width; u < 0; u++) front.values[u + p.width - 1] = p.before<T>(s, j, u);
      if (transforms) convolve_long(dtype, front.values.data(), p.inputs<T>(s, j), p.outputs<T>(s, j), s.len, taps, &filter);
      else if (s.len > 0) front.row(table, p.inputs<T>(s, j), p.outputs<T>(s, j), s.len, taps);
    }
    store_state<T>(p, s, d, count);
  }
};

// ChannelLastSequences computes a block of channels side by side. It copies values that are not adjacent in memory, bit for bit: single
// positions of x and out, and the slot's values.
template <class T> struct ChannelLastSequences {
  const Stateful& p;
  const Kernels& table;
  ChannelLastFilter taps;
  int64_t read = -1;  // the first channel of the filter that has been read
  T before[kTokenWidth * kMaxBlock];
  T x[kMaxBlock], out[kMaxBlock];

  ChannelLastSequences(const Stateful& problem, DType dtype) : p(problem), table(kernels(dtype)) {}
  static bool fits(const Stateful& p) {
    return ((p.x.dim == 1 && p.out.dim == 1) || (p.seqlen == 1 && !p.starts.data)) && p.dim >= kMaxLanes && p.width <= kMostTokenWidth;
  }
  bool prepare() { return true; }

  void run(const Sequence& s, int64_t d, int64_t count) {
    if (read != d) taps.read(p, d, count), read = d;
    if (steps(s)) return table.step(p.state.row<T>(s.slot, d), p.inputs<T>(s, d), p.outputs<T>(s, d), taps);
    history(s, d, count);
    if (p.x.dim == 1 && p.out.dim == 1) {
      table.strip({p.inputs<T>(s, d), p.outputs<T>(s, d), p.x.last, p.out.last, before, false}, 0, s.len, taps);
    } else {
      for (int64_t c = 0; c < count; c++) x[c] = p.inputs<T>(s, d)[c * p.x.dim];
      table.strip({x, out, 0, 0, before, false}, 0, s.len, taps);
      for (int64_t c = 0; c < count; c++) p.outputs<T>(s, d)[c * p.out.dim] = out[c];
    }
    if (!p.has_state) return;
    if (s.len == 1 && !p.cache_seqlens.data && s.has_initial) shift(s, d, count);
    else store_state<T>(p, s, d, count);
  }

 private:
  // steps reports whether the step kernel takes the sequence: one position behind slots of three values.
  bool steps(const Sequence& s) const {
    return s.len == 1 && s.has_initial && p.width == 4 && p.length == 3 && p.state.last == 1 && p.state.dim == 3 &&
           p.x.dim == 1 && p.out.dim == 1 && !p.cache_seqlens.data;
  }

  void history(const Sequence& s, int64_t d, int64_t count) {
    const int64_t halo = p.width - 1;
    if (!s.has_initial) {
      memset(before, 0, halo * count * sizeof(T));
      return;
    }
    for (int64_t j = 0; j < halo; j++) {
      const T* from = p.state.row<T>(s.slot, d) + p.history(s, j - halo) * p.state.last;
      T* to = before + j * count;
      if (p.state.dim == 1) memcpy(to, from, count * sizeof(T));
      else for (int64_t c = 0; c < count; c++) to[c] = from[c * p.state.dim];
    }
  }

  // shift is store_state for one position.
  void shift(const Sequence& s, int64_t d, int64_t count) {
    T* slot = p.state.row<T>(s.slot, d);
    const T* from = p.inputs<T>(s, d);
    const int64_t n = p.length, dim = p.state.dim, last = p.state.last;
    if (n == 0) return;
    if (last == 1 && dim == n) memmove(slot, slot + 1, (count * n - 1) * sizeof(T));
    else if (dim == 1) for (int64_t j = 0; j + 1 < n; j++) memcpy(slot + j * last, slot + (j + 1) * last, count * sizeof(T));
    else for (int64_t c = 0; c < count; c++)
      for (int64_t j = 0; j + 1 < n; j++) slot[c * dim + j * last] = slot[c * dim + (j + 1) * last];
    for (int64_t c = 0; c < count; c++) slot[c * dim + (n - 1) * last] = from[c * p.x.dim];
  }
};

// TiledSequences computes 32 channels side by side as floats.
template <class T> struct TiledSequences {
  const Stateful& p;
  const DType dtype;
  const int64_t halo;
  Filter filter;
  Buffer<kTokens + kTileWidth - 1> x;
  float y[kTokens * kChannels];

  TiledSequences(const Stateful& problem, DType t) : p(problem), dtype(t), halo(problem.width - 1) {}
  bool prepare() { return filter.taps.grow(p.width) && x.grow(kTokens + halo); }

  void run(const Sequence& s, int64_t d, int64_t count) {
    for (int64_t i = 0; i < count; i += kChannels) tiles(s, {s.row, d + i, int(least(kChannels, count - i))});
    store_state<T>(p, s, d, count);
  }

 private:
  void tiles(const Sequence& s, const Channels& c) {
    filter.read(p, c);
    for (int64_t t = 0; t < s.len; t += kTokens) {
      const int64_t n = least(kTokens, s.len - t);
      values(s, c, t - halo, n + halo);
      tile_sums(p, filter, s.row, s.start + t, n, x.row(0), y, true);
      scatter(p.out, dtype, c, s.start + t, n, y);
    }
  }

  // values reads X[from..from+n] of the sequence.
  void values(const Sequence& s, const Channels& c, int64_t from, int64_t n) {
    const int64_t before = least(from < 0 ? -from : 0, n);
    for (int64_t i = 0; i < before; i++) {
      if (s.has_initial) gather(p.state, dtype, {s.slot, c.d, c.count}, p.history(s, from + i), 1, x.row(i));
      else memset(x.row(i), 0, kChannels * sizeof(float));
    }
    if (before < n) gather(p.x, dtype, c, s.start + from + before, n - before, x.row(before));
  }
};

// ordered reports whether packed sequences are in x, each behind the one before.
inline bool ordered(const Stateful& p) {
  for (int64_t b = 0; b < p.batch; b++)
    if (p.starts[b] > p.starts[b + 1]) return false;
  return p.starts[0] >= 0 && p.starts[p.batch] <= p.seqlen;
}

// blank clears the positions that belong to no packed sequence; all of them where
// sequences are out of order.
template <class T> void blank(const Stateful& p, bool in_order, int64_t d, int64_t count) {
  if (!in_order) return clear<T>(p, 0, d, count, 0, p.seqlen);
  clear<T>(p, 0, d, count, 0, p.starts[0]);
  clear<T>(p, 0, d, count, p.starts[p.batch], p.seqlen - p.starts[p.batch]);
}

template <class T, template <class> class Of> Status share(const Stateful& p, DType dtype) {
  const Blocks blocks(p.dim, token_block(p.width, kBlock));
  const bool own = !p.has_state || !p.indices.data;  // a slot for each sequence
  const bool in_order = !p.starts.data || ordered(p);
  const int64_t average = p.starts.data ? p.seqlen / (p.batch + 1) + 1 : p.seqlen;
  int64_t each = p.batch;  // sequences a part
  if (own && in_order) each = tuned("part", kPart) / (average * least(p.dim, blocks.block)) + 1;
  const int64_t groups = p.batch > each ? (p.batch + each - 1) / each : 1;
  bool failed = false;
  cpu::parallel(blocks.count * groups, [&](int64_t part) {
    const int64_t d = blocks.first(part % blocks.count), count = blocks.size(part % blocks.count), first = part / blocks.count * each;
    if (p.starts.data && first == 0) blank<T>(p, in_order, d, count);
    Of<T> of(p, dtype);
    if (!of.prepare()) {
      __atomic_store_n(&failed, true, __ATOMIC_RELAXED);
      return;
    }
    for (int64_t b = first; b < least(first + each, p.batch); b++) {
      const Sequence s = p.sequence(b);
      if (s.live) of.run(s, d, count);
      else clear<T>(p, s.row, d, count, s.start, s.len);
    }
  }, tuned("threads", cpu::kMostThreads));
  return failed ? no_memory() : Status();
}

template <class T> Status run(const Stateful& p, DType dtype) {
  const bool rows = ChannelFirstSequences<T>::fits(p), tokens = ChannelLastSequences<T>::fits(p);
  if (tokens && (p.channel_last || p.seqlen == 1 || !rows)) return share<T, ChannelLastSequences>(p, dtype);
  return rows ? share<T, ChannelFirstSequences>(p, dtype) : share<T, TiledSequences>(p, dtype);
}

inline Status run(const Stateful& p, DType dtype) {
  AITER_TRY(cpu::check_settings());
  if (p.dim == 0) return Status();
  return dtype_size(dtype) == 4 ? run<float>(p, dtype) : run<half_t>(p, dtype);
}

}  // namespace aiter::conv1d::state
