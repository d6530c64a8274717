// The backward kernel of wide filters, from 9 taps on.
//
// Tiling: a warp walks rows of a channel backwards in items of 1024 positions (wide/tile.h). x and dout of an item are copied to
// shared memory while the one before is computed (NVIDIA), and dx leaves through the tile of x. g, the gradient before the activation, is
// a tile in reverse order: dx is then a causal convolution of g with the same filter. Warps do not wait for each other.
// Halo: of x W - 1 positions in front of an item, which are read again. g of the W - 1 positions behind it stays in shared memory; a
// segment that starts within a row computes the item behind for it.
// Bytes: x and dout once (the halo again, mostly from cache), dx once, 16 bytes an instruction where rows are aligned. Tensors of adjacent
// channels are transposed first, and dx back (bwd/wide_transpose.h).
// Reduction: dweight over the items of a segment in registers or shared memory, dbias in a lane and then over the warp. Segments of a
// channel write their sums to a workspace. With SiLU, g is the sum of two elements, high + low, if x has 16 bits.
//
// Products with zeros stand for products that do not exist. An infinity or NaN among them would spoil a sum, and so would the values of
// another sequence. g and dx that are not finite, or to which less than W positions are visible, are computed again, one by
// one. dweight of an item with sequences is freed from the products across their bounds; that of an item with infinities or NaN adds
// its products one by one.
#pragma once

#include "wide_warp.h"

