// The warps of a block of fwd/wide_transposed.h that move items: from global memory to a place in shared memory, where they transpose x,
// and from there to global memory, transposing the outputs on the way.
#pragma once

#include "wide_transposed_items.h"

namespace aiter::conv1d::fwd {

#if AITER_CUDA && __CUDA_ARCH__ >= 900
// TransposedMover is one of these warps. It has every kTransposedMovers-th unit of an item, in pieces of kPieceUnits units.
template <class T, class RowSet> class TransposedMover {
 public:
  using Args = KernelParam<WideParams<RowSet>>;
  using Item = TransposedItem;
  using Layout = wide::TransposedLayout;
  static constexpr int kVectors = wide::kTransposedVectors, kItem = wide::kItem, kMovers = kTransposedMovers;
  static constexpr int kPieces = 4, kPieceUnits = kItem / 32 / kMovers / kPieces;  // of a warp's units
  static_assert(kPieceUnits * kPieces * kMovers * 32 == kItem, "warps have equal parts");

  AITER_DEVICE TransposedMover(const Args& a, const TransposedStages& stages)
      : a_(a), stages_(stages), lane_(int(threadIdx.x) & 31), warp_(transposed_warp() - kTransposedWarps) {}

  // run moves the block's items. It transposes the next item before it waits for the outputs of an item; when it has stored these, it
  // copies another item to their place. At first each piece that arrives starts the copy of one of the next item. So one item is on its
  // way, which is enough for the memory's bandwidth, and the first item does not share this with others.
  AITER_DEVICE void run() {
    TransposedWalk source(a_.launch), walk(a_.launch);
    TransposedStages to = stages_;
    block_barrier();  // behind the loads of taps
    copy(source, to.place());
    source.next(), to.next();
    receive<true>(source, to.place());
    source.next(), to.next();
    for (bool begins = deep(); walk.exists(); begins = false) {
      const TransposedStages stage = stages_;
      const TransposedWalk at = walk;
      walk.next(), stages_.next();
      if (walk.exists()) {
        if (begins) receive<true>(source, to.place()), source.next();
        else receive<false>(source, 0);
      }
      stage.done().wait(stage.parity());
      store(at, source, stage.place());
      source.next();
    }
  }

 private:
  static AITER_DEVICE int64_t first(const Item& at) { return int64_t(at.group) * TransposedMemory::kGroup; }
  static AITER_DEVICE int64_t start(const Item& at) { return int64_t(at.segment) * kItem; }
  AITER_DEVICE bool deep() const { return a_.launch.stages > 2; }
  // left returns the positions of an item from `position` on that exist, of the channels of a vector.
  AITER_DEVICE int left(const Item& at, int position, int vector) const {
    if (vector * 8 >= a_.p.dim - first(at)) return 0;
    return wide::clamp_position(a_.p.seqlen - start(at)) - position;
  }

  // in_unit returns the address of a slot of the warp's first unit of the item at `from`. unit returns that of the warp's unit i, and place
  // that of the slot that is `slots` and `vectors` further, of whose bits the first one has none.
  AITER_DEVICE uint32_t in_unit(uint32_t from, int slot, int vector) const {
    return from + uint32_t(warp_ * Layout::kUnit + Layout::line(slot) + (Layout::inside(warp_ * 32, 0) ^ Layout::inside(slot, vector)));
  }
  static AITER_DEVICE uint32_t unit(uint32_t from, int i) {
    return (from ^ uint32_t(Layout::inside(i * kMovers * 32, 0))) + uint32_t(i * kMovers * Layout::kUnit);
  }
  static AITER_DEVICE uint32_t place(uint32_t from, int slots, int vectors) {
    return (from ^ uint32_t(Layout::inside(slots, vectors))) + uint32_t(Layout::line(slots));
  }

  // Copy is a lane's next vector of the units of an item that are copied one after another. Positions behind the row are zeros.
  static constexpr int kRows = 32 / kVectors;  // positions that a warp copies at a time
  struct Copy {
    const T* from;
    int left;
    uint32_t to;
  };
  AITER_DEVICE Copy start_copy(const Item& at, uint32_t to) const {
    const int vector = lane_ % kVectors, position = warp_ * 32 + lane_ / kVectors;
    return {a_.p.x.template row<T>(at.b, first(at)) + (start(at) + position) * a_.p.x.last + vector * 8, left(at, position, vector),
            in_unit(to, lane_ / kVectors, vector)};
  }
  AITER_DEVICE void copy_unit(Copy& c, int i) const {
    const int64_t step = a_.p.x.last * kRows;
    const T* from = c.from;
    AITER_UNROLL
    for (int n = 0; n < kVectors; n++, from += step)
      asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(place(unit(c.to, i), n * kRows, 0)), "l"(from),
                   "r"(c.left > i * kMovers * 32 + n * kRows ? 16 : 0) : "memory");
    c.from += a_.p.x.last * (32 * kMovers);
  }
  // copy starts to copy the warp's units of an item, if it exists. copy_piece does so for one piece, which is a group of cp.async.
  AITER_DEVICE void copy(const TransposedWalk& next, uint32_t to) const {
    Copy c{};
    if (next.exists()) c = start_copy(next, to);
    AITER_ROLLED
    for (int p = 0; p < kPieces; p++) copy_piece(c, p, next.exists());
  }
  AITER_DEVICE void copy_piece(Copy& c, int p, bool exists) const {
    if (exists) {
      AITER_UNROLL
      for (int i = 0; i < kPieceUnits; i++) copy_unit(c, p * kPieceUnits + i);
    }
    commit_group();
  }

