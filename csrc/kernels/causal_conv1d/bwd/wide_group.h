// The backward kernel of wide filters for 16-bit dense rows on sm_90a.
//
// Tiling: a block of four warps walks rows of a channel backwards in spans of 4096 positions. It copies x and dout of a span to shared
// memory while it computes the one before, and multiplies there with wgmma (bwd/wide_group_engine.h). With SiLU, g is the sum of two
// elements: the high one takes the place of dout, the low one has a tile of its own. Without, g is dout. dx leaves through the tile of x.
// Halo: with SiLU W - 1 positions of x in front of a span, which are read again; g of the W - 1 positions behind it stays in shared memory,
// and a segment that starts within a row computes the span behind for it. Without SiLU W - 1 positions of dout behind a span.
// Bytes: x and dout once (the halo again, mostly from cache), dx once, 16 bytes an instruction; taps once a segment.
// Reduction: dweight over the spans of a segment in registers, then diagonals over the block; dbias in a thread and then over the block.
// Segments of a channel write their sums to a workspace.
//
// An infinity or NaN in x, dout or a tap reaches dx of its span (without SiLU, x is tested). Zeros of the products may carry it too far.
// A block that finds one at the end of its segment computes the whole segment again, one product after another.
#pragma once

#include "any_width.h"
#include "wide_group_engine.h"
#include "wide_params.h"

namespace aiter::conv1d::bwd {

constexpr int kGroupLines = 64 + 8 + 64;  // of a stage: dout, g behind it and x in front of its lines, x
constexpr int kLowLines = 64 + 8;
constexpr int kDirectPositions = 1024;    // of a part of a segment that is computed again

// group_bytes returns the shared memory of a block for filters of up to kTaps taps.
template <int kTaps> constexpr int group_bytes(bool split) {
  using Shape = GroupGradShape<kTaps>;
  return (2 * kGroupLines + kLowLines) * 128 + (split ? 2 : 1) * Shape::kCopies * Shape::kPitch * 2;
}
static_assert(kDirectPositions * 4 + 2 * kMostGroupTaps * 4 + 64 <= kGroupLines * 128);

#if AITER_WGMMA
// Segment is the part of a channel that a block computes: spans from `low` on of rows of the channel, walked backwards from `last` on. The
// span at `behind`, if it is `last`, is for its g alone.
struct Segment {
  uint32_t d, number, first_row, end_row;
  int low, behind, last;

