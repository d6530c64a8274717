// The forward kernel of wide filters for adjacent channels of 16-bit elements, on NVIDIA GPUs from sm_90 on.
//
// Tiling: a block has four vectors of channels, 64 bytes of a position, and walks along parts of their rows, an item of each channel at a
// time. It copies x to shared memory, transposes it there, computes in the same place, and transposes the outputs on the way to memory
// (wide/transposed.h). A multiprocessor has one block, whose shared memory has three items. While the block computes one item, it
// stores the one before, transposes the next one, and copies the one after that. Each warp copies, transposes and stores its own units.
// It computes its own channels and keeps their taps and halos. So the block has one barrier for each item.
// Halo: W - 1 positions in front of an item, rounded up to lines, from the item before. A block reads it from memory where a part begins.
// Bytes: x once, out once, 64 adjacent bytes of a position.
// Outputs that are computed again: as in fwd/wide.h.
#pragma once

#include "wide_transposed_items.h"

namespace aiter::conv1d::fwd {

#if AITER_CUDA && __CUDA_ARCH__ >= 900
template <class T, class RowSet> class TransposedBlock {
 public:
  using Args = KernelParam<WideParams<RowSet>>;
  using Layout = wide::TransposedLayout;
  using E = wide::TransposedEngine<T>;
  static constexpr int kVectors = wide::kTransposedVectors, kWarps = kTransposedWarps, kItem = wide::kItem;
  static constexpr int kGroup = TransposedMemory::kGroup, kItemBytes = TransposedMemory::kItemBytes;
  static constexpr int kOwn = kGroup / kWarps, kUnits = kItem / 32 / kWarps;  // channels and units of a warp
  static_assert(kOwn * kWarps == kGroup && kUnits * kWarps * 32 == kItem, "warps have equal parts");

  AITER_DEVICE TransposedBlock(const Args& a, char* memory)
      : a_(a), memory_(memory), own_(shared_address(memory)), lane_(int(threadIdx.x) & 31),
        warp_(__shfl_sync(0xffffffffu, int(threadIdx.x) / 32, 0)),  // which makes it uniform for the compiler
        engine_(lane_, uint32_t(a.launch.dim0)) {}

  // run computes the block's items. While one is computed, the one before is stored, another is copied to its place, and the next one is
  // transposed. Half of a scheduler's warps compute first, the others last.
  AITER_DEVICE void run() {
    const bool deep = a_.launch.stages > 2, computes_first = deep && warp_ & 4;
    TransposedWalk walk(a_.launch);
    Place last, at{Place::kNone, 0, 0}, next = walk.take(), after = next;
    touch_taps(next);
    copy(next, 0);
    if (deep) after = walk.take(), copy(after, kItemBytes);  // otherwise `after` is the next item, whose copy starts an item later
    uint32_t last_stage = kItemBytes, stage = deep ? 2 * kItemBytes : kItemBytes, next_stage = 0;
    const auto channel = engine_.channel(warp_, blocks(), own_, halo(0), own_ + taps_offset(warp_));
    for (bool first = true; next.exists(); first = false) {
      if (!next.follows(at)) select(next), load_halo(next);
      if (first) arrive(deep, next_stage);
      block_barrier();
      const uint32_t free = deep ? last_stage : stage;
      last = at, at = next, last_stage = stage, stage = next_stage, next_stage = free;
      if (deep) next = after;
      after = walk.take();
      if (!deep) next = after;
      if (next.group != at.group) touch_taps(next);
      AITER_ROLLED
      for (int phase = 0; phase < 2; phase++) {
        if ((phase == 0) != computes_first) {
          store(last, after, last_stage);
          if (next.exists()) arrive(deep, next_stage);
          continue;
        }
        AITER_ROLLED
        for (int k = 0; k < kOwn; k++)
          if (own(k) < channels_) compute(k, E::behind(channel, k * kWarps, halo_bytes(), a_.launch.taps_bytes, stage), at, stage);
        if (start(at) + kItem >= a_.p.seqlen) finish_row(at);
      }
    }
    block_barrier();
    store(at, next, stage);
  }

 private:
  using Place = TransposedPlace;
  static AITER_DEVICE int64_t first(const Place& at) { return int64_t(at.group) * kGroup; }
  static AITER_DEVICE int64_t start(const Place& at) { return int64_t(at.segment) * kItem; }
  AITER_DEVICE int channels(const Place& at) const { return int(min64(kGroup, a_.p.dim - first(at))); }
  AITER_DEVICE int own(int k) const { return warp_ + k * kWarps; }
  AITER_DEVICE int blocks() const { return wide::transposed_blocks(a_.launch.taps); }
  AITER_DEVICE int halo_lines() const { return wide::transposed_halo(blocks()); }
  AITER_DEVICE uint32_t halo_bytes() const { return uint32_t(halo_lines() * 128); }
  AITER_DEVICE uint32_t halo_offset(int c) const { return uint32_t(a_.launch.stages) * kItemBytes + c * halo_bytes(); }
  AITER_DEVICE uint32_t halo(int c) const { return own_ + halo_offset(c); }
  AITER_DEVICE uint32_t taps_offset(int c) const { return halo_offset(kGroup) + c * a_.launch.taps_bytes; }
  AITER_DEVICE const T* x(const Place& at) const { return a_.p.x.template row<T>(at.b, first(at)) + start(at) * a_.p.x.last; }

  // touch_taps starts to load taps and biases of the warp's channels to the caches.
  AITER_DEVICE void touch_taps(const Place& at) const {
    if (!at.exists()) return;
    const auto touch = [](const Array2& t, int64_t i) {
      uint16_t any;
      asm volatile("ld.global.u16 %0, [%1];" : "=h"(any) : "l"(static_cast<const char*>(t.data) + i * dtype_size(t.dtype)));
    };
    const int i = lane_ * 4;  // taps in a sector
    AITER_UNROLL
    for (int k = 0; k < kOwn; k++) {
      if (own(k) >= channels(at)) break;
      if (a_.p.bias.data) touch(a_.p.bias, (first(at) + own(k)) * a_.p.bias.first);
      if (i < a_.launch.taps) touch(a_.p.weight, (first(at) + own(k)) * a_.p.weight.first + i * a_.p.weight.last);
    }
  }

  // select loads the taps of the warp's channels of an item's group.
  AITER_DEVICE void select(const Place& at) {
    const Problem& p = a_.p;
    if (first_ == first(at)) return;
    first_ = first(at), channels_ = channels(at), bias_ = 0.0f;
    warp_barrier();
    if (p.bias.data && lane_ < kOwn && own(lane_) < channels_) bias_ = p.bias.get(first_ + own(lane_), 0);
    if (!kIsBf16<T> && a_.launch.split) choose_scales();
    if (a_.launch.split) write_taps<true>();
    else write_taps<false>();
    warp_barrier();
  }

  // choose_scales finds the power of two of each channel that brings its largest tap near 2^14.
  AITER_DEVICE void choose_scales() {
    cold_branch();
    AITER_ROLLED
    for (int k = 0; k < kOwn; k++) {
      if (own(k) >= channels_) break;
      const float scale = wide::scale_of_taps(a_.p, first_ + own(k), lane_, 32);
      if (lane_ == k) scale_ = scale;
    }
  }

  // write_taps writes the taps of the warp's channels, and the zeros around them, to shared memory. A lane writes words of two taps.
  template <bool kSplit> AITER_DEVICE void write_taps() const {
    using Bits = std::conditional_t<kSplit, float, Bits16>;
    const Problem& p = a_.p;
    const int zeros = wide::transposed_taps(blocks()) - a_.launch.taps + wide::kTransposedPad, pitch = wide::transposed_pitch(blocks());
    float scale[kOwn];
    AITER_UNROLL
    for (int k = 0; k < kOwn; k++) scale[k] = kSplit && !kIsBf16<T> ? __shfl_sync(0xffffffffu, scale_, k) : 1.0f;
    AITER_ROLLED
    for (int at = lane_ * 2; at < pitch; at += 64) {
      const int i = at - zeros;  // tap
      const TapReader taps(p, first_ + warp_, i);
      Bits bits[kOwn][3];
      AITER_UNROLL
      for (int k = 0; k < kOwn; k++) {
        AITER_UNROLL
        for (int n = 0; n < 3; n++) {
          bits[k][n] = 0;
          if (unsigned(i + n) >= unsigned(a_.launch.taps) || own(k) >= channels_) continue;
          const int64_t from = k * kWarps * p.weight.first + n * taps.step;
          if constexpr (kSplit) {
            bits[k][n] = taps.dtype == DType::F32 ? ((GlobalPtr<const float>)(taps.data))[from]
                                                  : element_to_float(taps.dtype, ((GlobalPtr<const Bits16>)(taps.data))[from]);
          } else bits[k][n] = ((GlobalPtr<const Bits16>)(taps.data))[from];
        }
      }
      uint32_t to = own_ + taps_offset(warp_) + at * 2;
      AITER_UNROLL
      for (int k = 0; k < kOwn; k++, to += kWarps * a_.launch.taps_bytes) {
        T v[3], rest[3];
        AITER_UNROLL
        for (int n = 0; n < 3; n++) {
          if constexpr (kSplit) {
            const float w = bits[k][n] * scale[k];
            v[n] = round_to<T>(w), rest[n] = round_to<T>(w - to_float(v[n]));
          } else v[n].bits = bits[k][n];
        }
        const auto write = [&](uint32_t place, const T (&w)[3]) {
          store_shared(place, Words<1>{w[0].bits | uint32_t(w[1].bits) << 16});
          store_shared(place + pitch * 2, Words<1>{w[1].bits | uint32_t(w[2].bits) << 16});
        };
        write(to, v);
        if (kSplit) write(to + pitch * 4, rest);
      }
    }
  }

  // A warp has units two apart, which have the same place in lines. unit returns its first one, in_unit the address of a slot of it.
  AITER_DEVICE int unit() const { return warp_ / 2 * 4 + warp_ % 2; }
  AITER_DEVICE uint32_t in_unit(uint32_t stage, int slot, int vector) const {
    return own_ + stage +
        uint32_t(unit() * Layout::kUnit + Layout::line(slot) + (Layout::inside(unit() * 32, 0) ^ Layout::inside(slot, vector)));
  }
  // place returns the slot that is `slots` and `vectors` further, and in the warp's i-th unit, where `from` has none of their bits.
  static AITER_DEVICE uint32_t place(uint32_t from, int i, int slots, int vectors = 0) {
    static_assert(Layout::inside(64, 0) == 0 && kUnits == 2, "a warp has units two apart");
    return (from ^ uint32_t(Layout::inside(slots, vectors))) + uint32_t(Layout::line(slots) + i * 2 * Layout::kUnit);
  }

  // Copy copies the units of an item, one after another. Positions behind the row are zeros.
  static constexpr int kRows = 32 / kVectors;  // positions that a warp copies at a time
  struct Copy {
    const T* from;
    int left;
    uint32_t to;
  };
  AITER_DEVICE Copy start_copy(const Place& at, uint32_t stage) const {
    const int vector = lane_ % kVectors, first = unit() * 32 + lane_ / kVectors;
    return {x(at) + first * a_.p.x.last + vector * 8, vector * 8 < channels(at) ? wide::clamp_position(a_.p.seqlen - start(at)) - first : 0,
            in_unit(stage, lane_ / kVectors, vector)};
  }
  AITER_DEVICE void copy_unit(Copy& c, int i) const {
    const int64_t step = a_.p.x.last * kRows;
    const T* from = c.from;
    AITER_UNROLL
    for (int n = 0; n < kVectors; n++, from += step)
      asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(place(c.to, i, n * kRows)), "l"(from),
                   "r"(c.left > i * 64 + n * kRows ? 16 : 0) : "memory");
    c.from += a_.p.x.last * 64;
  }
  // copy starts to copy the warp's units of an item.
  AITER_DEVICE void copy(const Place& at, uint32_t stage) const {
    if (at.exists()) {
      Copy c = start_copy(at, stage);
      AITER_UNROLL
      for (int i = 0; i < kUnits; i++) copy_unit(c, i);
    }
    commit_group();
  }
  // arrive waits until the warp's units of a stage are copied, and transposes them. deep: the copy of one more item may be incomplete.
  AITER_DEVICE void arrive(bool deep, uint32_t stage) const {
    if (deep) wait_group<1>();
    else wait_group<0>();
    warp_barrier();
    transpose(stage);
  }

