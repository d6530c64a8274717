// The backward kernel with SiLU of wide filters of x's type for 16-bit dense rows on sm_90a, by two groups of four warps.
//
// Tiling: a block walks rows of a channel backwards in spans of 4096 positions, as in bwd/wide_group.h. Shared memory has four stages of
// one span each, and two tiles for the low part of g. The first group computes g of span n: its high part takes the place of dout. The
// second group computes dweight and dx of span n - 1, and writes dx to the place of x. With tensor maps one of its threads stores dx and
// loads x and dout of span n + 2. The matrix cores have products of one group while the other one computes on vector units or waits.
// Halo, bytes and reduction: as in bwd/wide_group.h.
//
// Tensor maps describe whole lines of 64 positions. The positions behind the last whole line of a row are its rest. The rest is loaded to
// separate lines of the stage (kXRestLine, kDoutRestLine), and the first group copies it to the tiles. A warp stores dx of the rest.
//
// An infinity or NaN in x, dout or a tap makes g one, which reaches dbias and dweight of distance 0. The second group, if it finds one in
// the sums of a segment, computes the whole segment again, one product after another.
#pragma once

#include <aiter/gpu/barrier.h>
#include <aiter/gpu/tensor_map.h>

#include "wide_pipeline_engine.h"
#include "wide_segment.h"