  AITER_DEVICE Segment(const WideParams& a, uint32_t n) {
    d = a.item_split.quotient(n), number = n - d * a.segments;
    const uint32_t group = a.parts.quotient(number), first = (number - group * a.parts.divisor) * a.items, rows = (group + 1) * a.rows;
    const uint32_t end = first + a.items < a.row_items ? first + a.items : a.row_items;
    first_row = group * a.rows, end_row = first >= end ? 0 : rows < uint32_t(a.p.batch) ? rows : uint32_t(a.p.batch);
    low = int(first) * wide::kSpan, behind = int(end) * wide::kSpan;
    last = a.p.silu && end < a.row_items ? behind : behind - wide::kSpan;
  }
};

// compute_directly computes a segment again. It is called when nothing else is in registers.
template <class T> AITER_DEVICE_COLD void compute_directly(const KernelParam<WideParams>& args, char* memory, Segment s) {
  const Backward& p = args.p;
  constexpr int kThreads = wide::kGroupThreads;
  const int thread = int(threadIdx.x), width = int(p.width), end = s.behind < int(p.seqlen) ? s.behind : int(p.seqlen);
  float* const sums = reinterpret_cast<float*>(memory);
  float* const g = sums + width + 1;
  block_barrier();
  for (int j = thread; j <= width; j += kThreads) sums[j] = 0.0f;
  AITER_ROLLED
  for (uint32_t b = s.first_row; b < s.end_row; b++) {
    AITER_ROLLED
    for (int low = s.low; low < end; low += kDirectPositions) {
      const int left = int(p.seqlen) - low, known = left < kDirectPositions + width - 1 ? left : kDirectPositions + width - 1;
      const int n = end - low < kDirectPositions ? end - low : kDirectPositions;
      block_barrier();
      AITER_ROLLED
      for (int i = thread; i < known; i += kThreads) g[i] = g_at<T>(args, b, s.d, low + i);
      block_barrier();
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
  block_barrier();
  for (int j = thread; j <= width; j += kThreads) args.store_sum(s.number, s.d, j < width ? width - 1 - j : j, sums[j]);
}

template <class T, int kTaps, bool kSilu> class WideGroupBackward {
 public:
  using Args = KernelParam<WideParams>;
  using E = GroupGradEngine<T, kTaps>;
  static constexpr int kThreads = wide::kGroupThreads, kSpan = wide::kSpan;
  static_assert(E::kScratchBytes <= kGroupLines * 128);

  AITER_DEVICE WideGroupBackward(const Args& a, char* memory)
      : a_(a), memory_(memory), lines_(shared_address(memory)), engine_(a, memory + (2 * kGroupLines + kLowLines) * 128) {}

  // run computes segments n, n + step ..., before `end`.
  AITER_DEVICE void run(uint32_t n, uint32_t end, uint32_t step) {
    if (n >= end) return;
    Item it;
    typename E::Fetched taps;
    start(n, 0, &it, &taps);
    engine_.set_taps(taps);
    if constexpr (kSilu) set_halo(-1, 0);
    block_barrier();
    float total = 0.0f;
    wide::NonFinite<T> found;
    int stage = 0;
    for (;;) {
      typename E::Taps steps;
      if constexpr (kSilu) engine_.get_convolve_taps(steps);
      else engine_.get_transposed_taps(steps);
      wait_group<0>();
      wgmma_fence_shared();
      block_barrier();
      const uint32_t dout = dout_of(stage), x = x_of(stage);
      float sum = 0.0f;
      if constexpr (kSilu) {
        engine_.convolve(steps, x);
        sum = engine_.make_g(dout, low());
        engine_.get_transposed_taps(steps);
        wgmma_fence_shared();
        block_barrier();
      }
      const Segment s = segment(n);
      const bool own = it.start < s.behind;
      Item ahead = next(s, it);
      const bool last = ahead.b >= s.end_row, more = !last || n + step < end;
      if (!last) load(s.d, ahead, stage ^ 1);  // a thread overwrites what it stored
      else if (more) start(n + step, stage ^ 1, &ahead, &taps);
      if (own) {
        if (!kSilu && a_.p.dbias.data) sum = engine_.sum_tile(dout);
        total += sum;
        engine_.template multiply_g<kSilu ? 2 : 1>(steps, x, dout, low() - dout, found);
        engine_.store_dx(x, found);
        engine_.finish_products();
      }
      block_barrier();
      if (own) store(segment(n).d, it, x);
      if (last) {
        finish(segment(n), stage, total, found);
        if (!more) return;
        engine_.set_taps(taps);
        block_barrier();
        total = 0.0f, found = {}, n += step;
      }
      if constexpr (kSilu) set_halo(!last && ahead.b == it.b ? stage : -1, stage ^ 1);
      it = ahead, stage ^= 1;
    }
  }

 private:
  // Item is a span: positions from `start` on of row b.
  struct Item {
    uint32_t b;
    int start;
  };
  // segment returns segment n. It hides n from nvcc, which would keep all of the segment in registers.
  AITER_DEVICE Segment segment(uint32_t n) const {
    launder(n);
    return Segment(a_, n);
  }
  // start starts to copy the first span of segment n, and to read its channel's taps.
  AITER_DEVICE void start(uint32_t n, int stage, Item* it, typename E::Fetched* taps) const {
    const Segment s = segment(n);
    *it = {s.first_row, s.last};
    load(s.d, *it, stage);
    engine_.fetch(s.d, *taps);
  }
  static AITER_DEVICE Item next(const Segment& s, const Item& it) {
    return it.start == s.low ? Item{it.b + 1, s.last} : Item{it.b, it.start - kSpan};
  }

  AITER_DEVICE uint32_t dout_of(int stage) const { return lines_ + uint32_t(stage * kGroupLines * 128); }
  AITER_DEVICE uint32_t x_of(int stage) const { return dout_of(stage) + (64 + 8) * 128; }
  AITER_DEVICE uint32_t low() const { return lines_ + 2 * kGroupLines * 128; }

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
  AITER_DEVICE void load(uint32_t d, const Item& it, int stage) const {
    const int thread = int(threadIdx.x), left = int(a_.p.seqlen) - it.start - thread * 8, place = int(vector(thread));
    constexpr int kHalo = E::Shape::kHalo * 8;  // vectors
    const T* x = a_.p.x.template row<T>(it.b, d) + (it.start + thread * 8);
    const T* dout = a_.p.dout.template row<T>(it.b, d) + (it.start + thread * 8);
    copy_span(x_of(stage) + place, x, left);
    copy_span(dout_of(stage) + place, dout, left);
    if (thread < kHalo) {
      if (kSilu) copy(x_of(stage) + vector(thread - kHalo), x - kHalo * 8, it.start > 0);  // spans are longer than halos
      else copy(dout_of(stage) + 64 * 128 + place, dout + kSpan, left > kSpan);
    }
    commit_group();
  }
  // set_halo sets g behind the span of stage `to`: that of the first lines of stage `from`, or, if that is negative, zeros.
  AITER_DEVICE void set_halo(int from, int to) const {
    const int thread = int(threadIdx.x);
    if (thread >= E::Shape::kHalo * 8) return;
    Words<4> high, rest;
    high.clear(), rest.clear();
    const uint32_t at = vector(thread);
    if (from >= 0) high = load_shared<Words<4>>(dout_of(from) + at), rest = load_shared<Words<4>>(low() + at);
    store_shared(dout_of(to) + 64 * 128 + at, high), store_shared(low() + 64 * 128 + at, rest);
  }

  AITER_DEVICE void store(uint32_t d, const Item& it, uint32_t from) const {
    const int left = int(a_.p.seqlen) - it.start, p = int(threadIdx.x) * 8;
    T* const to = a_.p.dx.template row<T>(it.b, d) + it.start + p;
    from += vector(int(threadIdx.x));
    AITER_UNROLL
    for (int i = 0; i < 4; i++)
      if (p + i * 1024 < left) store_streaming<4>(to + i * 1024, load_shared<Words<4>>(from + uint32_t(i * 2048)));
  }

  // finish writes the sums of a segment, or computes it again. The stage's memory is free.
  AITER_DEVICE void finish(const Segment& s, int stage, float total, const wide::NonFinite<T>& found) const {
    char* const memory = memory_ + stage * kGroupLines * 128;
    if (__syncthreads_or(bool(found))) return compute_directly<T>(a_, memory, s);
    float* const scratch = reinterpret_cast<float*>(memory);
    float* const biases = scratch + E::kSumBytes / 4;
    const int thread = int(threadIdx.x), width = int(a_.p.width);
    float sum[1] = {total};
    warp_all_reduce(sum, 1, 32);
    if ((thread & 31) == 0) biases[thread >> 5] = sum[0];
    engine_.finish(scratch, [&](int j, float v) { a_.store_sum(s.number, s.d, width - 1 - j, v); });
    if (thread == 0) a_.store_sum(s.number, s.d, width, biases[0] + biases[1] + (biases[2] + biases[3]));
  }

  const Args& a_;
  char* memory_;
  uint32_t lines_;
  E engine_;
};
#endif

template <class T, int kTaps, bool kSilu>
__global__ void AITER_LAUNCH_BOUNDS(wide::kGroupThreads, (kGroupGradBlocks<kTaps>))
    causal_conv1d_bwd_wide_group_kernel(const AITER_GRID_CONSTANT KernelParam<WideParams> a) {
#if AITER_WGMMA
  if constexpr (AITER_KERNEL_CODE) {
    extern __shared__ __align__(1024) char lines[];
    WideGroupBackward<T, kTaps, kSilu>(a, lines).run(a.first_item + blockIdx.x, a.work_items, gridDim.x);
  }
#endif
}

}  // namespace aiter::conv1d::bwd