  // load_halo writes the halo of the warp's channels in front of an item: zeros, initial states or x.
  AITER_DEVICE void load_halo(const Place& at) const {
    const int positions = halo_lines() * 64;
    const bool inside = at.segment > 0;
    AITER_ROLLED
    for (int k = 0; k < kOwn; k++) {
      const int c = own(k);
      if (c >= channels_) break;
      if (!inside && !a_.p.initial.data) {
        if (lane_ * 8 < positions) store_shared(halo(c) + lane_ * 16, Words<4>{});
        continue;
      }
      const T* const x = a_.p.x.template row<T>(at.b, first_ + c);
      const T* const states = inside ? x : a_.p.initial.template row<T>(at.b, first_ + c);
      T v[4];
      AITER_UNROLL
      for (int n = 0; n < 4; n++) {
        const int64_t u = start(at) - positions + lane_ + n * 32;
        v[n].bits = 0;
        if (lane_ + n * 32 >= positions) continue;
        if (inside) v[n] = x[u * a_.p.x.last];
        else if (u + a_.p.width > 0) v[n] = states[(u + a_.p.width - 1) * a_.p.initial.last];
      }
      AITER_UNROLL
      for (int n = 0; n < 4; n++) {
        const int i = lane_ + n * 32, place = Layout::inside(kItem - 64 + Layout::transposed(c, i / 8 % 8), c / 8);
        if (i < positions) wide::set_shared(reinterpret_cast<T*>(memory_ + halo_offset(c) + i / 64 * 128 + place) + i % 8, v[n]);
      }
    }
    warp_barrier();
  }

