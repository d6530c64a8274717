// The forward kernel of wide filters for adjacent channels of 16-bit elements, on NVIDIA GPUs from sm_90 on.
//
// Tiling: a block has four vectors of channels, 64 bytes of a position, and walks along its part of their rows, an item of each channel at
// a time. It copies x to shared memory, transposes it there, computes in the same place, and transposes the outputs on the way to memory
// (wide/transposed.h). Two blocks share a multiprocessor: while one computes, the other copies, since half of the blocks begin later.
// A warp copies, transposes and stores units of its own, and computes channels of its own: the block waits between these alone.
// Halo: W - 1 positions in front of an item, rounded up to columns, from the item before. A block reads a halo from memory at its first
// item alone.
// Bytes: x once, out once, 64 adjacent bytes of a position.
// Outputs that are computed again: as in fwd/wide.h.
#pragma once

#include "../wide/transposed.h"
#include "wide.h"

namespace aiter::conv1d::fwd {

constexpr int kTransposedWarps = 8, kTransposedBlocks = 2;  // of a block; of a multiprocessor

// TransposedMemory is a block's shared memory: an item, its halo, its taps.
struct TransposedMemory {
  static constexpr int kGroup = wide::kTransposedVectors * 8, kItemBytes = wide::kItem * wide::kTransposedVectors * 16;  // channels

