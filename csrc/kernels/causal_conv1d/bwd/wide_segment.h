// Segments and spans of the backward kernels of wide filters for 16-bit dense rows on sm_90a: where they are, and how a group of four warps
// copies them.
#pragma once

#include "any_width.h"
#include "wide_group_engine.h"
#include "wide_params.h"

namespace aiter::conv1d::bwd {

constexpr int kGroupLines = 64 + 8 + 64;  // dout, g behind it and x in front of its lines, x
constexpr int kLowLines = 64 + 8;         // the low part of g, and that behind it
constexpr int kDirectPositions = 1024;    // of a part of a segment that is computed again

#if AITER_WGMMA
// Segment is the part of a channel that a block computes: spans from `last` down to `low` of rows first_row to end_row - 1. Positions
// from `behind` on are of the next segment. If `last` is `behind`, the span there is computed for its g alone.
struct Segment {
  uint32_t d, number, first_row, end_row;
  int low, behind, last;

  AITER_DEVICE Segment(uint32_t d, uint32_t number, uint32_t first_row, uint32_t end_row, int low, int behind, int last)
      : d(d), number(number), first_row(first_row), end_row(end_row), low(low), behind(behind), last(last) {}
  AITER_DEVICE Segment(const WideParams& a, uint32_t n) {
    d = a.item_split.quotient(n), number = n - d * a.segments;
    const uint32_t group = a.parts.quotient(number), first = (number - group * a.parts.divisor) * a.items, rows = (group + 1) * a.rows;
    const uint32_t end = first + a.items < a.row_items ? first + a.items : a.row_items;
    first_row = group * a.rows, end_row = first >= end ? 0 : rows < uint32_t(a.p.batch) ? rows : uint32_t(a.p.batch);
    low = int(first) * wide::kSpan, behind = int(end) * wide::kSpan;
    last = a.p.silu && end < a.row_items ? behind : behind - wide::kSpan;
  }
};

// SpanItem is a span: positions from `start` on of row b.
struct SpanItem {
  uint32_t b;
  int start;