  // transpose exchanges positions and channels of the warp's units. Matrix j has rows 2q and 2q+1 from positions 8q+2j and 8q+2j+1, so that
  // lane 4t+q receives positions 8q to 8q+7 of channel t.
  AITER_DEVICE void transpose(uint32_t stage) const {
    const int row = lane_ & 7, slot = row / 2 * 8 + (lane_ >> 3) * 2 + row % 2;
    const uint32_t from = in_unit(stage, slot, 0), to = in_unit(stage, lane_, 0);
    AITER_UNROLL
    for (int i = 0; i < kUnits; i++) {
      Words<4> v[kVectors];
      AITER_UNROLL
      for (int k = 0; k < kVectors; k++) load_matrices<true>(place(from, i, 0, k), v[k].word);
      AITER_UNROLL
      for (int k = 0; k < kVectors; k++) store_shared(place(to, i, 0, k), v[k]);
    }
  }

  AITER_DEVICE void compute(int k, const typename E::Channel& channel, const Place& at, uint32_t stage) {
    const int c = own(k);
    const float scale = kIsBf16<T> ? 1.0f : __shfl_sync(0xffffffffu, scale_, k);
    const Words<4> end = engine_.end(channel);
    engine_.multiply(channel, blocks(), a_.launch.split ? 2 : 1, scale * __shfl_sync(0xffffffffu, bias_, k));
    warp_barrier();
    engine_.keep(channel, halo_lines(), end);
    const float down = bits_to_float((254u << 23) - float_to_bits(scale));  // 1 / scale
    const bool finite = a_.p.silu
        ? engine_.finish(channel, [&](float v) { return kIsBf16<T> ? v * sigmoid(v) : v * down * sigmoid(v * down); })
                                  : engine_.finish(channel, [&](float v) { return kIsBf16<T> ? v : v * down; });
    if (warp_all(finite) && !a_.reach) return;
    warp_barrier();
    const int count = int(min64(a_.p.seqlen - start(at), kItem));
    compute_again<T, E>(a_, at.b, uint32_t(first_ + c), start(at), reinterpret_cast<T*>(memory_ + stage), lane_, count, c);
  }

