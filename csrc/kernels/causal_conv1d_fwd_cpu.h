// causal_conv1d_fwd at one level (aiter/cpu_each.h includes this once a level).
//
// Rows where positions are adjacent in memory, tokens where channels are, tiles
// for the rest. A part of the work is about 64 Ki elements, whichever thread takes it.

#include "causal_conv1d_rows_cpu.h"
#include "causal_conv1d_tile_cpu.h"
#include "causal_conv1d_tokens_cpu.h"

namespace aiter::AITER_LEVEL::conv1d::fwd {

constexpr int64_t kPart = 64 << 10;  // elements

inline int64_t pieces(int64_t n, int64_t piece) { return (n + piece - 1) / piece; }

// streams says whether out is better written past the caches: what is much larger
// than they are does not stay there until somebody reads it.
template <class T> bool streams(const Forward& p) { return p.batch * p.dim * p.seqlen >= (16 << 20) / int64_t(sizeof(T)); }

template <class T> void tails(const Forward& p, int64_t b, int64_t d, int64_t count) {
  if (p.final.data)
    for (int64_t i = 0; i < count; i++) final_states<T>(p, b, d + i);
}

// ByRow: parts are some rows, or a segment of a long one.
template <class T> struct ByRow {
  const Forward& p;
  int64_t segment, segments, rows;  // positions; segments a row; rows a part

  explicit ByRow(const Forward& problem) : p(problem) {
    segments = pieces(p.seqlen, kPart), segment = pieces(p.seqlen, segments);
    rows = p.seqlen < kPart ? kPart / p.seqlen : 1;
  }
  static bool fits(const Forward& p) {
    return (p.seqlen == 1 || (p.x.last == 1 && p.out.last == 1)) && !p.seq.data && p.width <= kRowWidth;
  }
  int64_t parts() const { return pieces(p.batch * p.dim, rows) * segments; }

  void operator()(int64_t part) const {
    const int64_t first = part / segments * rows, t = part % segments * segment;
    Taps taps;
    taps.streams = streams<T>(p);
    for (int64_t i = first; i < least(first + rows, p.batch * p.dim); i++) {
      taps.read(p, i % p.dim);
      row(i / p.dim, i % p.dim, t, least(segment, p.seqlen - t), taps);
    }
    drain();
  }

  void row(int64_t b, int64_t d, int64_t t, int64_t n, const Taps& taps) const {
    const T* x = p.x.row<T>(b, d) + t;
    T* out = p.out.row<T>(b, d) + t;
    if (n > 0 && t >= p.width - 1) {
      convolve(x - (p.width - 1), out, n, taps);
    } else {
      Front<T> front;
      const T* initial = p.initial.data ? p.initial.row<T>(b, d) : nullptr;
      for (int64_t j = 0; j < p.width - 1; j++)
        front.values[j] = initial ? initial[j * p.initial.last] : round_to<T>(0.0f);
      front.row(x, out, n, taps);
    }
    if (t == 0) tails<T>(p, b, d, 1);
  }
};

// ByToken: parts are a block of channels by some positions.
template <class T> struct ByToken {
  const Forward& p;
  const Blocks blocks;
  int64_t segment, segments;

  explicit ByToken(const Forward& problem) : p(problem), blocks(p.dim, kBlock) {
    const int64_t most = kPart / least(p.dim, kBlock);
    segments = pieces(p.seqlen, most), segment = pieces(p.seqlen, segments);
  }
  static bool fits(const Forward& p) {
    return p.x.dim == 1 && p.out.dim == 1 && p.dim >= kLanes && !p.seq.data && p.width <= kTokenWidth;
  }
  int64_t parts() const { return p.batch * blocks.count * segments; }

  void operator()(int64_t part) const {
    const int64_t block = part % blocks.count, t = part / blocks.count % segments * segment;
    const int64_t b = part / blocks.count / segments, d = blocks.first(block), count = blocks.size(block);
    TokenTaps taps;
    taps.read(p, d, count), taps.streams = streams<T>(p);
    T before[(kTokenWidth - 1) * kMostBlock];
    if (t < p.width - 1) states(b, d, count, before);
    const Strip<T> strip{p.x.row<T>(b, d), p.out.row<T>(b, d), p.x.last, p.out.last, before};
    strip.run(t, least(p.seqlen, t + segment), taps);
    if (t == 0) tails<T>(p, b, d, count);
    drain();
  }

  void states(int64_t b, int64_t d, int64_t count, T* before) const {
    for (int64_t j = 0; j < p.width - 1; j++)
      for (int64_t c = 0; c < count; c++)
        before[j * count + c] = p.initial.data ? p.initial.row<T>(b, d + c)[j * p.initial.last] : round_to<T>(0.0f);
  }
};

// ByTile: parts are tiles that follow each other along positions.
template <class T> struct ByTile {
  const Forward& p;
  bool* failed;
  int64_t groups, segment, segments;

  ByTile(const Forward& problem, bool* f) : p(problem), failed(f), groups(pieces(p.dim, kChannels)) {
    segment = kPart / kChannels, segments = pieces(p.seqlen, segment);
  }
  int64_t parts() const { return p.batch * groups * segments; }

  void operator()(int64_t part) const {
    const int64_t d = part % groups * kChannels, t = part / groups % segments * segment, b = part / groups / segments;
    const Channels c{b, d, int(least(kChannels, p.dim - d))};
    Filter filter;
    Buffer<kTokens + kTileWidth - 1> x;
    if (!filter.grow(p.width) || !x.grow(kTokens + p.width - 1)) {
      __atomic_store_n(failed, true, __ATOMIC_RELAXED);
      return;
    }
    filter.read(p, c);
    for (int64_t u = t; u < least(t + segment, p.seqlen); u += kTokens) tile(c, u, least(kTokens, p.seqlen - u), filter, x.row(0));
    if (t == 0) tails<T>(p, b, d, c.count);
  }

  void tile(const Channels& c, int64_t t, int64_t n, const Filter& filter, float* x) const {
    float out[kTokens * kChannels];
    gather_values<T>(p, c, t - (p.width - 1), n + p.width - 1, x);
    for (int64_t i = 0; i < n; i++) {
      Row y = filter.sum(p, c.b, t + i, x + i * kChannels);
      for (int j = 0; p.silu && j < kVectors; j++) y.v[j] = silu(y.v[j]);
      if (p.seq.data && p.sequence(c.b, t + i) < 0) y = Row::zero();
      y.to(out + i * kChannels);
    }
    scatter<T>(p.out, c, t, n, out);
  }
};

template <class W> void share(const W& work) { cpu::parallel(work.parts(), work); }

template <class T> Status run(const Forward& p) {
  bool failed = false;
  if (p.batch == 0 || p.dim == 0) return Status();
  if (p.seqlen == 0) {
    for (int64_t b = 0; b < p.batch; b++) tails<T>(p, b, 0, p.dim);
    return Status();
  }
  if (ByToken<T>::fits(p) && (p.channel_last || !ByRow<T>::fits(p))) share(ByToken<T>(p));
  else if (ByRow<T>::fits(p)) share(ByRow<T>(p));
  else share(ByTile<T>(p, &failed));
  return failed ? no_memory() : Status();
}

inline Status run(const Forward& p, DType dtype) {
  switch (dtype) {
    case DType::F32: return run<float>(p);
    case DType::F16: return run<half_t>(p);
    default: return run<bf16_t>(p);
  }
}

}  // namespace aiter::AITER_LEVEL::conv1d::fwd
