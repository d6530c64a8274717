// The backward kernel with SiLU of wide filters of x's type for 16-bit dense rows on sm_90a, by two groups of four warps.
//
// Tiling: a block walks rows of a channel backwards in spans of 4096 positions, as in bwd/wide_group.h. Shared memory has three stages of
// one span each. The first group copies x and dout of span n + 1 to a stage and computes g of span n: its high part takes the place of
// dout, its low part has a tile behind x. The second group computes dweight and dx of span n - 1, writes dx to the place of x, and copies
// it to global memory. The matrix cores have products of one group while the other one computes on vector units or waits.
// Halo, bytes and reduction: as in bwd/wide_group.h.
//
// An infinity or NaN in x, dout or a tap reaches dx of its span. The second group, if it finds one at the end of its segment, computes the
// whole segment again, one product after another.
#pragma once

#include "wide_pipeline_engine.h"
#include "wide_segment.h"

namespace aiter::conv1d::bwd {

constexpr int kPipelineStages = 3, kPipelineBlocks = 2, kPipelineThreads = 2 * wide::kGroupThreads;
constexpr int kStageLines = kGroupLines + kLowLines;
constexpr int kBiasLine = 68;  // of a stage, for the sums of g of four warps. Neither g behind the span nor x in front of it is there.
constexpr int kSegmentSlots = 4;  // the first group sets that of span n + 3 while the second one may still finish that of span n

// PipelineMemory is the shared memory of a block, in bytes from its beginning: stages, memory of the second group, taps, segments.
// kSums is GroupWeightGrad::kSumBytes, which exists in code for sm_90a only.
template <class T, int kTaps> struct PipelineMemory {
  static constexpr int kSums = (kTaps > 65 ? 2 : 4) * ((kTaps + 6) / 8 + 1) * 72 * 4, kDirect = kDirectPositions * 4 + 2 * kTaps * 4 + 64;
  static constexpr int kScratch = kPipelineStages * kStageLines * 128;
  static constexpr int kTapsAt = kScratch + ((kSums > kDirect ? kSums : kDirect) + 127) / 128 * 128;
  static constexpr int kSegments = kTapsAt + PipelineTaps<T, kTaps>::kBytes, kBytes = kSegments + kSegmentSlots * 32;
};

#if AITER_WGMMA
template <class T, int kTaps> class WidePipeline {
 public:
  using Args = KernelParam<WideParams>;
  using Copies = SpanCopies<T, kTaps>;
  using Taps = PipelineTaps<T, kTaps>;
  using Memory = PipelineMemory<T, kTaps>;
  using WeightGrad = GroupWeightGrad<kTaps>;
  static_assert(WeightGrad::kSumBytes <= Memory::kSums && Copies::kHaloLines <= 2);
  static_assert(kPipelineBlocks * (Memory::kBytes + 1024) <= 228 * 1024, "a multiprocessor's memory; it reserves 1024 bytes of a block");

  AITER_DEVICE WidePipeline(const Args& a, char* memory)
      : a_(a), copies_{a}, memory_(memory), lines_(shared_address(memory)), taps_(a.p, memory + Memory::kTapsAt) {}

  // run computes segments n, n + step ..., before `end`.
  AITER_DEVICE void run(uint32_t n, uint32_t end, uint32_t step) {
    if (n >= end) return;
    const Segment s(a_, n);
    const Walk first = {n, s.d, {s.first_row, s.last}, 0, true};
    if (threadIdx.x == 0) put_segment(0, s);
    taps_.clear();
    block_barrier();
    if (int(threadIdx.x) < wide::kGroupThreads) {
      set_registers<128, 96>();
      make_g(first, end, step);
    } else {
      set_registers<128, 160>();
      use_g(first, end, step);
    }
  }

 private:
  static constexpr int kLow = kGroupLines * 128;  // from dout to the low part of g
  using Engine = UseG<T, kTaps, kLow>;
  // Numbers of barriers: one for each group and two for each stage. The first group arrives at kComplete + stage when g there is complete;
  // the second group waits for that. The second group arrives at kFree + stage when it has read the stage; the first group waits for that
  // before it copies the third span after it to the stage. The last span of a block is not freed.
  static constexpr int kFirstGroup = 1, kSecondGroup = 2, kComplete = 3, kFree = kComplete + kPipelineStages;

  // Walk is a place in a block's work: span `it` of segment n, which is of channel d. The segment's description is in `slot`.
  struct Walk {
    uint32_t n, d;
    SpanItem it;
    int slot;
    bool more;  // there is such a span
  };
  AITER_DEVICE uint32_t slot(int i) const { return lines_ + uint32_t(Memory::kSegments + i * 32); }
  AITER_DEVICE void put_segment(int i, const Segment& s) const {
    store_shared(slot(i), Words<4>{{s.d, s.number, s.first_row, s.end_row}});
    store_shared(slot(i) + 16, Words<4>{{uint32_t(s.low), uint32_t(s.behind), uint32_t(s.last), 0}});
  }
  AITER_DEVICE Segment get_segment(int i) const {
    const auto a = load_shared<Words<4>>(slot(i)), b = load_shared<Words<4>>(slot(i) + 16);
    return {a.word[0], a.word[1], a.word[2], a.word[3], int(b.word[0]), int(b.word[1]), int(b.word[2])};
  }
  // next returns the span after w. The first group finds the next segment (kFind); the second one reads it.
  template <bool kFind> AITER_DEVICE Walk next(const Walk& w, uint32_t end, uint32_t step) const {
    const Segment s = get_segment(w.slot);
    const SpanItem it = w.it.next(s);
    if (it.b < s.end_row) return {w.n, w.d, it, w.slot, w.more};
    if (w.n + step >= end) return {w.n, w.d, w.it, w.slot, false};
    const int to = (w.slot + 1) % kSegmentSlots;
    const Segment t = kFind ? Segment(a_, w.n + step) : get_segment(to);
    if (kFind && wide::group_thread() == 0) put_segment(to, t);
    return {w.n + step, t.d, {t.first_row, t.last}, to, w.more};
  }

  AITER_DEVICE uint32_t dout_of(int stage) const { return lines_ + uint32_t(stage * kStageLines * 128); }
  static AITER_DEVICE uint32_t x_of(uint32_t dout) { return dout + (64 + 8) * 128; }
  static AITER_DEVICE uint32_t low_of(uint32_t dout) { return dout + kLow; }
  static AITER_DEVICE int next_stage(int stage) { return stage == kPipelineStages - 1 ? 0 : stage + 1; }
  AITER_DEVICE void load(const Walk& w, int stage) const {
    if (w.more) copies_.template load<true>(w.d, w.it, dout_of(stage), x_of(dout_of(stage)));
  }

  AITER_DEVICE void make_g(Walk now, uint32_t end, uint32_t step) const {
    typename Taps::Fetched fetched;
    taps_.fetch(now.d, fetched);
    load(now, 0);
    int buffer = 0;
    float bias = taps_.store(0, fetched), total = 0.0f;
    if (now.n + step < end) taps_.fetch(Segment(a_, now.n + step).d, fetched);
    wide::group_barrier<kFirstGroup>();
    taps_.template build<false>(0);
    set_halo(dout_of(0), true, dout_of(0));
    Walk ahead = now;
    // before is the number of spans before this one, at most 2.
    for (int stage = 0, before = 0;; stage = next_stage(stage)) {
      wait_group<0>();
      wgmma_fence_shared();
      wide::group_barrier<kFirstGroup>();
      const uint32_t dout = dout_of(stage);
      const int following = next_stage(stage);
      const float sum = MakeG<T, kTaps>::make_g(taps_, bias, x_of(dout), dout, low_of(dout), [&] {
        if (before == 2) named_barrier(kFree + following, kPipelineThreads);
        ahead = next<true>(now, end, step);
        load(ahead, following);
      });
      const Segment s = get_segment(now.slot);
      if (now.it.start < s.behind) total += sum;
      const bool last = !ahead.more || ahead.n != now.n;
      if (last) {
        float all[1] = {total};
        warp_all_reduce(all, 1, 32);
        const int thread = wide::group_thread();
        if ((thread & 31) == 0) store_shared(dout + uint32_t(kBiasLine * 128 + thread / 8), Words<1>{{float_to_bits(all[0])}});
        total = 0.0f;
      }
      if (ahead.more) set_halo(dout_of(following), last || ahead.it.b != now.it.b, dout);
      wgmma_fence_shared();
      arrive_barrier(kComplete + stage, kPipelineThreads);
      if (!ahead.more) {
        // The second group has arrived for the span before this one: this wait completes that barrier.
        if (before > 0) named_barrier(kFree + next_stage(following), kPipelineThreads);
        return;
      }
      if (last) {
        bias = taps_.store(buffer = next_buffer(buffer), fetched);
        if (ahead.n + step < end) taps_.fetch(Segment(a_, ahead.n + step).d, fetched);
        wide::group_barrier<kFirstGroup>();
        taps_.template build<false>(buffer);
      }
      now = ahead, before = before < 2 ? before + 1 : 2;
    }
  }
  static AITER_DEVICE int next_buffer(int buffer) { return buffer == Taps::kBuffers - 1 ? 0 : buffer + 1; }

  // set_halo sets both parts of g behind a span: to the first lines of g at `from`, or to zeros. A warp copies only what it wrote itself,
  // so that no other warp is waited for.
  AITER_DEVICE void set_halo(uint32_t to, bool zeros, uint32_t from) const {
    const int lane = wide::group_thread() & 31, line = lane >> 2, vector = 2 * (wide::group_thread() >> 5) + (lane >> 1 & 1);
    warp_barrier();
    if (line >= Copies::kHaloLines) return;
    const uint32_t at = uint32_t(line * 128 + (vector ^ line) * 16) + (lane & 1 ? low_of(0) : 0);
    Words<4> v = {};
    if (!zeros) v = load_shared<Words<4>>(from + at);
    store_shared(to + 64 * 128 + at, v);
  }

  AITER_DEVICE void use_g(Walk now, uint32_t end, uint32_t step) const {
    Engine engine;
    wide::NonFinite<T> found;
    // fresh: in front of the products, the span is the first one of a segment; behind them, the last one. begun: dweight has products.
    bool fresh = true, begun = false;
    int buffer = 0;
    for (int stage = 0;; stage = next_stage(stage)) {
      named_barrier(kComplete + stage, kPipelineThreads);
      if (fresh) {
        taps_.template build<true>(buffer);
        wgmma_fence_shared();
        wide::group_barrier<kSecondGroup>();
      }
      const uint32_t dout = dout_of(stage), x = x_of(dout);
      Walk ahead;
      if (now.it.start < get_segment(now.slot).behind) {
        engine.multiply(taps_, x, dout, begun, found, [&] {
          ahead = next<false>(now, end, step);
          fresh = !ahead.more || ahead.n != now.n;
        });
        begun = true;
        if (fresh) engine.dweight.template put_all<kSecondGroup>([&](int i) { return region(i); });
        wide::group_barrier<kSecondGroup>();
        copies_.store(now.d, now.it, x_of(dout_of(stage)));
      } else {
        ahead = next<false>(now, end, step), fresh = false;  // the span behind the segment
      }
      Words<4> biases;
      if (fresh) biases = load_shared<Words<4>>(dout_of(stage) + kBiasLine * 128);
      if (ahead.more) arrive_barrier(kFree + stage, kPipelineThreads);
      if (fresh) {
        finish(get_segment(now.slot), biases, found);
        if (!ahead.more) return;
        found = {}, begun = false, buffer = next_buffer(buffer);
      }
      now = ahead;
    }
  }

  // region returns the memory of some warps' sums of dweight.
  AITER_DEVICE float* region(int i) const { return reinterpret_cast<float*>(memory_ + Memory::kScratch + i * WeightGrad::kRegionBytes); }
  // finish writes the sums of a segment, or computes it again.
  AITER_DEVICE void finish(const Segment& s, const Words<4>& biases, const wide::NonFinite<T>& found) const {
    char* const memory = memory_ + Memory::kScratch;
    if (any_of_barrier(kSecondGroup, wide::kGroupThreads, bool(found))) return compute_directly<T, kSecondGroup>(a_, memory, s);
    const int width = int(a_.p.width);
    WeightGrad::add_up([&](int i) { return region(i); }, width, wide::group_thread(), wide::kGroupThreads,
                       [&](int j, float v) { a_.store_sum(s.number, s.d, width - 1 - j, v); });
    const auto bias = [&](int i) { return bits_to_float(biases.word[i]); };
    if (wide::group_thread() == 0) a_.store_sum(s.number, s.d, width, bias(0) + bias(1) + (bias(2) + bias(3)));
  }

  const Args& a_;
  Copies copies_;
  char* memory_;
  uint32_t lines_;
  Taps taps_;
};
#endif

template <class T, int kTaps>
__global__ void AITER_LAUNCH_BOUNDS(kPipelineThreads, kPipelineBlocks)
    causal_conv1d_bwd_wide_pipeline_kernel(const AITER_GRID_CONSTANT KernelParam<WideParams> a) {
#if AITER_WGMMA
  if constexpr (AITER_KERNEL_CODE) {
    extern __shared__ __align__(1024) char lines[];
    WidePipeline<T, kTaps>(a, lines).run(a.first_item + blockIdx.x, a.work_items, gridDim.x);
  }
#endif
}

}  // namespace aiter::conv1d::bwd