  // store writes the outputs of the warp's units, if the item exists, and starts to copy another item, if it exists, to their place.
  // Matrix j has rows 2q and 2q+1 from channels 2j and 2j+1 of vector q: lane 4t+q receives position t of a run of eight.
  AITER_DEVICE void store(const Place& at, const Place& next, uint32_t stage) const {
    if (!at.exists()) return copy(next, stage);
    const int row = lane_ & 7, t = lane_ >> 2, vector = lane_ & 3, position = unit() * 32 + t;
    const uint32_t from = in_unit(stage, ((lane_ >> 3) * 2 + row % 2) * 4, row / 2);
    const int64_t step = a_.p.out.last;
    T* to = a_.p.out.template row<T>(at.b, first(at)) + (start(at) + position) * step + vector * 8;
    const int left = vector * 8 < channels(at) ? wide::clamp_position(a_.p.seqlen - start(at)) - position : 0;
    const bool more = next.exists();
    Copy c{};
    if (more) c = start_copy(next, stage);
    AITER_UNROLL
    for (int i = 0; i < kUnits; i++, to += step * 64) {
      Words<4> v[4];
      AITER_UNROLL
      for (int r = 0; r < 4; r++) load_matrices<true>(place(from, i, r), v[r].word);
      T* run = to;
      AITER_UNROLL
      for (int r = 0; r < 4; r++, run += 8 * step) store_streaming_if(left > i * 64 + r * 8, run, v[r]);
      if (more) copy_unit(c, i);
    }
    commit_group();
  }