  static AITER_SHARED constexpr int taps_bytes(int blocks, bool split) { return (split ? 8 : 4) * wide::transposed_pitch(blocks); }
  static AITER_SHARED constexpr int bytes(int blocks, bool split) {
    return kItemBytes + kGroup * (wide::transposed_halo(blocks) * 128 + taps_bytes(blocks, split));
  }
};

#if AITER_CUDA && __CUDA_ARCH__ >= 900
template <class T, class RowSet> class TransposedBlock {
 public:
  using Args = KernelParam<WideParams<RowSet>>;
  using Layout = wide::TransposedLayout;
  using E = wide::TransposedEngine<T>;
  static constexpr int kVectors = wide::kTransposedVectors, kWarps = kTransposedWarps, kThreads = kWarps * 32, kItem = wide::kItem;
  static constexpr int kGroup = TransposedMemory::kGroup, kItemBytes = TransposedMemory::kItemBytes;
  static constexpr int kOwn = kGroup / kWarps, kUnits = kItem / 32 / kWarps;  // channels and units of a warp
  static_assert(kOwn * kWarps == kGroup && kUnits * kWarps * 32 == kItem, "warps have equal parts");

  AITER_DEVICE TransposedBlock(const Args& a, char* memory, uint32_t group)
      : a_(a), memory_(memory), own_(shared_address(memory)), lane_(int(threadIdx.x) & 31), warp_(int(threadIdx.x) / 32),
        first_(int64_t(group) * kGroup), channels_(int(min64(kGroup, a.p.dim - first_))), engine_(lane_) {}

  // run computes items n to end-1 of the block's channels, which are numbered along their rows. late: it begins to copy after other blocks,
  // so that they compute while it copies, and the other way round.
  AITER_DEVICE void run(uint32_t n, uint32_t end, bool late) {
    Place at = find(n);
    touch_taps();  // in front of the loads of x: all blocks begin with an item each, which takes memory a while
    if (!late) copy(at);
    bool more = ++n < end;
    Place next = more ? find(n) : at;
    load_taps();
    load_halo(at);
    if (late) copy(at);
    const auto channel = engine_.channel(warp_, blocks(), own_, halo(0), own_ + taps_offset(warp_));
    for (;;) {
      wait_group<0>();
      warp_barrier();
      transpose();
      block_barrier();
      AITER_ROLLED
      for (int k = 0; k < kOwn; k++)
        if (own(k) < channels_) compute(k, E::behind(channel, k * kWarps, halo_bytes(), a_.launch.taps_bytes), at);
      block_barrier();
      store(at, next, more);
      if (at.start + kItem >= a_.p.seqlen) finish_row(at);
      if (!more) return;
      if (next.start == 0) load_halo(next);
      at = next;
      more = ++n < end;
      if (more) next = find(n);
    }
  }

 private:
  struct Place {
    uint32_t b;
    int64_t start;
  };
  AITER_DEVICE Place find(uint32_t n) const {
    const uint32_t b = a_.launch.segments.quotient(n);
    return {b, int64_t(n - b * a_.launch.segments.divisor) * kItem};
  }
  AITER_DEVICE int own(int k) const { return warp_ + k * kWarps; }
  AITER_DEVICE int blocks() const { return wide::transposed_blocks(a_.launch.taps); }
  AITER_DEVICE int halo_columns() const { return wide::transposed_halo(blocks()); }
  AITER_DEVICE uint32_t halo_bytes() const { return uint32_t(halo_columns() * 128); }
  AITER_DEVICE uint32_t halo(int c) const { return own_ + kItemBytes + c * halo_bytes(); }
  AITER_DEVICE uint32_t taps_offset(int c) const { return kItemBytes + kGroup * halo_bytes() + c * a_.launch.taps_bytes; }
  AITER_DEVICE const T* x(const Place& at) const { return a_.p.x.template row<T>(at.b, first_) + at.start * a_.p.x.last; }

  // touch_taps starts to load taps and biases to the caches.
  AITER_DEVICE void touch_taps() const {
    const auto touch = [](const Array2& t, int64_t i) {
      uint16_t any;
      asm volatile("ld.global.u16 %0, [%1];" : "=h"(any) : "l"(static_cast<const char*>(t.data) + i * dtype_size(t.dtype)));
    };
    AITER_ROLLED
    for (int c = warp_; c < channels_; c += kWarps) {
      if (a_.p.bias.data) touch(a_.p.bias, (first_ + c) * a_.p.bias.first);
      AITER_ROLLED
      for (int i = lane_; i < a_.launch.taps; i += 32) touch(a_.p.weight, (first_ + c) * a_.p.weight.first + i * a_.p.weight.last);
    }
  }

  AITER_DEVICE void load_taps() {
    const Problem& p = a_.p;
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

  // write_taps writes the taps of the warp's channels, and the zeros around them, to shared memory. The loads of a tap of each channel
  // overlap.
  template <bool kSplit> AITER_DEVICE void write_taps() const {
    using Bits = std::conditional_t<kSplit, float, Bits16>;
    const Problem& p = a_.p;
    const int count = wide::transposed_taps(blocks()), zeros = count - a_.launch.taps, pitch = wide::transposed_pitch(blocks());
    AITER_ROLLED
    for (int i = lane_ - 32; i - lane_ < count + 16; i += 32) {
      const TapReader taps(p, first_ + warp_, i - zeros);
      const bool tap = i >= zeros && i < count, first = i >= -wide::kTransposedPad && i < count + 16,
          second = first && i > -wide::kTransposedPad;
      Bits bits[kOwn];
      AITER_UNROLL
      for (int k = 0; k < kOwn; k++) {
        bits[k] = 0;
        if (!tap || own(k) >= channels_) continue;
        const int64_t at = k * kWarps * p.weight.first;
        if constexpr (kSplit) {
          bits[k] = taps.dtype == DType::F32 ? ((GlobalPtr<const float>)(taps.data))[at]
                                             : element_to_float(taps.dtype, ((GlobalPtr<const Bits16>)(taps.data))[at]);
        } else bits[k] = ((GlobalPtr<const Bits16>)(taps.data))[at];
      }
      T* to = reinterpret_cast<T*>(memory_ + taps_offset(warp_)) + wide::kTransposedPad + i;
      const auto set = [&](T* at, T v) {
        if (first) wide::set_shared(at, v);
        if (second) wide::set_shared(at + pitch - 1, v);
      };
      AITER_UNROLL
      for (int k = 0; k < kOwn; k++, to += kWarps * a_.launch.taps_bytes / int(sizeof(T))) {
        if constexpr (kSplit) {
          const float w = bits[k] * (kIsBf16<T> ? 1.0f : __shfl_sync(0xffffffffu, scale_, k));
          const T high = round_to<T>(w);
          set(to, high), set(to + 2 * pitch, round_to<T>(w - to_float(high)));
        } else {
          set(to, T{uint16_t(bits[k])});
        }
      }
    }
  }

  // Units are numbered along the item; a warp has every kWarps-th one. in_unit returns a slot of its first one.
  AITER_DEVICE uint32_t in_unit(int slot, int vector) const {
    return own_ + uint32_t(warp_ * Layout::kUnit + Layout::line(slot) + (Layout::inside(warp_ * 32, 0) ^ Layout::inside(slot, vector)));
  }
  // place returns the slot that is `slots` and `vectors` further, and in the warp's i-th unit, where `from` has none of their bits.
  static AITER_DEVICE uint32_t place(uint32_t from, int i, int slots, int vectors = 0) {
    const int all = i * kWarps * 32 + slots;
    return (from ^ uint32_t(Layout::inside(all, vectors))) + uint32_t(Layout::line(all));
  }

  // Copy copies the units of an item, one after another. Positions behind the row are zeros.
  static constexpr int kRows = 32 / kVectors;  // positions that a warp copies at a time
  struct Copy {
    const T* from;
    int left;
    uint32_t to;
  };
  AITER_DEVICE Copy start_copy(const Place& at) const {
    const int vector = lane_ % kVectors, first = warp_ * 32 + lane_ / kVectors;
    return {x(at) + first * a_.p.x.last + vector * 8, vector * 8 < channels_ ? wide::clamp_position(a_.p.seqlen - at.start) - first : 0,
            in_unit(lane_ / kVectors, vector)};
  }
  AITER_DEVICE void copy_unit(Copy& c, int i) const {
    const int64_t step = a_.p.x.last * kRows;
    const T* from = c.from;
    AITER_UNROLL
    for (int n = 0; n < kVectors; n++, from += step)
      asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(place(c.to, i, n * kRows)), "l"(from),
                   "r"(c.left > i * kWarps * 32 + n * kRows ? 16 : 0) : "memory");
    c.from += a_.p.x.last * (kWarps * 32);
  }
  // copy starts to copy the warp's units of an item.
  AITER_DEVICE void copy(const Place& at) const {
    Copy c = start_copy(at);
    AITER_UNROLL
    for (int i = 0; i < kUnits; i++) copy_unit(c, i);
    commit_group();
  }

  // load_halo writes the halo in front of an item: zeros, initial states or x.
  AITER_DEVICE void load_halo(const Place& at) const {
    const int positions = halo_columns() * 64;
    const int64_t d = first_;
    if (at.start == 0 && !a_.p.initial.data) {
      for (uint32_t i = threadIdx.x * 16; i < kGroup * halo_bytes(); i += kThreads * 16) store_shared(halo(0) + i, Words<4>{});
      return;
    }
    AITER_ROLLED
    for (int i = int(threadIdx.x); i < positions * kVectors; i += kThreads) {
      const int p = i / kVectors - positions, vector = i % kVectors;
      const int64_t u = at.start + p;
      Vec<T, 8> v;
      v.clear();
      const bool valid = vector * 8 < channels_;
      if (valid && u >= 0) {
        v = load_vec<T, 8>(x(at) + p * a_.p.x.last + vector * 8);
      } else if (valid && u + a_.p.width > 0) {
        cold_branch();
        AITER_UNROLL
        for (int c = 0; c < 8; c++) {
          v.set(c, a_.p.initial.template row<T>(at.b, d + vector * 8 + c)[(u + a_.p.width - 1) * a_.p.initial.last]);
        }
      }
      const int column = (p + positions) / 64;
      AITER_UNROLL
      for (int c = 0; c < 8; c++) {
        const int slot = ((p >> 6) & 7) * 64 + Layout::transposed(c, p >> 3 & 7);
        char* to = memory_ + kItemBytes + (vector * 8 + c) * halo_bytes() + column * 128 + Layout::inside(slot, vector);
        wide::set_shared(reinterpret_cast<T*>(to) + (p & 7), v.get(c));
      }
    }
  }

  // transpose exchanges positions and channels of the warp's units. Matrix j has rows 2q and 2q+1 from positions 8q+2j and 8q+2j+1, so that
  // lane 4t+q receives positions 8q to 8q+7 of channel t.
  AITER_DEVICE void transpose() const {
    const int row = lane_ & 7, slot = row / 2 * 8 + (lane_ >> 3) * 2 + row % 2;
    const uint32_t from = in_unit(slot, 0), to = in_unit(lane_, 0);
    AITER_UNROLL
    for (int i = 0; i < kUnits; i++) {
      Words<4> v[kVectors];
      AITER_UNROLL
      for (int k = 0; k < kVectors; k++) load_matrices<true>(place(from, i, 0, k), v[k].word);
      AITER_UNROLL
      for (int k = 0; k < kVectors; k++) store_shared(place(to, i, 0, k), v[k]);
    }
  }

  AITER_DEVICE void compute(int k, const typename E::Channel& channel, const Place& at) {
    const int c = own(k);
    const float scale = kIsBf16<T> ? 1.0f : __shfl_sync(0xffffffffu, scale_, k);
    engine_.multiply(channel, blocks(), a_.launch.split ? 2 : 1, scale * __shfl_sync(0xffffffffu, bias_, k));
    warp_barrier();
    engine_.keep_halo(channel, halo_columns());
    warp_barrier();
    const float down = bits_to_float((254u << 23) - float_to_bits(scale));  // 1 / scale
    const bool finite = a_.p.silu
        ? engine_.finish(channel, [&](float v) { return kIsBf16<T> ? v * sigmoid(v) : v * down * sigmoid(v * down); })
                                  : engine_.finish(channel, [&](float v) { return kIsBf16<T> ? v : v * down; });
    if (warp_all(finite) && !a_.reach) return;
    warp_barrier();
    const int count = int(min64(a_.p.seqlen - at.start, kItem));
    compute_again<T, E>(a_, at.b, uint32_t(first_ + c), at.start, reinterpret_cast<T*>(memory_), lane_, count, c);
  }

  // store writes the outputs of the warp's units, and starts to copy the next item to their place. Matrix j has rows 2q and 2q+1 from
  // channels 2j and 2j+1 of vector q: lane 4t+q receives position t of a run of eight.
  AITER_DEVICE void store(const Place& at, const Place& next, bool more) const {
    const int row = lane_ & 7, t = lane_ >> 2, vector = lane_ & 3, first = warp_ * 32 + t;
    const uint32_t from = in_unit(((lane_ >> 3) * 2 + row % 2) * 4, row / 2);
    const int64_t step = a_.p.out.last;
    T* to = a_.p.out.template row<T>(at.b, first_) + (at.start + first) * step + vector * 8;
    const int left = vector * 8 < channels_ ? wide::clamp_position(a_.p.seqlen - at.start) - first : 0;
    Copy c{};
    if (more) c = start_copy(next);
    AITER_UNROLL
    for (int i = 0; i < kUnits; i++, to += step * (kWarps * 32)) {
      Words<4> v[4];
      AITER_UNROLL
      for (int r = 0; r < 4; r++) load_matrices<true>(place(from, i, r), v[r].word);
      T* run = to;
      AITER_UNROLL
      for (int r = 0; r < 4; r++, run += 8 * step) store_if(left > i * kWarps * 32 + r * 8, run, v[r]);
      if (more) copy_unit(c, i);
    }
    commit_group();
  }
  // store_if is store_streaming without a branch.
  static AITER_DEVICE void store_if(bool valid, T* p, const Words<4>& v) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %5, 0;\n@p st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};\n}" ::"l"(p), "r"(v.word[0]),
                 "r"(v.word[1]), "r"(v.word[2]), "r"(v.word[3]), "r"(int(valid)) : "memory");
  }

  AITER_DEVICE void finish_row(const Place& at) const {
    AITER_ROLLED
    for (int c = warp_; c < channels_; c += kWarps) a_.p.template finish<T>(at.b, first_ + c, lane_, 32);
  }

  const Args& a_;
  char* memory_;
  uint32_t own_;  // the address of memory_
  int lane_, warp_;
  int64_t first_;  // channel
  int channels_;
  float scale_ = 1.0f, bias_ = 0.0f;  // of channel own(lane)
  E engine_;
};
#endif

