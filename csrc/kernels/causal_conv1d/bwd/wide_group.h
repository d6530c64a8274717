// The backward kernel of wide filters for 16-bit dense rows on sm_90a. With SiLU, filters of 34 to 129 taps of x's type have that of
// bwd/wide_pipeline.h.
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

#include "wide_segment.h"

namespace aiter::conv1d::bwd {

// group_bytes returns the shared memory of a block for filters of up to kTaps taps.
template <int kTaps> constexpr int group_bytes(bool split) {
  using Shape = GroupGradShape<kTaps>;
  return (2 * kGroupLines + kLowLines) * 128 + (split ? 2 : 1) * Shape::kCopies * Shape::kPitch * 2;
}
static_assert(kDirectPositions * 4 + 2 * kMostGroupTaps * 4 + 64 <= kGroupLines * 128);

#if AITER_WGMMA
template <class T, int kTaps, bool kSilu> class WideGroupBackward {
 public:
  using Args = KernelParam<WideParams>;
  using E = GroupGradEngine<T, kTaps>;
  using Item = SpanItem;
  static_assert(E::kScratchBytes <= kGroupLines * 128);

  AITER_DEVICE WideGroupBackward(const Args& a, char* memory)
      : a_(a), copies_{a}, memory_(memory), lines_(shared_address(memory)), engine_(a, memory + (2 * kGroupLines + kLowLines) * 128) {}

  // run computes segments n, n + step ..., before `end`.
  AITER_DEVICE void run(uint32_t n, uint32_t end, uint32_t step) {
    if (n >= end) return;
    Item it;
    typename E::Fetched taps;
    start(n, 0, &it, &taps);
    engine_.set_taps(taps);
    if constexpr (kSilu) SpanCopies<T, kTaps>::set_halo(g(0), true, g(0));
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
      Item ahead = it.next(s);
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
      if (own) copies_.store(segment(n).d, it, x);
      if (last) {
        finish(segment(n), stage, total, found);
        if (!more) return;
        engine_.set_taps(taps);
        block_barrier();
        total = 0.0f, found = {}, n += step;
      }
      if constexpr (kSilu) SpanCopies<T, kTaps>::set_halo(g(stage ^ 1), last || ahead.b != it.b, g(stage));
      it = ahead, stage ^= 1;
    }
  }

 private:
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
  AITER_DEVICE void load(uint32_t d, const Item& it, int stage) const { copies_.template load<kSilu>(d, it, dout_of(stage), x_of(stage)); }

  AITER_DEVICE uint32_t dout_of(int stage) const { return lines_ + uint32_t(stage * kGroupLines * 128); }
  AITER_DEVICE uint32_t x_of(int stage) const { return dout_of(stage) + (64 + 8) * 128; }
  AITER_DEVICE uint32_t low() const { return lines_ + 2 * kGroupLines * 128; }

  AITER_DEVICE typename SpanCopies<T, kTaps>::Parts g(int stage) const { return {dout_of(stage), low()}; }

  // finish writes the sums of a segment, or computes it again. The stage's memory is free.
  AITER_DEVICE void finish(const Segment& s, int stage, float total, const wide::NonFinite<T>& found) const {
    char* const memory = memory_ + stage * kGroupLines * 128;
    if (__syncthreads_or(bool(found))) return compute_directly<T, 0>(a_, memory, s);
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
  SpanCopies<T, kTaps> copies_;
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