namespace aiter::conv1d::bwd {

// Near is the taps of a segment in registers: those of up to kBlocks blocks, or, with 0, none.
template <class E, int kBlocks> struct Near {
  typename E::template NearTaps<kBlocks> taps;
  AITER_DEVICE void load(const E& engine) { taps = engine.template near_taps<kBlocks>(); }
  AITER_DEVICE void shuffle(const E& engine, uint32_t tap, int count) { taps = engine.template shuffle_taps<kBlocks>(tap, count); }
};
template <class E> struct Near<E, 0> {
  AITER_DEVICE void load(const E&) {}
};

// kBlocks: of dweight, in registers. kWhole: they are those of the whole filter, whose taps are not sums.
template <class T, bool kDense, int kBlocks, bool kWhole> class WideBackward {
 public:
  static constexpr int kHalo = !kWhole ? 0 : kBlocks <= kSomeBlocks ? 64 : 128;
  using W = WideWarp<T, kDense, kHalo>;
  using Args = typename W::Args;
  using E = typename W::E;
  using Tile = typename W::Tile;
  using Item = typename W::Item;
  using Position = typename W::Position;
  static constexpr int kVec = W::kVec, kItem = W::kItem, kOwn = W::kOwn;
  static constexpr bool kReverses = E::kReverses;
  static constexpr bool kFewest = AITER_MMA_SYNC && kWhole && kBlocks == kFewestBlocks;  // up to 17 taps: of each a lane has the sum

  AITER_DEVICE WideBackward(const Args& a, char* memory, int lane)
      : a_(a), w_(a, memory, lane), weight_grad_(lane),
        engine_(reinterpret_cast<char*>(w_.sums(a)) + sums_bytes(int(a.p.width)), lane) {
    if constexpr (kReverses) engine_.reverse();
  }

  // run computes segment `segment` of channel d.
  AITER_DEVICE void run(uint32_t d, uint32_t segment) {
    w_.d = d;
    const Args& a = reload_kernarg(a_);
    const uint32_t group = a.parts.quotient(segment), first = (segment - group * a.parts.divisor) * a.items;
    const uint32_t end = first + a.items < a.row_items ? first + a.items : a.row_items, rows = group * a.rows + a.rows;
    const uint32_t row_end = first >= end ? 0 : rows < uint32_t(a.p.batch) ? rows : uint32_t(a.p.batch);
    const Position low = Position(first) * kItem, behind = Position(end) * kItem;
    const Position last = end < a.row_items ? behind : behind - kItem;  // the item behind the segment is for its g alone
    Item it = {group * a.rows, last};
    int stage = 0;
    if (kStages == 2 && it.b < row_end) load(it, 0);
    start_segment();
    AITER_ROLLED
    while (it.b < row_end) {
      recompute_addresses();
      if (kStages == 1) load(it, 0);
      wait_group<0>();
      warp_barrier();
      const Item next = it.start == low ? Item{it.b + 1, last} : Item{it.b, it.start - kItem};
      const bool prefetch = kStages == 2 && next.b < row_end;
      if (prefetch) w_.load_x(reload_kernarg(a_), next, stage ^ 1);
      if (it.start == last) clear_halo();
      float sum = 0.0f;
      const bool special = make_g(it, stage, &sum);
      if (prefetch) w_.load_dout(reload_kernarg(a_), next);
      commit_group();
      if (it.start < behind) {
        bias_grad_ += sum;
        add_weight_grad(it, special, stage);
        warp_barrier();
        recompute_addresses();
        make_dx(it, stage);
      }
      shift_halo();
      if (kStages == 1) warp_barrier();
      stage ^= kStages - 1, it = next;
    }
    store_sums(segment);
  }

 private:
  AITER_DEVICE GradTiles<T, E> g() const { return w_.g(reload_kernarg(a_)); }
  AITER_DEVICE float* sums() const { return w_.sums(reload_kernarg(a_)); }
  AITER_DEVICE void load(const Item& it, int stage) const {
    w_.load_x(reload_kernarg(a_), it, stage), w_.load_dout(reload_kernarg(a_), it);
    commit_group();
  }

  // recompute_addresses keeps AMD's compilers from computing addresses before the loop over items, which takes more registers than
  // there are.
  AITER_DEVICE void recompute_addresses() {
    if (!AITER_HIP) return;
    launder(w_.lane), launder(w_.any_halo), engine_.launder_lane(), weight_grad_.launder_lane();
  }

  AITER_DEVICE void start_segment() {
    if constexpr (kFewest) start_few_taps();
    else start_taps();
    weight_grad_.clear();
  }
  // start_few_taps reads a tap a lane, from where each lane gets its part of the matrices.
  AITER_DEVICE void start_few_taps() {
    const Args& a = reload_kernarg(a_);
    const auto taps = (GlobalPtr<const Bits16>)(a.p.weight.data) + w_.d * a.p.weight.first;
    const int width = int(a.p.width);
    const uint32_t tap = w_.lane < width ? taps[w_.lane * a.p.weight.last] : 0, bias = read_bias_bits(a.p, w_.d);
    if (w_.lane < width) sums()[w_.lane] = 0.0f;
    near_.shuffle(engine_, tap, width);
    bias_ = element_to_float(a.p.bias.dtype, bias), bias_grad_ = 0.0f;
  }
  AITER_DEVICE void start_taps() {
    const Args& a = reload_kernarg(a_);
    warp_barrier();
    AITER_ROLLED
    for (int j = w_.lane; j < int(a.p.width); j += E::kLanes) sums()[j] = 0.0f;
    bias_ = a.p.bias.data ? a.p.bias.get(w_.d, 0) : 0.0f, bias_grad_ = 0.0f;
    engine_.load_taps(a.p, w_.d, a.p.width, int(a.p.width), a.split);
    if (kWhole) warp_barrier(), near_.load(engine_);
  }

  AITER_DEVICE void clear_halo() const {
    const GradTiles<T, E> to = g();
    const auto clear = [&](T* p, int) {
      AITER_UNROLL
      for (int i = 0; i < 2; i++)
        if (i < to.count) *reinterpret_cast<Vec<T, kVec>*>(p + i * to.pitch) = Vec<T, kVec>{};
    };
    if constexpr (kHalo > 0) to.high.template each_near_vector<kHalo>(clear);
    else to.high.each_halo_vector(w_.halo(), 0, clear);
  }
  // shift_halo moves g of the item's first positions to the halo, for the item in front.
  AITER_DEVICE void shift_halo() const {
    warp_barrier();
    const GradTiles<T, E> of = g();
    const auto shift = [&](T* to, int) {
      AITER_UNROLL
      for (int i = 0; i < 2; i++)
        if (i < of.count) {
          *reinterpret_cast<Vec<T, kVec>*>(to + i * of.pitch) = *reinterpret_cast<const Vec<T, kVec>*>(to + i * of.pitch + kOwn);
        }
    };
    if constexpr (kHalo > 0) return of.high.template each_near_vector<kHalo>(shift);
    if (w_.halo() > kItem) {  // its first columns come from the halo
      of.high.each_halo_vector(w_.halo(), kItem, shift);
      warp_barrier();
    }
    of.high.each_halo_vector(w_.halo() < kItem ? w_.halo() : kItem, 0, shift);
  }
  // make_g computes g of an item and the sum of this lane's part. It reports whether some were not finite at first.
  AITER_DEVICE bool make_g(const Item& it, int stage, float* total) {
    const Args& a = reload_kernarg(a_);
    const GradTiles<T, E> to = g();
    float sum = 0.0f;
    bool special = false;
    if (a.p.silu) {
      float parts[4] = {};
      engine_.start(bias_);
      add({w_.x(stage), 0, 1});
      constexpr int N = E::kOutRun, R = E::kRuns;
      const wide::LanePlace<T, E, false> from(w_.dout(), engine_.lane_column(), engine_.lane_within(), N);
      const wide::LanePlace<T, E, true> high(to.high, engine_.lane_column(), engine_.lane_within(), N),
          low(to.tile(1), engine_.lane_column(), engine_.lane_within(), N);
      [[maybe_unused]] uint32_t row = 0;
      if constexpr (kReverses) row = engine_.reversed_row(to.high);
      engine_.each_step([&](const int(&columns)[R], const int(&within)[R], const float(&y)[R][N]) {
        Vec<T, N> v[R], first[R], second[R];
        AITER_UNROLL
        for (int r = 0; r < R; r++) v[r] = from.template read<Vec<T, N>>(columns[r], within[r]);
        AITER_UNROLL
        for (int r = 0; r < R; r++) {
          float grad[N];
          AITER_UNROLL
          for (int k = 0; k < N; k++) {
            const float g = v[r].value(k) * silu_grad(y[r][kReverses ? N - 1 - k : k]);
            grad[N - 1 - k] = g, parts[(r * N + k) % 4] += g;
          }
          first[r] = pack_vec<T, N>(grad);
          if (std::is_same_v<T, half_t>) special |= !first[r].finite();
          AITER_UNROLL
          for (int k = 0; k < N; k++) grad[k] -= first[r].value(k);
          second[r] = pack_vec<T, N>(grad);
        }
        if constexpr (kReverses) {
          engine_.store_step(row, within[0], first);
          engine_.store_step(row + uint32_t(to.pitch * int(sizeof(T))), within[0], second);
        } else {
          AITER_UNROLL
          for (int r = 0; r < R; r++) {
            high.write(columns[r], within[r], first[r]);
            if constexpr (sizeof(T) == 2) low.write(columns[r], within[r], second[r]);
          }
        }
      });
      sum = parts[0] + parts[1] + (parts[2] + parts[3]);
      special = !warp_all(!special && finite(sum));  // an infinity or NaN makes the sum one
    } else {
      AITER_UNROLL
      for (int i = 0; i < Tile::kVecs; i++) {
        const auto v = *reinterpret_cast<const Vec<T, kVec>*>(w_.dout().vector(i));
        Vec<T, kVec> mirrored;
        mirrored.clear();
        AITER_UNROLL
        for (int k = 0; k < kVec; k++) mirrored.set(kVec - 1 - k, v.get(k)), sum += v.value(k);
        const int column = w_.lane / Tile::kLineVecs + i * Tile::kLines, vector = w_.lane % Tile::kLineVecs;
        *reinterpret_cast<Vec<T, kVec>*>(to.high.place(kItem / E::kColumn - 1 - column, Tile::kLineVecs - 1 - vector)) = mirrored;
      }
    }
    warp_barrier();
    if (special || (!kDense && reload_kernarg(a_).reach)) {
      sum = W::compute_g(a_, w_, it);
      warp_barrier();
    }
    *total = sum;
    return special;
  }

  AITER_DEVICE void add_weight_grad(const Item& it, bool special, int stage) {
    const Args& a = reload_kernarg(a_);
    bool alone = special;
    if (!a.p.silu && ((!kDense && a.reach) || W::count(a, it) < kItem)) alone = !warp_all(w_.tiles_finite(a, stage));
    if (!alone) weight_grad_.add(w_.x(stage), g(), int(reload_kernarg(a_).p.width), sums(), scratch());
    if (alone || (!kDense && reload_kernarg(a_).reach)) W::add_products(a_, w_, it, stage, alone);
  }
  // scratch is memory of its own if blocks are flushed while tiles are in use.
  AITER_DEVICE float* scratch() const {
    const int taps = int(reload_kernarg(a_).p.width);
    return taps > kScratchTaps ? sums() + (taps + 31) / 32 * 32 : reinterpret_cast<float*>(w_.memory);
  }

  // add adds the products of the taps and the sum of the tiles.
  AITER_DEVICE void add(const GradTiles<T, E>& tiles) {
    if constexpr (!kWhole) {
      AITER_ROLLED
      for (int i = 0; i < tiles.count; i++) engine_.add(tiles.tile(i));
    } else if constexpr (kBlocks > kFewBlocks) {
      const auto taps = engine_.template near_taps<kBlocks>();
      if (tiles.count > 1) engine_.template add_near<2, true>(tiles.high, tiles.pitch, taps);
      else engine_.template add_near<1, true>(tiles.high, 0, taps);
    } else {
      engine_.template add_near<1, true>(tiles.high, 0, near_.taps);
      if (tiles.count > 1) engine_.template add_near<1, false>(tiles.tile(1), 0, near_.taps);
    }
  }

  AITER_DEVICE void make_dx(const Item& it, int stage) {
    const GradTiles<T, E> from = g();
    engine_.start(0.0f);
    add(from);
    constexpr int N = E::kOutRun, R = E::kRuns;
    const Tile tile = w_.x(stage);
    const wide::LanePlace<T, E, true> to(tile, engine_.lane_column(), engine_.lane_within(), N);
    [[maybe_unused]] uint32_t row = 0;
    if constexpr (kReverses) row = engine_.reversed_row(tile);
    wide::NonFinite<T> found;
    engine_.each_step([&](const int(&columns)[R], const int(&within)[R], const float(&y)[R][N]) {
      Vec<T, N> out[R];
      AITER_UNROLL
      for (int r = 0; r < R; r++) {
        float v[N];
        AITER_UNROLL
        for (int k = 0; k < N; k++) v[kReverses ? k : N - 1 - k] = y[r][k];
        out[r] = pack_vec<T, N>(v);
        AITER_UNROLL
        for (int k = 0; k < N; k++) check(found, out[r], v, k);
      }
      if constexpr (kReverses) {
        engine_.store_step(row, within[0], out);
      } else {
        AITER_UNROLL
        for (int r = 0; r < R; r++) to.write(columns[r], within[r], out[r]);
      }
    });
    warp_barrier();
    const Args& a = reload_kernarg(a_);
    const int n = W::count(a, it);
    if (kDense || a.dx_aligned) {
      T* dx = a.p.dx.template row<T>(it.b, w_.d) + it.start + w_.lane * kVec;
      const auto store = [&](int i) { store_streaming<4>(dx + i * E::kLanes * kVec, *reinterpret_cast<const Words<4>*>(tile.vector(i))); };
      if (AITER_CUDA && n == kItem) {
        AITER_UNROLL
        for (int i = 0; i < Tile::kVecs; i++) store(i);
      } else {
        AITER_UNROLL
        for (int i = 0; i < Tile::kVecs; i++)
          if (n == kItem || (i * E::kLanes + w_.lane) * kVec < n) store(i);
      }
    } else {
      T* dx = a.p.dx.template row<T>(it.b, w_.d) + it.start * a.p.dx.last;
      AITER_ROLLED
      for (int at = w_.lane; at < n; at += E::kLanes) dx[at * a.p.dx.last] = wide::get_shared<T>(tile.at(at));
    }
    if (!warp_all(!found) || (!kDense && a.states)) W::compute_dx(a_, w_, it, stage);
  }
  // check checks the k-th of a run of results, on NVIDIA a word of them at a time.
  template <int N> static AITER_DEVICE void check(wide::NonFinite<T>& found, const Vec<T, N>& out, const float (&v)[N], int k) {
    if (!AITER_MMA_SYNC || sizeof(T) == 4) found.check(v[k]);
    else if (k % 2 == 0) found.check(out.word[k / 2]);
  }

  AITER_DEVICE void store_sums(uint32_t segment) {
    warp_barrier();
    if constexpr (kFewest) {
      float sum = weight_grad_.sum_of_lane(bias_grad_, scratch());
      const Args& a = reload_kernarg(a_);
      const int width = int(a.p.width), j = w_.lane;
      if (j < width) sum += sums()[j];
      if (j < width || j == 31) a.store_sum(segment, w_.d, j < width ? width - 1 - j : width, sum);
    } else {
      weight_grad_.finish(int(reload_kernarg(a_).p.width), sums(), scratch());
      float sum[1] = {bias_grad_};
      warp_all_reduce(sum, 1, E::kLanes);
      warp_barrier();
      const Args& a = reload_kernarg(a_);
      const int width = int(a.p.width);
      const float* const from = sums();
      AITER_ROLLED
      for (int j = w_.lane; j <= width; j += E::kLanes) {
        a.store_sum(segment, w_.d, j < width ? width - 1 - j : j, j < width ? from[j] : sum[0]);
      }
    }
  }

  const Args& a_;
  W w_;
  float bias_ = 0.0f, bias_grad_ = 0.0f;
  WideWeightGrad<T, kBlocks, kWhole> weight_grad_;
  E engine_;
  Near<E, kWhole && kBlocks <= kFewBlocks ? kBlocks : 0> near_;
};

// A block has up to two warps. kWideBlocks is the blocks that an NVIDIA multiprocessor holds: as many as registers allow without spilling.
constexpr int kWideWarps = 2, kWideThreads = kWideWarps * (AITER_HIP ? 64 : 32);
template <bool kDense, int kBlocks> constexpr int kWideBlocks = !kDense ? 5 : kBlocks <= kFewBlocks ? 8 : kBlocks == kSomeBlocks ? 6 : 4;

template <class T, bool kDense, int kBlocks, bool kWhole>
__global__ void AITER_LAUNCH_BOUNDS(kWideThreads, (kWideBlocks<kDense, kBlocks>))
    causal_conv1d_bwd_wide_kernel(const AITER_GRID_CONSTANT KernelParam<WideParams> a) {
  if constexpr (AITER_KERNEL_CODE) {
    using E = wide::WideEngine<T>;
    extern __shared__ SharedLine shared[];
    const int lane = int(threadIdx.x) & (E::kLanes - 1), warp = int(threadIdx.x) / E::kLanes;
    WideBackward<T, kDense, kBlocks, kWhole> self(a, reinterpret_cast<char*>(shared) + warp * a.warp_bytes, lane);
    const uint32_t n = a.first_item + blockIdx.x * uint32_t(a.warps) + uint32_t(warp), d = a.item_split.quotient(n);
    if (n < a.work_items) self.run(d, n - d * a.segments);
  }
}

}  // namespace aiter::conv1d::bwd