template <class T, class RowSet>
__global__ void AITER_LAUNCH_BOUNDS(kTransposedWarps * 32, kTransposedBlocks)
    causal_conv1d_wide_transposed_kernel(const AITER_GRID_CONSTANT KernelParam<WideParams<RowSet>> a) {
#if AITER_CUDA && __CUDA_ARCH__ >= 900
  if constexpr (AITER_KERNEL_CODE) {
    extern __shared__ __align__(1024) char lines[];
    const uint32_t part = a.launch.batch.quotient(blockIdx.x), group = blockIdx.x - part * a.launch.batch.divisor;
    const auto item = [&](uint32_t n) { return uint32_t(uint64_t(a.launch.items) * n / a.launch.each); };
    TransposedBlock<T, RowSet>(a, lines, group).run(item(part), item(part + 1), part % 2);
  }
#else
  (void)a;
#endif
}

// try_launch_wide_transposed launches rows whose channels are adjacent, in vectors of 16 bytes. It divides the items of a group of channels
// among launch.each blocks. Neighbouring blocks have neighbouring channels, whose bytes memory transfers together. It takes no problem that
// leaves multiprocessors without a block, where wide_staged has more warps for an item.
template <class T, class RowSet>
Attempt try_launch_wide_transposed(const WideParams<RowSet>& problem, const Topology& gpu, const OpStream& stream) {
  WideParams<RowSet> a = problem;
  const int blocks = wide::transposed_blocks(a.launch.taps);
  const int64_t bytes = TransposedMemory::bytes(blocks, a.launch.split), slots = kTransposedBlocks * gpu.multiprocessors;
  // The GPU reserves 1024 bytes of each block.
  if (a.launch.taps > wide::kTransposedMost || kTransposedBlocks * (bytes + 1024) > gpu.shared_bytes) return {};
  const int64_t segments = (a.p.seqlen + wide::kItem - 1) / wide::kItem, items = a.p.rows() * segments;
  const int64_t groups = (a.p.dim + TransposedMemory::kGroup - 1) / TransposedMemory::kGroup;
  if (2 * groups * items < 3 * gpu.multiprocessors || items >= 1 << 30 || groups >= 1 << 20) return {};
  if (tuned("kernel", 2) < 2) return {};
  int64_t each = 1, least = INT64_MAX;
  for (int64_t n = 1; n <= items && n <= 256; n++) {  // a block takes as long as its items and half of one
    const int64_t rounds = (groups * n + slots - 1) / slots, time = rounds * (2 * ((items + n - 1) / n) + 1);
    if (time < least) least = time, each = n;
  }
  a.launch.segments = make_fastdiv(segments), a.launch.batch = make_fastdiv(groups);
  a.launch.items = uint32_t(items), a.launch.each = uint32_t(each);
  a.launch.batch0 = 0, a.launch.dim0 = 0;
  a.launch.taps_bytes = TransposedMemory::taps_bytes(blocks, a.launch.split);
  return launched(launch(stream, causal_conv1d_wide_transposed_kernel<T, RowSet>,
      {unsigned(groups * each), kTransposedWarps * 32, unsigned(bytes)}, a));
}

}  // namespace aiter::conv1d::fwd