  AITER_DEVICE void finish_row(const Place& at) const {
    AITER_ROLLED
    for (int c = warp_; c < channels_; c += kWarps) a_.p.template finish<T>(at.b, first_ + c, lane_, 32);
  }

  const Args& a_;
  char* memory_;
  uint32_t own_;  // the address of memory_
  int lane_, warp_;
  int64_t first_ = -1;  // channel of the taps
  int channels_ = 0;
  float scale_ = 1.0f, bias_ = 0.0f;  // of channel own(lane)
  E engine_;
};
#endif

template <class T, class RowSet>
__global__ void AITER_LAUNCH_BOUNDS(kTransposedWarps * 32, 1)
    causal_conv1d_wide_transposed_kernel(const AITER_GRID_CONSTANT KernelParam<WideParams<RowSet>> a) {
#if AITER_CUDA && __CUDA_ARCH__ >= 900
  if constexpr (AITER_KERNEL_CODE) {
    extern __shared__ __align__(1024) char lines[];
    TransposedBlock<T, RowSet>(a, lines).run();
  }
#else
  (void)a;
#endif
}

// try_launch_wide_transposed launches rows whose channels are adjacent, in vectors of 16 bytes. It divides the items of a group of channels
// into parts of launch.each items, the first launch.tail of which have one more. launch.stages is the number of items that have places.
// Neighbouring blocks have neighbouring channels, whose bytes memory transfers together. It takes no problem that leaves multiprocessors
// without a block, where wide_staged has more warps for an item.
template <class T, class RowSet>
Attempt try_launch_wide_transposed(const WideParams<RowSet>& problem, const Topology& gpu, const OpStream& stream) {
  WideParams<RowSet> a = problem;
  const int blocks = wide::transposed_blocks(a.launch.taps);
  const auto fits = [&](int stages) { return TransposedMemory::bytes(stages, blocks, a.launch.split) + 1024 <= gpu.shared_bytes; };
  if (a.launch.taps > wide::kTransposedMost || !fits(2)) return {};  // the GPU reserves 1024 bytes of each block
  const int stages = fits(3) ? 3 : 2;
  const int64_t segments = (a.p.seqlen + wide::kItem - 1) / wide::kItem, items = a.p.rows() * segments;
  const int64_t groups = (a.p.dim + TransposedMemory::kGroup - 1) / TransposedMemory::kGroup;
  if (2 * groups * items < 3 * gpu.multiprocessors || items >= 1 << 30 || groups >= 1 << 20) return {};
  if (tuned("kernel", 2) < 2) return {};
  int64_t parts = 1, least = INT64_MAX;
  for (int64_t n = 1; n <= items && n <= 256; n++) {  // a part takes as long as its items and a quarter of one
    const int64_t rounds = (groups * n + gpu.multiprocessors - 1) / gpu.multiprocessors, time = rounds * (4 * ((items + n - 1) / n) + 1);
    if (time < least) least = time, parts = n;
  }
  a.launch.segments = make_fastdiv(segments), a.launch.batch = make_fastdiv(groups);
  a.launch.each = uint32_t(items / parts), a.launch.tail = uint32_t(items % parts);
  a.launch.parts = uint32_t(groups * parts), a.launch.stages = stages;
  a.launch.batch0 = 0, a.launch.dim0 = 0;
  a.launch.taps_bytes = TransposedMemory::taps_bytes(blocks, a.launch.split);
  return launched(launch(stream, causal_conv1d_wide_transposed_kernel<T, RowSet>,
      {unsigned(min64(groups * parts, gpu.multiprocessors)), kTransposedWarps * 32,
       unsigned(TransposedMemory::bytes(stages, blocks, a.launch.split))}, a));
}

}  // namespace aiter::conv1d::fwd