  // next returns the span after this one, which may be of a row behind the segment.
  AITER_DEVICE SpanItem next(const Segment& s) const {
    return start == s.low ? SpanItem{b + 1, s.last} : SpanItem{b, start - wide::kSpan};
  }
};

// compute_directly computes a segment again, by group kGroup. The caller needs none of its sums any more.
template <class T, int kGroup> AITER_DEVICE_COLD void compute_directly(const KernelParam<WideParams>& args, char* memory, Segment s) {
  const Backward& p = args.p;
  constexpr int kThreads = wide::kGroupThreads;
  const int thread = wide::group_thread(), width = int(p.width), end = s.behind < int(p.seqlen) ? s.behind : int(p.seqlen);
  float* const sums = reinterpret_cast<float*>(memory);
  float* const g = sums + width + 1;
  wide::group_barrier<kGroup>();
  for (int j = thread; j <= width; j += kThreads) sums[j] = 0.0f;
  AITER_ROLLED
  for (uint32_t b = s.first_row; b < s.end_row; b++) {
    AITER_ROLLED
    for (int low = s.low; low < end; low += kDirectPositions) {
      const int left = int(p.seqlen) - low, known = left < kDirectPositions + width - 1 ? left : kDirectPositions + width - 1;
      const int n = end - low < kDirectPositions ? end - low : kDirectPositions;
      wide::group_barrier<kGroup>();
      AITER_ROLLED
      for (int i = thread; i < known; i += kThreads) g[i] = g_at<T>(args, b, s.d, low + i);
      wide::group_barrier<kGroup>();
      AITER_ROLLED
      for (int i = thread; i < n; i += kThreads) {
        const float v = dx_at<T>(p, b, s.d, low + i, [&](int64_t u, float* grad) { return *grad = g[u - low], true; });
        p.dx.row<T>(b, s.d)[low + i] = round_to<T>(v);
      }
      AITER_ROLLED
      for (int j = thread; j <= width; j += kThreads) {  // the last one is dbias
        float sum = sums[j];
        AITER_ROLLED
        for (int i = low == 0 && j < width ? -j : 0; i < n; i++) {  // products of x[low + i]: x of other segments is theirs
          if (j == width) sum += g[i];
          else if (i + j < known) sum = fmaf(g[i + j], p.value<T>(b, s.d, low + i), sum);
        }
        sums[j] = sum;
      }
    }
  }
  wide::group_barrier<kGroup>();
  for (int j = thread; j <= width; j += kThreads) args.store_sum(s.number, s.d, j < width ? width - 1 - j : j, sums[j]);
}

// SpanCopies copies spans of up to kTaps taps between global and shared memory.
template <class T, int kTaps> struct SpanCopies {
  using Args = KernelParam<WideParams>;
  static constexpr int kSpan = wide::kSpan, kHaloLines = GroupGradShape<kTaps>::kHalo;

  const Args& a_;

  // vector returns the place of vector v of lines: v from the first line's on.
  static AITER_DEVICE uint32_t vector(int v) { return uint32_t((v >> 3) * 128 + ((v ^ v >> 3) & 7) * 16); }
  template <int kOffset = 0> static AITER_DEVICE void copy(uint32_t to, const T* from, bool valid) {
    asm volatile("cp.async.cg.shared.global [%0 + %3], [%1 + %3], 16, %2;"
                 ::"r"(to), "l"(from), "r"(valid ? 16 : 0), "n"(kOffset) : "memory");
  }
  // copy_span copies this thread's vectors of a span, of positions below `left`, 1024 positions apart.
  static AITER_DEVICE void copy_span(uint32_t to, const T* from, int left) {
    copy<0>(to, from, left > 0), copy<2048>(to, from, left > 1024), copy<4096>(to, from, left > 2048), copy<6144>(to, from, left > 3072);
  }
  // load starts to copy a span and its halo: of x in front of it (kSilu), or of dout behind it.
  template <bool kSilu> AITER_DEVICE void load(uint32_t d, const SpanItem& it, uint32_t dout_line, uint32_t x_line) const {
    const int thread = wide::group_thread(), left = int(a_.p.seqlen) - it.start - thread * 8, place = int(vector(thread));
    constexpr int kHalo = kHaloLines * 8;  // vectors
    const T* x = a_.p.x.template row<T>(it.b, d) + (it.start + thread * 8);
    const T* dout = a_.p.dout.template row<T>(it.b, d) + (it.start + thread * 8);
    copy_span(x_line + place, x, left);
    copy_span(dout_line + place, dout, left);
    if (thread < kHalo) {
      if (kSilu) copy(x_line + vector(thread - kHalo), x - kHalo * 8, it.start > 0);  // spans are longer than halos
      else copy(dout_line + 64 * 128 + place, dout + kSpan, left > kSpan);
    }
    commit_group();
  }
  // set_halo sets g behind a span, whose two parts are at `high` and `low`: that of the first lines of another span, or zeros.
  struct Parts {
    uint32_t high, low;
  };
  static AITER_DEVICE void set_halo(const Parts& to, bool zeros, const Parts& from) {
    const int thread = wide::group_thread();
    if (thread >= kHaloLines * 8) return;
    Words<4> high, rest;
    high.clear(), rest.clear();
    const uint32_t at = vector(thread);
    if (!zeros) high = load_shared<Words<4>>(from.high + at), rest = load_shared<Words<4>>(from.low + at);
    store_shared(to.high + 64 * 128 + at, high), store_shared(to.low + 64 * 128 + at, rest);
  }

  // store writes dx of a span.
  AITER_DEVICE void store(uint32_t d, const SpanItem& it, uint32_t from) const {
    const int p = wide::group_thread() * 8;
    int left = int(a_.p.seqlen) - it.start;
    T* const to = a_.p.dx.template row<T>(it.b, d) + it.start + p;
    from += vector(wide::group_thread());
    Words<4> v[4];
    AITER_UNROLL
    for (uint32_t i = 0; i < 4; i++) v[i] = load_shared<Words<4>>(from + i * 2048);
    left -= p;
    store_streaming_if<0>(left > 0, to, v[0]), store_streaming_if<2048>(left > 1024, to, v[1]);
    store_streaming_if<4096>(left > 2048, to, v[2]), store_streaming_if<6144>(left > 3072, to, v[3]);
  }
};
#endif

}  // namespace aiter::conv1d::bwd
