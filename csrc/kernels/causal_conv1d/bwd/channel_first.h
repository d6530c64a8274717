// causal_conv1d_bwd with adjacent positions (channel-first).
//
// Tiling: a team of up to a warp's lanes walks chunks of one channel from the last position to the first. A lane owns 16 bytes
// of positions in each chunk. The loads of the next chunks of x and dout are in flight: up to four chunks in shared memory on
// NVIDIA, one in registers on AMD.
// Halo: x before a lane's positions comes from the preceding lanes' vectors in shared memory, or is read again, from cache; g
// behind them comes from the next lane, or from the chunk computed before. All lanes compute g behind a strip.
// Bytes: x and dout once, dx once, 16 an instruction. A row that does not start on 16 bytes is divided where 16 bytes start,
// and elements of other rows are cleared. Tensors of different alignment: two vectors are combined (NVIDIA) or loads are
// unaligned (AMD). Strided rows are loaded element by element.
// Reduction: dweight and dbias in registers along a strip, then over the lanes by shuffles, over the block in shared memory,
// over segments by the reduce_segments kernel.
#pragma once

#include "channel_first_exact.h"
#include "chunk_loader.h"
#include "seq_mask.h"

namespace aiter::conv1d::bwd {

constexpr int kChannelFirstThreads = 256;  // of a block, at most

// NVIDIA has a kernel for each width of whole rows: one for up to 8 taps takes a sixth more instructions. AMD has one for all
// widths above 4.
constexpr bool kKernelPerWidth = AITER_CUDA;
template <int W, RowKind kKind>
constexpr bool kPartialFilter = kKind == kRagged || (W > 4 && (!kKernelPerWidth || kKind == kSeqIdx));

// kSkipsTail: the loop leaves out the products with g behind the row, and redo_row_ends is not needed. It takes 2% more
// instructions and, in bfloat16 with 4 taps, few enough registers for one more wave.
template <class T, int W, RowKind kKind>
constexpr bool kSkipsTail = AITER_HIP && kKind == kWhole && W == 4 && kIsBf16<T>;

template <class T, int W, RowKind kKind> struct ChannelFirstWalk : ChunkLoader<T, W, kKind> {
  using Base = ChunkLoader<T, W, kKind>;
  using Base::a, Base::p, Base::b, Base::d, Base::length, Base::lanes, Base::lane, Base::next_lane_key, Base::t, Base::dx;
  using Base::R, Base::H, Base::E, Base::kStages, Base::kSharesHalo, Base::kHaloLanes, Base::kParts;
  using typename Base::Chunk, typename Base::InFlight, typename Base::HaloPart;
  using FilterMask = TapMask<kPartialFilter<W, kKind>>;
  using VecMask = FirstMask<R, W>;
  using SeqTaps = SeqTapMask<VecMask, W>;

  const int skip;
  float weight[W], bias, sums[W + 1] = {}, carry[H] = {};
  const uint32_t* mask_words;  // kWholeSeqIdx: the VecMask of the lane's vector

  AITER_DEVICE ChannelFirstWalk(const BwdArg& a, int d, uint32_t chunk)
      : Base(a, d, chunk), skip(kPartialFilter<W, kKind> ? W - int(a.p.width) : 0),
        mask_words(a.mask + (int64_t(chunk) * lanes + lane) * VecMask::kWords) {}

  AITER_DEVICE void load_weights() {
    FilterSource from = strided_filter(reload_kernarg(a).p);
    if (kWholeVectors<kKind> && !kHasSeqIdx<kKind> && !kPartialFilter<W, kKind>) from.width = W;
    const auto filter = load_filter<W>(from, d);
    AITER_UNROLL
    for (int k = 0; k < W; k++) weight[k] = filter.weight[0][k];
    bias = filter.bias[0];
  }

  // mask_at loads a VecMask; inactive lanes take any path.
  AITER_DEVICE static SeqTaps mask_at(const uint32_t* words, bool active) {
    VecMask m = VecMask::none();
    if (active) static_cast<Words<VecMask::kWords>&>(m) = load_vec<uint32_t, VecMask::kWords>(words);
    else m.word[0] = VecMask::kAllVisible;
    return {m};
  }
  // load_mask returns the mask of the positions from t on, which need not be a vector's first.
  AITER_DEVICE SeqTaps load_mask(int t, bool active) const {
    const BwdArg& a = reload_kernarg(this->a);
    active = active && t < length;
    if (kSharedKernel<W> && !a.mask) return {VecMask::one_sequence(active ? int(a.p.width) : 0, t, length)};
    const int vector = t >> (R == 8 ? 3 : 2);  // downwards: t may be negative
    const uint32_t* words = a.mask + (b * mask_pitch(length, R) + kMaskBefore + vector) * VecMask::kWords;
    SeqTaps m = mask_at(words, active);
    m.mask.shift(mask_at(words + VecMask::kWords, active).mask, t & (R - 1));
    return m;
  }

  // tap_order returns the nth tap to add: with kWholeSeqIdx the tap of distance 0 first, which needs no condition.
  AITER_DEVICE static constexpr int tap_order(int n) { return kKind == kWholeSeqIdx ? H - n : n; }

  // apply_silu_grad computes g from N values of dout. x starts H positions before them.
  template <int N, class Mask> AITER_DEVICE void apply_silu_grad(Mask mask, const float* x, float* g) const {
    if (p.silu) {
      float sum[N];
      AITER_UNROLL
      for (int i = 0; i < N; i++) sum[i] = bias;
      AITER_UNROLL
      for (int n = 0; n < W; n++) {
        const int k = tap_order(n);
        if (!mask.uses_tap(k)) continue;
        AITER_UNROLL
        for (int i = 0; i < N; i++) fma_where(mask(i, k, sum[i]), sum[i], weight[k], x[i + k]);
      }
      AITER_UNROLL
      for (int i = 0; i < N; i++) g[i] *= silu_grad(sum[i]);
    }
    if constexpr (kHasSeqIdx<kKind>) {
      AITER_UNROLL
      for (int i = 0; i < N; i++) g[i] = keep_where(mask(i, H, g[i]), g[i]);
    }
  }

  // compute_g_after_strip computes g of the H positions behind the strip into carry.
  AITER_DEVICE void compute_g_after_strip() {
    const int t = this->t - lane * R + lanes * R;
    if (t >= length) return;  // the row ends with the strip
    const Backward& p = reload_kernarg(a).p;
    const T *from = p.x.row<T>(b, d), *dout = p.dout.row<T>(b, d);
    float x[H + H];
    if constexpr (kWholeVectors<kKind>) {
      typename Base::HaloVec after_strip, of_dout;
      after_strip.clear(), of_dout.clear();
      AITER_UNROLL
      for (int i = 0; i < kParts; i++) {
        const int at = t + i * HaloPart::kElements;
        if (i > 0 && at >= length) break;
        this->set_part(after_strip.word, i, load_vec<T, HaloPart::kElements>(from + at));
        this->set_part(of_dout.word, i, load_vec<T, HaloPart::kElements>(dout + at));
      }
      const auto left = load_vec<T, E>(from + t - E);
      AITER_UNROLL
      for (int j = 0; j < H; j++) x[j] = left.value(E - H + j), x[H + j] = after_strip.value(j), carry[j] = of_dout.value(j);
    } else {
      from += (t - H) * p.x.last, dout += t * p.dout.last;
      AITER_UNROLL
      for (int i = 0; i < H; i++, from += p.x.last) x[i] = load_vec<T, 1>(from).value(0);
      AITER_UNROLL
      for (int j = 0; j < H; j++, from += p.x.last, dout += p.dout.last) {
        x[H + j] = carry[j] = 0.0f;
        if (t + j < length) x[H + j] = load_vec<T, 1>(from).value(0), carry[j] = load_vec<T, 1>(dout).value(0);
      }
    }
    if constexpr (kKind == kWholeSeqIdx) {
      apply_silu_grad<H>(mask_at(mask_words + (lanes - lane) * VecMask::kWords, true), x, carry);
    } else if constexpr (kHasSeqIdx<kKind>) {
      apply_silu_grad<H>(load_mask(t, true), x, carry);
    } else {
      apply_silu_grad<H>(FilterMask{skip}, x, carry);
    }
  }

  // exchange_g sets g of the H positions behind a lane's own. Where several teams share a warp a row is one chunk and carry is 0,
  // and so is what a team's last lane gets from the next team's first.
  AITER_DEVICE void exchange_g(float* g) {
    AITER_UNROLL
    for (int j = 0; j < H; j++) {
      const float own = g[j];  // j >= R: from the next lane
#if AITER_CUDA
      g[R + j] = shuffle_next(next_lane_key < 0 ? carry[j] : own, next_lane_key);
#else
      g[R + j] = shuffle_next(lane == 0 ? carry[j] : own);
#endif
      carry[j] = own;
    }
  }

  template <class Mask> AITER_DEVICE void accumulate(Mask mask, const float* x, const float* g, float* out) {
    AITER_UNROLL
    for (int i = 0; i < R; i++) out[i] = 0.0f;
    if (kSkipsTail<T, W, kKind> && t + R < length) {
      AITER_UNROLL
      for (int k = 0; k < H; k++) {
        AITER_UNROLL
        for (int i = R; i < R + H - k; i++) out[i - (H - k)] = fmaf(weight[k], g[i], out[i - (H - k)]);
      }
    }
    AITER_UNROLL
    for (int n = 0; n < W; n++) {
      const int k = tap_order(n);
      if (!mask.uses_tap(k)) continue;
      AITER_UNROLL
      for (int i = 0; i < (kSkipsTail<T, W, kKind> ? R : R + H - k); i++) {
        const auto use = mask(i, k, sums[k]);
        if (i >= H - k) fma_where(use, out[i - (H - k)], weight[k], g[i]);
        if (i < R) fma_where(use, sums[k], x[i + k], g[i]);
      }
    }
    AITER_UNROLL
    for (int i = 0; i < R; i++) sums[W] += g[i];
  }

  // compute_dx computes dx and adds to the sums.
  template <class Mask> AITER_DEVICE void compute_dx(const Mask& mask, const float* x, float* g, float* out) {
    apply_silu_grad<R>(mask, x, g);
    exchange_g(g);
    accumulate(mask, x, g, out);
  }

  AITER_DEVICE void store(const float* v) const {
    const auto words = pack_vec<T, R>(v);
    if constexpr (kWholeVectors<kKind>) {
      if (t < length) store_vec(Base::kMovingPointers ? dx : dx + t, words);
      return;
    }
    if (a.dx_contiguous && t >= 0 && t + R <= length) return store_vec(dx + t, words);
    const int64_t last = reload_kernarg(a).p.dx.last;
    T* one = dx + t * last;
    AITER_UNROLL
    for (int i = 0; i < R; i++, one += last) {
      Vec<T, 1> element;
      element.word[0] = sizeof(T) == 4 ? words.word[i] : words.word[i / 2] >> (i % 2 * 16);
      if (t + i >= 0 && t + i < length) store_vec(one, element);
    }
  }

  // store_dinitial stores the gradient of the initial states in a row's first chunk. add_dfinal adds the gradient of the final
  // states to dx in its last chunk.
  AITER_DEVICE void store_dinitial(const float* g) const {
    const Backward& p = reload_kernarg(a).p;
    if (t != 0 || !p.dinitial.data) return;
    cold_branch();
    T* to = p.dinitial.row<T>(b, d);
    AITER_UNROLL
    for (int j = 0; j < H; j++, to += p.dinitial.last) {
      float sum = 0.0f;
      AITER_UNROLL
      for (int i = 0; i <= j; i++) sum = fmaf(weight[j - i], g[i], sum);
      store_vec(to, pack_vec<T, 1>(&sum));
    }
  }
  AITER_DEVICE void add_dfinal(float* out) const {
    const Backward& p = reload_kernarg(a).p;
    if (t + R != length || !p.dfinal.data) return;
    cold_branch();
    const T* from = p.dfinal.row<T>(b, d);
    AITER_UNROLL
    for (int j = 0; j < H; j++, from += p.dfinal.last) out[R - H + j] += load_vec<T, 1>(from).value(0);
  }

  // chunk_finite reports whether the products of the chunk's values with 0 are 0.
  AITER_DEVICE bool chunk_finite(const Chunk& chunk) const {
    return chunk.halo.finite() && chunk.x.finite() && chunk.dout.finite() && finite(weight) && finite(bias);
  }

  // compute computes and stores a chunk.
  template <class Mask> AITER_DEVICE void compute(Mask mask, Chunk& chunk, bool active) {
    float x[H + R], g[R + H], out[R];
    [[maybe_unused]] bool exact = false;
    if constexpr (!kWholeVectors<kKind>) this->fit_to_row(chunk, active);
    if constexpr (kKind == kWholeStates)
      if (active && t < H) this->load_initial_states(chunk);
    AITER_UNROLL
    for (int i = 0; i < H; i++) x[i] = chunk.halo.value(E - H + i);
    AITER_UNROLL
    for (int i = 0; i < R; i++) x[H + i] = chunk.x.value(i), g[i] = chunk.dout.value(i);
    if constexpr (kHasSeqIdx<kKind> && AITER_CUDA) {
      exact = (!active || t < H || t + R + H > length) && !chunk_finite(chunk);
    }
    // NVIDIA has a path without conditions. On AMD, where memory is the bound, it is not worth its code.
#if AITER_CUDA
    const bool unmasked = kHasSeqIdx<kKind> ? warp_all(mask.all_visible() && !exact) : !kWholeVectors<kKind> && mask.all_visible();
#else
    constexpr bool unmasked = false;
#endif
    if (unmasked) {
      compute_dx(TapMask<kPartialFilter<W, kKind> && kHasSeqIdx<kKind>>{skip}, x, g, out);
    } else if constexpr (kKind == kWholeSeqIdx && W < 8) {  // of 8 taps it costs more registers than it saves
      if (warp_all(mask.mask.all_live())) compute_dx(SeqTapMask<VecMask, W, true>{mask.mask}, x, g, out);
      else compute_dx(mask, x, g, out);
    } else {
      compute_dx(mask, x, g, out);
    }
    if constexpr (kKind == kWholeStates)
      if (active) store_dinitial(g), add_dfinal(out);
    if (active) store(out);
  }

  // walk computes `count` chunks, the last first. more: chunks of the row precede them, whose halo the last lanes issue. All
  // teams of a warp take the same number of steps.
  AITER_DEVICE void walk(int count, int steps, bool more, char* memory) {
    const int issued = pin_register(count + (more && lane >= lanes - kHaloLanes));
    InFlight in_flight(memory);
    AITER_UNROLL
    for (int i = 0; i < kStages; i++) {
      if (i < 2 || i < this->stages_in_use()) this->issue(in_flight, i, i < count, i < issued);
      if (i == (kStages - 1) / 2) load_weights();  // it waits: the first chunks of all warps go first
    }
    if constexpr (kHasSeqIdx<kKind>) pdl_wait();
    if (count > 0) compute_g_after_strip();
    int stage = 0;
    [[maybe_unused]] SeqTaps later;
    if constexpr (kKind == kWholeSeqIdx) later = mask_at(mask_words, count > 0);
    AITER_ROLLED
    for (int i = 0; i < steps; i++) {
      const int prev_stage = kStages == 1 || stage + 1 == this->stages_in_use() ? 0 : stage + 1;
      if constexpr (kKind == kWholeSeqIdx) {
        const SeqTaps now = later;
        mask_words -= lanes * VecMask::kWords;
        later = mask_at(mask_words, i + 1 < count);
        step(now, in_flight, stage, prev_stage, i, count, issued);
      } else if constexpr (kHasSeqIdx<kKind>) {
        step(load_mask(t, i < count), in_flight, stage, prev_stage, i, count, issued);
      } else {
        step(FilterMask{skip}, in_flight, stage, prev_stage, i, count, issued);
      }
      stage = prev_stage;
    }
    wait_group<0>();
  }

  // step computes one chunk.
  template <class Mask>
  AITER_DEVICE void step(const Mask& mask, InFlight& in_flight, int stage, int prev_stage, int i, int count, int issued) {
    this->wait_chunk();
    if (kSharesHalo) warp_barrier();
    Chunk chunk = this->consume(in_flight, stage, prev_stage);
    if (kSharesHalo) warp_barrier();
    const int next_issue = i + this->stages_in_use();
    this->issue(in_flight, stage, next_issue < count, next_issue < issued);
    compute(mask, chunk, i < count);
    if (!this->step_back()) return;
    AITER_UNROLL
    for (int j = 0; j < H; j++) carry[j] = 0.0f;
  }
};

// channel_first_shared_bytes returns the shared memory of a launch: chunks first, sums at the end.
template <class T, int W> AITER_SHARED constexpr int channel_first_shared_bytes(int threads) {
  using R = ChunkLoader<T, W, kWhole>;
  const int sums = threads * (W + 1) * int(sizeof(float)), tiles = pipeline_bytes<typename R::Vec16>(R::kSharedStages * 2, threads);
  return AITER_CUDA && tiles > sums ? tiles : sums;
}

// Threads of a block at most, and blocks of a multiprocessor: as many as registers allow without spilling.
template <RowKind kKind>
constexpr int kMaxBlockThreads = kWholeVectors<kKind> && !kHasSeqIdx<kKind> ? kChannelFirstThreads : kChannelFirstThreads / 2;
template <class T> constexpr int kFourBlockTaps = sizeof(T) == 4 ? 6 : 5;  // of whole rows: up to which four blocks fit, then three
template <class T, int W, RowKind kKind>
constexpr int kChannelFirstBlocks = kMaxBlockThreads<kKind> == kChannelFirstThreads ? (W > kFourBlockTaps<T> ? 3 : 4)
                           : W <= 4                           ? (kKind == kWholeSeqIdx ? 8 : 7)
                           : kKind == kWholeSeqIdx          ? 4
                                                              : 5;

template <class T, int W, RowKind kKind>
__global__ void AITER_LAUNCH_BOUNDS(kMaxBlockThreads<kKind>, (kChannelFirstBlocks<T, W, kKind>))
    causal_conv1d_bwd_channel_first_kernel(BwdArg all) {
  if constexpr (AITER_KERNEL_CODE) {
    AITER_DYNAMIC_SHARED(memory, (channel_first_shared_bytes<T, W>(kMaxBlockThreads<kKind>)));
    pdl_trigger();
    // Not gridDim: AMD reads it through a pointer, which would hold two scalar registers that gfx90a lacks.
    for (uint32_t item = blockIdx.x; item < reload_kernarg(all).work_items; item += reload_kernarg(all).grid) {
      const BwdArg& a = reload_kernarg(all);
      const uint32_t group = a.item_split.quotient(item), segment = item - group * a.item_split.divisor;
      const int first = int(group << (a.block_bits - a.channel_bits)), dim = int(a.p.dim);
      const int d = first + (int(threadIdx.x) >> a.channel_bits);
      const int bits = a.channel_bits - a.lane_bits;  // teams of a channel in a block
      const uint32_t rank = (threadIdx.x >> a.lane_bits) & ((1u << bits) - 1);
      const uint32_t from = ((segment << bits) + rank) * a.strip;
      const int left = d < dim && from < a.total ? int(a.total - from) : 0, count = left < a.strip ? left : a.strip;
      ChannelFirstWalk<T, W, kKind> walk(all, d < dim ? d : dim - 1, count > 0 ? from + uint32_t(count) - 1 : 0);
      walk.walk(count, a.strip, from != a.row_split.quotient(from) * a.row_split.divisor, memory[0].bytes);
      if constexpr (!kHasSeqIdx<kKind> && !kSkipsTail<T, W, kKind>)
        if (!reload_kernarg(all).p.silu && !finite(walk.weight)) redo_row_ends<T, W, kKind>(all, item, walk.weight);
      if constexpr (kKind == kRagged)
        if (!reload_kernarg(all).p.silu && !finite(walk.sums)) redo_sums<T, W>(all, item, walk.sums);
      reduce_channel_first(reload_kernarg(all), walk.sums, segment, first, reinterpret_cast<float*>(memory));
    }
  }
}

}  // namespace aiter::conv1d::bwd