namespace aiter::conv1d::bwd {

constexpr uint32_t kPipelineStages = 4;
constexpr int kPipelineBlocks = 2, kPipelineThreads = 2 * wide::kGroupThreads;

// PipelineMemory is the shared memory of a block, in bytes from its beginning: stages, low parts of g, taps.
template <class T, int kTaps> struct PipelineMemory {
  static constexpr int kStage = kGroupLines * 128, kLow = int(kPipelineStages) * kStage, kLowBytes = kLowLines * 128;
  static constexpr int kTapsAt = kLow + 2 * kLowBytes, kBytes = kTapsAt + PipelineTaps<T, kTaps>::kBytes;
};

// SpanMaps is the tensor maps of a launch.
struct SpanMaps {
  TensorMap x, dout, dx;
};
// make_span_maps makes the maps of spans of dense rows. It reports whether the driver can describe them.
template <int kTaps> bool make_span_maps(const Backward& p, SpanMaps* maps) {
  const auto make = [&](TensorMap* map, const Array3& t, int lines) {
    return make_tensor_map(map, TensorRows{t.data, p.batch, p.dim, p.seqlen / 64, t.batch * 2, t.dim * 2}, lines);
  };
  constexpr int kLines = wide::kSpan / 64;
  return make(&maps->x, p.x, kLines + GroupGradShape<kTaps>::kHalo) && make(&maps->dout, p.dout, kLines) && make(&maps->dx, p.dx, kLines);
}

#if AITER_WGMMA
template <class T, int kTaps> class WidePipeline {
 public:
  using Args = KernelParam<WideParams>;
  using Taps = PipelineTaps<T, kTaps>;
  using Memory = PipelineMemory<T, kTaps>;
  using WeightGrad = GroupWeightGrad<kTaps>;
  static_assert(WeightGrad::kRegions / 2 * WeightGrad::kRegionBytes <= 64 * 128 && kDirectPositions * 4 + 2 * kTaps * 4 + 64 <= 64 * 128);
  static_assert(kPipelineBlocks * (Memory::kBytes + 1024) <= 228 * 1024, "a multiprocessor's memory; it reserves 1024 bytes of a block");

  AITER_DEVICE WidePipeline(const Args& a, const SpanMaps& maps, char* memory)
      : a_(a), maps_(maps), memory_(memory), lines_(shared_address(memory)), taps_(a.p, memory + Memory::kTapsAt) {}

  // run computes segments n, n + step ..., before `end`.
  AITER_DEVICE void run(uint32_t n, uint32_t end, uint32_t step) {
    if (n >= end) return;
    end_ = end, step_ = step;
    if (threadIdx.x < 3 * kPipelineStages) {
      const Event event = Event(threadIdx.x / kPipelineStages);
      barrier(stage(threadIdx.x), event).init(event == kLoaded ? 1 : 4);
    }
    block_barrier();
    if (int(threadIdx.x) < wide::kGroupThreads) {
      set_registers<128, 96>();
      make_g(n);
    } else {
      set_registers<128, 160>();
      use_g(n);
    }
  }

 private:
  static constexpr int kFirstGroup = 1, kSecondGroup = 2;  // numbers of the groups' barriers
  // Lines of a stage between the halos of g and x. The Span's line also has the sums of g of four warps (bias_address).
  static constexpr int kDoutRestLine = 66, kBarrierLine = 67, kSpanLine = 68, kXRestLine = 69;
  static constexpr int kHaloLines = GroupGradShape<kTaps>::kHalo, kSpanLines = wide::kSpan / 64;
  static_assert(kHaloLines <= 2);

  // Span describes the span in a stage for both groups: of row b of channel d, from position `start` on.
  struct Span {
    uint32_t d, b;
    int start;
    uint32_t flags;
  };
  // kOwn: the span is in its segment, not behind it. kLast: it is the last one of the segment. kMore: another one follows in this block.
  // kRowEnd: that one is not of the same row. kRest: the span has the rest of its row.
  enum : uint32_t { kOwn = 1, kLast = 2, kMore = 4, kRowEnd = 8, kRest = 16 };
  // Walk is a place in a block's work: span `it` of segment n.
  struct Walk {
    uint32_t n;
    SpanItem it;
    bool more;  // there is such a span
  };

  // Span k is use k / 4 of stage k % 4. A stage begins with dout, or the high part of g.
  AITER_DEVICE uint32_t stage(uint32_t k) const { return lines_ + k % kPipelineStages * uint32_t(Memory::kStage); }
  static AITER_DEVICE uint32_t x_of(uint32_t stage) { return stage + (64 + 8) * 128; }
  AITER_DEVICE uint32_t low_of(uint32_t k) const { return lines_ + uint32_t(Memory::kLow) + k % 2 * uint32_t(Memory::kLowBytes); }
  // A stage has a barrier for each event. kLoaded: x and dout are loaded. kComplete: the four warps of the first group have written g.
  // kUsed: the four warps of the second group do not use the stage any more. Its dx may still be read by a store, which load waits for.
  enum Event { kLoaded, kComplete, kUsed };
  static AITER_DEVICE PhaseBarrier barrier(uint32_t stage, Event event) { return {stage + uint32_t(kBarrierLine * 128 + event * 8)}; }
  static AITER_DEVICE void wait(uint32_t stage, Event event, uint32_t k) { barrier(stage, event).wait(k / kPipelineStages & 1); }
  static AITER_DEVICE void arrive(uint32_t stage, Event event) {
    warp_barrier();
    if ((int(threadIdx.x) & 31) == 0) barrier(stage, event).arrive();
  }
  // bias_address returns the address of the first group's sums of g, one of each warp.
  static AITER_DEVICE uint32_t bias_address(uint32_t stage) { return stage + uint32_t(kSpanLine * 128 + 16); }
  static AITER_DEVICE uint32_t span_address(uint32_t stage) { return stage + uint32_t(kSpanLine * 128); }
  static AITER_DEVICE Span span(uint32_t stage) {
    const auto v = load_shared<Words<4>>(span_address(stage));
    return {v.word[0], v.word[1], int(v.word[2]), v.word[3]};
  }
  // segment returns segment n. It hides n from nvcc, which would keep all of the segment in registers.
  AITER_DEVICE Segment segment(uint32_t n) const {
    launder(n);
    return Segment(a_, n);
  }

  // load starts to load a span to a stage, and moves w to the span after it. The first warp of the second group calls it. Its first thread
  // waits until stores have read the dx that was in the stage.
  AITER_DEVICE void load(Walk& w, uint32_t stage) const {
    if (!w.more) return;
    const Segment s = segment(w.n);
    SpanItem it = w.it.next(s);
    const bool last = it.b >= s.end_row, more = !last || w.n + step_ < end_;
    const int rest = int(a_.p.seqlen) - w.it.start < wide::kSpan ? rest_positions() : 0;
    const uint32_t flags = (w.it.start < s.behind ? kOwn : 0) | (last ? kLast : 0) | (more ? kMore : 0) |
                           (last || it.b != w.it.b ? kRowEnd : 0) | (rest > 0 ? kRest : 0);
    if (wide::group_thread() == 0) {
      wait_stores_read();
      wgmma_fence_shared();
      store_shared(span_address(stage), Words<4>{{s.d, w.it.b, uint32_t(w.it.start), flags}});
      const PhaseBarrier loaded = barrier(stage, kLoaded);
      // Transposed rows are padded with zeros to whole vectors of 8 positions.
      const int line = w.it.start / 64, rest_bytes = (rest + 7) / 8 * 16;
      loaded.arrive_with((2 * kSpanLines + kHaloLines) * 128 + 2 * rest_bytes);
      load_tile(x_of(stage) - kHaloLines * 128, maps_.x, line - kHaloLines, s.d, w.it.b, loaded.at);
      load_tile(stage, maps_.dout, line, s.d, w.it.b, loaded.at);
      if (rest > 0) {
        load_bytes(stage + kXRestLine * 128, rest_of(a_.p.x, s.d, w.it.b), rest_bytes, loaded.at);
        load_bytes(stage + kDoutRestLine * 128, rest_of(a_.p.dout, s.d, w.it.b), rest_bytes, loaded.at);
      }
    }
    if (last && more) {
      const Segment t = segment(w.n += step_);
      it = {t.first_row, t.last};
    }
    w.it = it, w.more = more;
  }

  // rest_positions is less than a line. rest_of returns the address of the rest of a row. rest_vector returns the offset in a tile of a
  // vector of the rest.
  AITER_DEVICE int rest_positions() const { return int(a_.p.seqlen) & 63; }
  AITER_DEVICE T* rest_of(const Array3& rows, uint32_t d, uint32_t b) const {
    return rows.template row<T>(b, d) + (int(a_.p.seqlen) - rest_positions());
  }
  AITER_DEVICE uint32_t rest_vector(int vector) const {
    const int line = int(a_.p.seqlen) % wide::kSpan / 64;
    return uint32_t(line * 128 + (vector ^ (line & 7)) * 16);
  }
  // fill_rest copies the rest of x and dout to their lines. The first group calls it.
  AITER_DEVICE void fill_rest(uint32_t stage) const {
    const int thread = wide::group_thread(), vector = thread & 7;
    if (thread < 16 && vector * 8 < rest_positions()) {
      const bool x = thread >= 8;
      const auto v = load_shared<Words<4>>(stage + uint32_t((x ? kXRestLine : kDoutRestLine) * 128 + vector * 16));
      store_shared((x ? x_of(stage) : stage) + rest_vector(vector), v);
    }
    wgmma_fence_shared();
    wide::group_barrier<kFirstGroup>();
  }
  // store_dx stores dx of a span. The first warp of the second group calls it.
  AITER_DEVICE void store_dx(const Span& now, uint32_t dx) const {
    const int vector = wide::group_thread();
    if ((now.flags & kRest) && vector * 8 < rest_positions())
      store_streaming_if<0>(true, rest_of(a_.p.dx, now.d, now.b) + vector * 8, load_shared<Words<4>>(dx + rest_vector(vector)));
    if (vector == 0) store_tile(dx, maps_.dx, now.start / 64, now.d, now.b);
  }

  // make_g computes g of the spans from segment n on. The halo of a low tile waits until the span two before, which had the tile, is used.
  AITER_DEVICE void make_g(uint32_t n) const {
    typename Taps::Fetched fetched;
    taps_.fetch(segment(n).d, fetched);
    taps_.clear();
    set_halo(stage(0), 0, true), set_halo(low_of(0), 0, true);
    int buffer = 0;
    float bias = set_taps(buffer, fetched), total = 0.0f;
    uint32_t flags = 0;
    for (uint32_t k = 0;; k++) {
      const uint32_t dout = stage(k), following = stage(k + 1), low = low_of(k), flags_before = flags;
      wait(dout, kLoaded, k);
      flags = span(dout).flags;
      if (flags & kRest) fill_rest(dout);
      const bool next = (flags & (kLast | kMore)) == (kLast | kMore);
      if (next) taps_.fetch(a_.item_split.quotient(n += step_), fetched);
      const float sum = MakeG<T, kTaps>::make_g(taps_, bias, x_of(dout), dout, low, [&] {
        if (k > 1) wait(stage(k - 2), kUsed, k - 2);
        if (k > 0) set_halo(low, low_of(k - 1), flags_before & kRowEnd);
      });
      if (flags & kOwn) total += sum;
      else if (!halo_is_finite(dout)) total = bits_to_float(0x7fc00000);  // zero taps times such a g make dx of the segment NaN
      if (flags & kLast) {
        float all[1] = {total};
        warp_all_reduce(all, 1, 32);
        const int thread = wide::group_thread();
        if ((thread & 31) == 0) store_shared(bias_address(dout) + uint32_t(thread / 8), Words<1>{{float_to_bits(all[0])}});
        total = 0.0f;
      }
      if (flags & kMore) set_halo(following, dout, flags & kRowEnd);
      wgmma_fence_shared();
      arrive(dout, kComplete);
      if (!(flags & kMore)) return;
      if (next) bias = set_taps(buffer = next_buffer(buffer), fetched);
    }
  }
  // set_taps stores taps to a buffer, builds A_s, and returns the bias.
  AITER_DEVICE float set_taps(int buffer, const typename Taps::Fetched& fetched) const {
    const float bias = taps_.store(buffer, fetched);
    wide::group_barrier<kFirstGroup>();
    taps_.template build<false>(buffer);
    wgmma_fence_shared();
    wide::group_barrier<kFirstGroup>();
    return bias;
  }
  static AITER_DEVICE int next_buffer(int buffer) { return buffer == Taps::kBuffers - 1 ? 0 : buffer + 1; }

  // halo_is_finite reports whether what this thread would copy of g at `from` as a halo is finite. g may overflow to an infinity in T.
  AITER_DEVICE bool halo_is_finite(uint32_t from) const {
    const int lane = wide::group_thread() & 31, line = lane >> 1, vector = 2 * (wide::group_thread() >> 5) + (lane & 1);
    warp_barrier();
    wide::NonFinite<T> found;
    if (line < kHaloLines) {
      const auto v = load_shared<Words<4>>(from + uint32_t(line * 128 + (vector ^ line) * 16));
      AITER_UNROLL
      for (int i = 0; i < 4; i++) found.check(v.word[i]);
    }
    return !found;
  }
  // set_halo sets g behind a span: to the first lines of g at `from`, or to zeros. A warp copies only what it wrote itself, so that no
  // other warp is waited for.
  AITER_DEVICE void set_halo(uint32_t to, uint32_t from, bool zeros) const {
    const int lane = wide::group_thread() & 31, line = lane >> 1, vector = 2 * (wide::group_thread() >> 5) + (lane & 1);
    warp_barrier();
    if (line >= kHaloLines) return;
    const uint32_t at = uint32_t(line * 128 + (vector ^ line) * 16);
    Words<4> v = {};
    if (!zeros) v = load_shared<Words<4>>(from + at);
    store_shared(to + 64 * 128 + at, v);
  }

  // use_g loads the spans from segment n on, and computes their dx and dweight.
  AITER_DEVICE void use_g(uint32_t n) const {
    Walk ahead;
    {
      const Segment s = segment(n);
      ahead = {n, {s.first_row, s.last}, true};
    }
    const bool first_warp = wide::group_thread() < 32;
    if (first_warp) load(ahead, stage(0)), load(ahead, stage(1)), load(ahead, stage(2));
    UseG<T, kTaps> engine;
    bool fresh = true, begun = false;  // the span is the first one of a segment; dweight has products
    int buffer = 0;
    for (uint32_t k = 0;; k++) {
      const uint32_t dout = stage(k), x = x_of(dout), low = low_of(k);
      wait(dout, kComplete, k);
      const Span now = span(dout);
      const auto prepare = [&] {
        if (first_warp) load(ahead, stage(k + 3));
        if (!fresh) return;
        taps_.template build<true>(buffer);
        wgmma_fence_shared();
        wide::group_barrier<kSecondGroup>();
      };
      const bool last = now.flags & kLast;
      if (now.flags & kOwn) {
        engine.multiply(taps_, x, dout, low, begun, prepare);
        begun = true;
        wgmma_fence_shared();
        wide::group_barrier<kSecondGroup>();
        if (first_warp) store_dx(now, x);
        if (last) engine.dweight.template put_all<kSecondGroup>([&](int i) { return region(dout, low, i); });
      } else {
        prepare();
        wide::group_barrier<kSecondGroup>();  // all threads have read the span
      }
      if (last) {
        wide::group_barrier<kSecondGroup>();
        const bool finite = finish(n, now.d, dout, low);
        if (any_of_barrier(kSecondGroup, wide::kGroupThreads, !finite)) {
          wait_stores();  // compute_directly writes dx again
          compute_directly<T, kSecondGroup>(a_, memory_ + (dout - lines_), segment(n));
        }
        wide::group_barrier<kSecondGroup>();
        begun = false, n += step_, buffer = next_buffer(buffer);
      }
      fresh = last;
      arrive(dout, kUsed);
      if (!(now.flags & kMore)) break;
    }
    wait_stores();
  }

  // region returns the memory of some warps' sums of dweight, in the tiles of g.
  AITER_DEVICE float* region(uint32_t dout, uint32_t low, int i) const {
    return reinterpret_cast<float*>(memory_ + ((i & 1 ? low : dout) - lines_) + (i >> 1) * WeightGrad::kRegionBytes);
  }
  // finish writes the sums of segment n, of channel d. It reports whether those of this thread are finite.
  AITER_DEVICE bool finish(uint32_t n, uint32_t d, uint32_t dout, uint32_t low) const {
    const int width = int(a_.p.width);
    const uint32_t number = n - d * a_.segments;
    bool finite = true;
    WeightGrad::add_up([&](int i) { return region(dout, low, i); }, width, wide::group_thread(), wide::kGroupThreads, [&](int j, float v) {
      const int k = width - 1 - j;
      a_.store_sum_to(a_.p.dweight, d * a_.p.dweight.first + k * a_.p.dweight.last, number, d, k, v);
      finite = finite && aiter::finite(v);
    });
    if (wide::group_thread() == wide::kGroupThreads - 1) {  // it has few distances
      const auto biases = load_shared<Words<4>>(bias_address(dout));
      const auto bias = [&](int i) { return bits_to_float(biases.word[i]); };
      const float sum = bias(0) + bias(1) + (bias(2) + bias(3));
      a_.store_sum_to(a_.p.dbias, d * a_.p.dbias.first, number, d, width, sum);
      finite = finite && aiter::finite(sum);
    }
    return finite;
  }

  const Args& a_;
  const SpanMaps& maps_;
  char* memory_;
  uint32_t lines_, end_ = 0, step_ = 0;
  Taps taps_;
};
#endif

template <class T, int kTaps>
__global__ void AITER_LAUNCH_BOUNDS(kPipelineThreads, kPipelineBlocks)
    causal_conv1d_bwd_wide_pipeline_kernel(const AITER_GRID_CONSTANT KernelParam<WideParams> a, const AITER_GRID_CONSTANT SpanMaps maps) {
#if AITER_WGMMA
  if constexpr (AITER_KERNEL_CODE) {
    extern __shared__ __align__(1024) char lines[];
    WidePipeline<T, kTaps>(a, maps, lines).run(a.first_item + blockIdx.x, a.work_items, gridDim.x);
  }
#endif
}

}  // namespace aiter::conv1d::bwd