  // receive transposes the warp's units of the item of the stage, whose copy has begun. kCopies: that copy is the last one; for each piece
  // that has arrived it starts to copy one of `next` to another place. Otherwise the copy of one more item has begun if there are three
  // places.
  template <bool kCopies> AITER_DEVICE void receive(const TransposedWalk& next, uint32_t to) const {
    Copy c{};
    if (kCopies && next.exists()) c = start_copy(next, to);
    if (!kCopies && deep()) wait_group<kPieces>();
    else if (!kCopies) wait_group<0>();
    AITER_ROLLED
    for (int p = 0; p < kPieces; p++) {
      if (kCopies) wait_group<kPieces - 1>();
      transpose(p);
      if (kCopies) copy_piece(c, p, next.exists());
    }
    TransposedStages::arrive(stages_.ready(), lane_);
  }

  // transpose exchanges positions and channels of the units of a piece. Matrix j has rows 2q and 2q+1 from positions 8q+2j and 8q+2j+1,
  // so that lane 4t+q receives positions 8q to 8q+7 of channel t.
  AITER_DEVICE void transpose(int p) const {
    const int row = lane_ & 7, slot = row / 2 * 8 + (lane_ >> 3) * 2 + row % 2;
    const uint32_t from = in_unit(stages_.place(), slot, 0), to = in_unit(stages_.place(), lane_, 0);
    warp_barrier();
    Words<4> v[kPieceUnits][kVectors];
    AITER_UNROLL
    for (int i = 0; i < kPieceUnits; i++) {
      AITER_UNROLL
      for (int k = 0; k < kVectors; k++) load_matrices<true>(place(unit(from, p * kPieceUnits + i), 0, k), v[i][k].word);
    }
    AITER_UNROLL
    for (int i = 0; i < kPieceUnits; i++) {
      AITER_UNROLL
      for (int k = 0; k < kVectors; k++) store_shared(place(unit(to, p * kPieceUnits + i), 0, k), v[i][k]);
    }
  }

  // store writes the outputs of the warp's units, and starts to copy another item, if it exists, to their place.
  // Matrix j has rows 2q and 2q+1 from channels 2j and 2j+1 of vector q: lane 4t+q receives position t of a run of eight.
  AITER_DEVICE void store(const Item& at, const TransposedWalk& next, uint32_t stage) const {
    const int row = lane_ & 7, t = lane_ >> 2, vector = lane_ & 3, position = warp_ * 32 + t;
    const uint32_t from = in_unit(stage, ((lane_ >> 3) * 2 + row % 2) * 4, row / 2);
    const int64_t step = a_.p.out.last;
    T* to = a_.p.out.template row<T>(at.b, first(at)) + (start(at) + position) * step + vector * 8;
    const int exist = left(at, position, vector);
    Copy c{};
    if (next.exists()) c = start_copy(next, stage);
    AITER_ROLLED
    for (int p = 0; p < kPieces; p++) {
      Words<4> v[kPieceUnits][4];
      AITER_UNROLL
      for (int i = 0; i < kPieceUnits; i++) {
        AITER_UNROLL
        for (int r = 0; r < 4; r++) load_matrices<true>(place(unit(from, p * kPieceUnits + i), r, 0), v[i][r].word);
      }
      AITER_UNROLL
      for (int i = 0; i < kPieceUnits; i++, to += step * (32 * kMovers)) {
        T* run = to;
        AITER_UNROLL
        for (int r = 0; r < 4; r++, run += 8 * step)
          store_streaming_if(exist > (p * kPieceUnits + i) * kMovers * 32 + r * 8, run, v[i][r]);
      }
      copy_piece(c, p, next.exists());
    }
  }

  const Args& a_;
  TransposedStages stages_;
  int lane_, warp_;
};
#endif

}  // namespace aiter::conv1d::fwd
