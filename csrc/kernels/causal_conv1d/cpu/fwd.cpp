// causal_conv1d_fwd on the CPU.
//
// Tiling: rows with adjacent positions, tokens with adjacent channels (cpu/fwd_levels.h), tiles of 32 channels by 64 positions as
// floats for other layouts, wider filters and with sequence numbers. Rows of wide filters are transformed (cpu/long_row.h), those
// of other layouts 32 channels at a time, transposed. A part of the work is about 64 Ki elements,
// or tuned.
// Bytes: x once (and W-1 positions a tile from cache), out once.
// Reduction: over the width, in fp32.

#include <aiter/ffi.h>
#include <aiter/tuning.h>

#include "cpu.h"
#include "groups.h"

namespace aiter::conv1d::fwd {

constexpr int64_t kPart = 64 << 10;  // elements

// Work is a problem with its element type.
struct Work {
  const Forward& p;
  DType dtype;
  const Kernels& kernels;
  int64_t part, threads;  // elements of a part; threads at most
  bool streams;           // out bypasses the caches
  bool failed = false;  // atomic: out of memory

  void fail() { __atomic_store_n(&failed, true, __ATOMIC_RELAXED); }
};

// From here on T is any type of the elements' size.

template <class T> void tails(const Forward& p, int64_t b, int64_t d, int64_t count) {
  if (p.final.data)
    for (int64_t i = 0; i < count; i++) final_states<T>(p, b, d + i);
}

// ChannelFirstParts: a part is some rows, or a segment of a long row.
template <class T> struct ChannelFirstParts {
  Work& work;
  const Forward& p;
  int64_t segment, segments, rows;  // positions; segments a row; rows a part

  int64_t size;                     // of transforms; 0: none

  explicit ChannelFirstParts(Work& w) : work(w), p(w.p) {
    const int64_t part = w.part, most = p.width < part / 4 ? part : 4 * p.width;
    segments = pieces(p.seqlen, most), segment = pieces(p.seqlen, segments);
    rows = p.seqlen < part ? part / p.seqlen : 1;
    size = long_size(p.width, segment, segments == 1 ? least(rows, p.batch) : 1, false);
  }
  int64_t parts() const { return pieces(p.batch * p.dim, rows) * segments; }

  void operator()(int64_t part) const {
    const int64_t first = part / segments * rows, t = part % segments * segment;
    RowFilter taps;
    RowStart<T> front;
    LongFilter filter;
    if (!taps.grow(p.width) || !front.grow(p.width) || (size && !filter.grow(size))) return work.fail();
    taps.streams = work.streams;
    for (int64_t i = first, read = -1; i < least(first + rows, p.batch * p.dim); i++) {
      const int64_t b = size ? i % p.batch : i / p.dim, d = size ? i / p.batch : i % p.dim;  // a spectrum serves all batches
      if (d != read) {
        taps.read(p, d), read = d;
        if (size) transform_filter(taps, &filter);
      }
      row(b, d, t, least(segment, p.seqlen - t), taps, &front, &filter);
    }
    cpu::drain();
  }

  void row(int64_t b, int64_t d, int64_t t, int64_t n, const RowFilter& taps, RowStart<T>* front, LongFilter* filter) const {
    const T* x = p.x.row<T>(b, d) + t;
    T* out = p.out.row<T>(b, d) + t;
    if (t >= p.width - 1) {
      if (n <= 0) return;
      if (size) convolve_long(work.dtype, nullptr, x, out, n, taps, filter);
      else work.kernels.convolve(x - (p.width - 1), out, n, taps);
    } else {
      const T* initial = p.initial.data ? p.initial.row<T>(b, d) : nullptr;
      for (int64_t j = 0; j < p.width - 1; j++)
        front->values[j] = initial ? initial[j * p.initial.last] : round_to<T>(0.0f);
      if (size) convolve_long(work.dtype, front->values.data(), x, out, n, taps, filter);
      else front->row(work.kernels, x, out, n, taps);
    }
    if (t == 0) tails<T>(p, b, d, 1);
  }
};

// ChannelLastParts: a part is a block of channels, 512 floats or 256 elements of 16 bits, by some positions.
template <class T> struct ChannelLastParts {
  Work& work;
  const Forward& p;
  const Blocks blocks;
  int64_t segment, segments;

  explicit ChannelLastParts(Work& w) : work(w), p(w.p), blocks(p.dim, token_block(p.width, kBlock * sizeof(T) / sizeof(float))) {
    segments = pieces(p.seqlen, pieces(w.part, least(p.dim, blocks.block))), segment = pieces(p.seqlen, segments);
  }
  int64_t parts() const { return p.batch * blocks.count * segments; }

  void operator()(int64_t part) const {
    const int64_t block = part % blocks.count, t = part / blocks.count % segments * segment;
    const int64_t b = part / blocks.count / segments, d = blocks.first(block), count = blocks.size(block);
    ChannelLastFilter taps;
    taps.read(p, d, count);
    T before[kTokenWidth * kMaxBlock];
    if (t < p.width - 1) states(b, d, count, before);
    const PositionRun strip{p.x.row<T>(b, d), p.out.row<T>(b, d), p.x.last, p.out.last, before, work.streams};
    work.kernels.strip(strip, t, least(p.seqlen, t + segment), taps);
    if (t == 0) tails<T>(p, b, d, count);
    cpu::drain();
  }

  void states(int64_t b, int64_t d, int64_t count, T* before) const {
    for (int64_t j = 0; j < p.width - 1; j++)
      for (int64_t c = 0; c < count; c++)
        before[j * count + c] = p.initial.data ? p.initial.row<T>(b, d + c)[j * p.initial.last] : round_to<T>(0.0f);
  }
};

// TileParts: a part is consecutive tiles along the positions.
template <class T> struct TileParts {
  Work& work;
  const Forward& p;
  int64_t groups, segment, segments;

  explicit TileParts(Work& w) : work(w), p(w.p), groups(pieces(p.dim, kChannels)) {
    segment = pieces(w.part, kChannels), segments = pieces(p.seqlen, segment);
  }
  int64_t parts() const { return p.batch * groups * segments; }

  void operator()(int64_t part) const {
    const int64_t d = part % groups * kChannels, t = part / groups % segments * segment, b = part / groups / segments;
    const Channels c{b, d, int(least(kChannels, p.dim - d))};
    Filter filter;
    Buffer<kTokens + kTileWidth - 1> x;
    if (!filter.taps.grow(p.width) || !x.grow(kTokens + p.width - 1)) return work.fail();
    filter.read(p, c);
    for (int64_t u = t; u < least(t + segment, p.seqlen); u += kTokens) tile(c, u, least(kTokens, p.seqlen - u), filter, x.row(0));
    if (t == 0) tails<T>(p, b, d, c.count);
  }

  void tile(const Channels& c, int64_t t, int64_t n, const Filter& filter, float* x) const {
    float out[kTokens * kChannels];
    gather_values(p, work.dtype, c, t - (p.width - 1), n + p.width - 1, x);
    tile_sums(p, filter, c.b, t, n, x, out, true);
    scatter(p.out, work.dtype, c, t, n, out);
  }
};

// LongTileParts: a part is 32 channels of a segment, as rows of floats that are transformed.
template <class T> struct LongTileParts {
  Work& work;
  const Forward& p;
  const int64_t groups, segments, segment, size, halo;

  explicit LongTileParts(Work& w)
      : work(w), p(w.p), groups(pieces(p.dim, kChannels)), segments(pieces(p.seqlen, p.width < 1024 ? 4096 : 4 * p.width)),
        segment(pieces(p.seqlen, segments)), size(long_size(p.width, segment, 1, true)), halo(p.width - 1) {}
  int64_t parts() const { return p.batch * groups * segments; }

  void operator()(int64_t part) const {
    const int64_t d = part % groups * kChannels, t = part / groups % segments * segment, b = part / groups / segments;
    const int64_t n = least(segment, p.seqlen - t), stride = pieces(halo + n, kMaxLanes) * kMaxLanes + kMaxLanes;
    const Channels c{b, d, int(least(kChannels, p.dim - d))};
    RowFilter taps;
    LongFilter filter;
    Room<float, 1> x;  // results begin where the values before them did
    if (!taps.grow(p.width) || !filter.grow(size) || !x.grow(kChannels * stride)) return work.fail();
    float tile[kTokens * kChannels];
    for (int64_t i = 0, m; i < halo + n; i += m) {
      m = least(kTokens, halo + n - i);
      gather_values(p, work.dtype, c, t - halo + i, m, tile);
      work.kernels.tile_to_rows(tile, m, x.data() + i, stride);
    }
    for (int j = 0; j < c.count; j++) {
      taps.read(p, d + j), transform_filter(taps, &filter);
      convolve_long(DType::F32, nullptr, x.data() + j * stride + halo, x.data() + j * stride, n, taps, &filter);
    }
    for (int64_t i = 0, m; i < n; i += m) {
      m = least(kTokens, n - i);
      work.kernels.rows_to_tile(x.data() + i, stride, m, tile);
      scatter(p.out, work.dtype, c, t + i, m, tile);
    }
    if (t == 0) tails<T>(p, b, d, c.count);
  }
};

template <class W> void share(const W& parts) { cpu::parallel(parts.parts(), parts, parts.work.threads); }

template <class T> void run(Work& work) {
  const Forward& p = work.p;
  const bool rows = (p.seqlen == 1 || (p.x.last == 1 && p.out.last == 1)) && !p.seq.data;
  const bool tokens = p.x.dim == 1 && p.out.dim == 1 && p.dim >= kMaxLanes && !p.seq.data && p.width <= kMostTokenWidth;
  if (p.seqlen == 0) {
    for (int64_t b = 0; b < p.batch; b++) tails<T>(p, b, 0, p.dim);
  } else if (tokens && (p.channel_last || !rows)) {
    share(ChannelLastParts<T>(work));
  } else if (rows) {
    share(ChannelFirstParts<T>(work));
  } else if (const LongTileParts<T> tiles(work); tiles.size && !p.seq.data) {
    share(tiles);
  } else {
    share(TileParts<T>(work));
  }
}

static Status forward(TensorView out, TensorView x, TensorView weight, Optional<TensorView> bias, bool use_silu,
                      Optional<TensorView> seq_idx, Optional<TensorView> initial_states,
                      Optional<TensorView> final_states_out) {
  Forward p{};
  AITER_TRY(check_forward({x, weight, given(bias), seq_idx, initial_states}, out, final_states_out, use_silu, &p));
  AITER_TRY(cpu::check_settings());
  if (p.batch == 0 || p.dim == 0) return Status();
  ChannelFilters filters;
  AITER_TRY(filters.expand(weight, &p));
  Work work{p, x.dtype(), kernels(x.dtype()), tuned("part", kPart), tuned("threads", cpu::kMostThreads),
            tuned("stream", streams(p, x.dtype())) != 0};
  if (dtype_size(x.dtype()) == 4) run<float>(work);
  else run<half_t>(work);
  return work.failed ? no_memory() : Status();
}

}  // namespace aiter::conv1d::fwd

AITER_EXPORT(causal_conv1d_fwd, conv1d::fwd::forward, arg("out"), arg("x"), arg("weight"), none("bias"),
             flag("use_silu", false), none("seq_idx"), none("initial_states"), none("final_states_out"))
