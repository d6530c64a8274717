// The forward kernel of wide filters for 16-bit dense rows on sm_90a.
//
// Tiling: a block of four warps has a span of 4096 positions: of a row, or of two shorter rows of a channel. It copies x to shared
// memory, multiplies it there with wgmma (wide/group.h), leaves the outputs in the same place and copies them out. Several blocks
// share a multiprocessor: while some multiply, others copy.
// Halo: W - 1 positions in front of a span, rounded up to columns.
// Bytes: x once (the halo again, mostly from cache), out once, 16 bytes an instruction; taps once a block.
// Outputs that are computed again: as in fwd/wide.h.
#pragma once

#include "../wide/group.h"
#include "wide.h"

namespace aiter::conv1d::fwd {

// Number is an integer that is known at compile time.
template <int kValue> using Number = std::integral_constant<int, kValue>;

// GroupShape is how a block divides its span among rows of kRows. The 8 columns in front of each row are its halo.
template <int kRows> struct GroupShape {
  static constexpr int kColumns = 64 / kRows, kGap = kRows > 1 ? 8 : 0, kPitch = kColumns + kGap;  // columns of a row
  static constexpr int kN = 64 + (kRows - 1) * kGap, kPositions = wide::kSpan / kRows;

  static AITER_SHARED constexpr int halo(int taps) { return (wide::group_halo(taps) + 7) / 8 * 8; }
  static AITER_SHARED constexpr int tile_bytes(int taps) { return (halo(taps) + kN) * 128; }
};

#if AITER_WGMMA
template <class T, class RowSet, int kRows> class WideGroup {
 public:
  using Args = KernelParam<WideParams<RowSet>>;
  using Shape = GroupShape<kRows>;
  using E = wide::GroupEngine<T, Shape::kN>;

  AITER_DEVICE WideGroup(const Args& a, char* memory)
      : a_(a), own_(memory + Shape::halo(a.launch.taps) * 128), engine_(memory + Shape::tile_bytes(a.launch.taps)) {}

  // run computes spans [span, end) of channel d, which are numbered along its rows.
  AITER_DEVICE void run(uint32_t d, uint32_t span, uint32_t end) {
    typename E::Fetched taps;
    E::fetch(a_.p, a_.launch.dim0 + d, a_.launch.taps, taps);
    load(d, span);
    engine_.set_taps(a_.p, a_.launch.taps, a_.launch.split, taps);
    for (;;) {
      wait_group<0>();
      wgmma_fence_shared();
      block_barrier();
      engine_.multiply(shared_address(own_));
      block_barrier();
      store(d, span);
      if (++span >= end) return;
      load(d, span);  // a thread overwrites what it stored
    }
  }

 private:
  struct Place {
    uint32_t b;
    int start;
  };
  AITER_DEVICE Place find(uint32_t span) const {
    const uint32_t rows = a_.launch.segments.quotient(span);
    return {rows * kRows, int(span - rows * a_.launch.segments.divisor) * wide::kSpan};
  }
  // vector returns the place of this thread's first vector in a row's columns; the others are 16 columns apart.
  static AITER_DEVICE uint32_t vector() {
    const uint32_t thread = threadIdx.x;
    return (thread >> 3) * 128 + ((thread ^ thread >> 3) & 7) * 16;
  }
  template <int kOffset> static AITER_DEVICE void copy(uint32_t to, const T* from, bool valid) {
    asm volatile("cp.async.cg.shared.global [%0 + %3], [%1 + %3], 16, %2;"
                 ::"r"(to), "l"(from), "r"(valid ? 16 : 0), "n"(kOffset) : "memory");
  }
  // each_vector calls use(i, position) for this thread's vectors of a row.
  template <class Use> static AITER_DEVICE void each_vector(Use use) {
    const int p = int(threadIdx.x) * 8;
    use(Number<0>(), p), use(Number<1>(), p + 1024);
    if constexpr (Shape::kColumns > 32) use(Number<2>(), p + 2048), use(Number<3>(), p + 3072);
  }

  AITER_DEVICE void load(uint32_t d, uint32_t span) const {
    const Place at = find(span);
    const int thread = int(threadIdx.x), halo = wide::group_halo(a_.launch.taps) * 8;  // vectors
    AITER_UNROLL
    for (int r = 0; r < kRows; r++) {
      const bool row = kRows == 1 || at.b + r < a_.p.rows();  // others are zeros
      const int left = row ? int(a_.p.seqlen) - at.start : 0;
      const T* x = a_.p.x.template row<T>(a_.launch.batch0 + at.b + (row ? r : 0), a_.launch.dim0 + d) + at.start;
      const uint32_t own = shared_address(own_) + r * Shape::kPitch * 128, to = own + vector();
      const T* from = x + thread * 8;
      each_vector([&](auto i, int p) { copy<decltype(i)::value * 2048>(to, from, p < left); });
      AITER_ROLLED
      for (int v = thread - halo; v < 0; v += wide::kGroupThreads)
        copy<0>(own + (v >> 3) * 128 + ((v ^ v >> 3) & 7) * 16, x + v * 8, at.start > 0);  // spans are longer than halos
    }
    commit_group();
  }

  AITER_DEVICE void store(uint32_t d, uint32_t span) {
    const uint32_t own = shared_address(own_);
    const bool finite = a_.p.silu
        ? engine_.template store<kRows, Shape::kColumns, Shape::kPitch>(own, [](float v) { return v * sigmoid(v); })
                                  : engine_.template store<kRows, Shape::kColumns, Shape::kPitch>(own, [](float v) { return v; });
    const bool again = __syncthreads_or(!finite);
    const Place at = find(span);
    const int thread = int(threadIdx.x), left = int(a_.p.seqlen) - at.start, count = left < Shape::kPositions ? left : Shape::kPositions;
    AITER_UNROLL
    for (int r = 0; r < kRows; r++) {
      if (kRows > 1 && at.b + r >= a_.p.rows()) break;
      if (again) {
        compute_again<T, E>(a_, at.b + r, d, at.start, reinterpret_cast<T*>(own_ + r * Shape::kPitch * 128), thread, count);
        block_barrier();
      }
      T* const out = a_.p.out.template row<T>(a_.launch.batch0 + at.b + r, a_.launch.dim0 + d) + at.start + thread * 8;
      const uint32_t from = own + r * Shape::kPitch * 128 + vector();
      each_vector([&](auto i, int p) {
        constexpr int k = decltype(i)::value;
        if (p < count) store_streaming<4>(out + k * 1024, load_shared<Words<4>>(from + k * 2048));
      });
    }
  }

  const Args& a_;
  char* own_;  // column 0
  E engine_;
};
#endif

// Blocks of a multiprocessor: as many as registers allow without waiting for each product.
template <int kRows> constexpr int kGroupBlocks = kRows == 1 ? 7 : 6;

template <class T, class RowSet, int kRows>
__global__ void AITER_LAUNCH_BOUNDS(wide::kGroupThreads, kGroupBlocks<kRows>)
    causal_conv1d_wide_group_kernel(const AITER_GRID_CONSTANT KernelParam<WideParams<RowSet>> a) {
#if AITER_WGMMA
  if constexpr (AITER_KERNEL_CODE) {
    extern __shared__ __align__(1024) char lines[];
    uint32_t d = a.launch.batch.quotient(blockIdx.x), n = blockIdx.x - d * a.launch.batch.divisor, each = a.launch.each;
    if (d >= a.launch.tail) {
      n = blockIdx.x - a.launch.tail * a.launch.batch.divisor, d = n / a.launch.items, n -= d * a.launch.items;
      d += a.launch.tail, each = 1;
    }
    const uint32_t span = n * each, end = span + each;
    WideGroup<T, RowSet, kRows>(a, lines).run(d, span, end < a.launch.items ? end : a.launch.items);
  }
#endif
}

// launch_wide_group launches rows of at most GroupShape<kRows>::kPositions positions, with kRows = 1 of any length. It takes none that
// leave much of their spans empty: these multiply and occupy memory for nothing.
template <class T, class RowSet, int kRows> Attempt launch_wide_group(WideParams<RowSet> a, const Topology& gpu, const OpStream& stream) {
  const int64_t rows = a.p.rows(), spans = (a.p.seqlen + wide::kSpan - 1) / wide::kSpan, items = (rows + kRows - 1) / kRows * spans;
  const int64_t used = rows * a.p.seqlen, whole = items * wide::kSpan;
  if (used * 4 < whole * (a.launch.taps < 128 ? 3 : 2)) return {};
  if (kRows > 1 && wide::group_halo(a.launch.taps) > GroupShape<kRows>::kGap) return {};
  if (!tuned("kernel", 1)) return {};
  int64_t each = 4;  // spans of a block: fewer reads of a channel's taps, fewer starts
  while (each > 1 && a.p.dim * items < each * gpu.multiprocessors * 16) each /= 2;
  each = max64(1, tuned("items", each));
  const int64_t parts = (items + each - 1) / each;
  // Blocks of the last channels have one span, about a round of them: multiprocessors end at more even times.
  const int64_t round = gpu.multiprocessors * kGroupBlocks<kRows>, last = each > 1 ? min64(a.p.dim / 2, round / items) : 0;
  const int64_t blocks = (a.p.dim - last) * parts + last * items;
  if (items > 1 << 30 || blocks > 1 << 30) return {};
  a.launch.tail = uint32_t(a.p.dim - last);
  a.launch.segments = make_fastdiv(spans), a.launch.batch = make_fastdiv(parts);
  a.launch.items = uint32_t(items), a.launch.each = uint32_t(each);
  const int taps = (a.launch.split ? 4 : 2) * wide::group_pitch(a.launch.taps) * int(sizeof(T));
  return launched(launch(stream, causal_conv1d_wide_group_kernel<T, RowSet, kRows>,
                         {unsigned(blocks), wide::kGroupThreads, unsigned(GroupShape<kRows>::tile_bytes(a.launch.taps) + taps)}, a));
}

// try_launch_wide_group launches dense rows. In float16 sums of two elements need a scale, whose products make ptxas wait for each wgmma.
template <class T, class RowSet> Attempt try_launch_wide_group(const WideParams<RowSet>& a, const Topology& gpu, const OpStream& stream) {
  if constexpr (sizeof(T) == 2 && RowSet::kMayBeDense)
    if AITER_TARGET_CONSTEXPR (kWarpgroups) {
      if (a.launch.split && !kIsBf16<T>) return {};
      if (a.p.seqlen > GroupShape<2>::kPositions) return launch_wide_group<T, RowSet, 1>(a, gpu, stream);
      return launch_wide_group<T, RowSet, 2>(a, gpu, stream);
    }
  return {};
}

}  // namespace aiter::conv1d::fwd
