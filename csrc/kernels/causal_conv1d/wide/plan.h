// The division of the work of a launch of a kernel of wide filters.
#pragma once

#include <aiter/tuning.h>

#include "../common/filter_gpu.h"
#include "../common/topology_gpu.h"
#include "direct.h"
#include "toeplitz.h"

namespace aiter::conv1d::wide {

// WideEngine is the engine for elements of type T in code for a GPU. gfx90a's matrix cores flush subnormal float16.
#if defined(__gfx90a__)
template <class T> constexpr bool kOnMatrixCores = kIsBf16<T>;
#else
template <class T> constexpr bool kOnMatrixCores = AITER_MATRIX_CORES && sizeof(T) == 2;
#endif
template <class T> using WideEngine = std::conditional_t<kOnMatrixCores<T>, ToeplitzEngine<T>, DirectEngine<T>>;

// WarpMemory is the shared memory of a warp: its tiles, then its taps. On the host the engine is unknown: one pass of the compiler for the
// host serves all GPUs.
struct WarpMemory {
  int size;          // of an element
  bool matrix;       // the engine may be ToeplitzEngine
  bool direct;       // the engine may be DirectEngine
  int lanes;         // of a warp

  // WarpMemory is for elements of type T on a GPU.
  template <class T> static WarpMemory of(const Topology& gpu) {
    WarpMemory m{};
    m.size = sizeof(T), m.lanes = 1 << gpu.warp_bits;
    m.matrix = sizeof(T) == 2 && (AITER_HIP || kTensorCores);
    m.direct = !m.matrix || (AITER_HIP && (gpu.warp_bits == 5 || !kIsBf16<T>));
    return m;
  }

  // tile_bytes returns the bytes of a tile with a halo for `taps` taps; taps_bytes those of the taps.
  int tile_bytes(int taps) const {
    const int column = kItem / lanes;
    const int toeplitz = ((taps + 30 + kToeplitzColumn) / kToeplitzColumn * kToeplitzColumn + kItem) / kToeplitzColumn *
        pitch_of(kToeplitzColumn * size);
    const int plain = ((taps + 7 + column - 1) / column * column + kItem) / column * pitch_of(column * size);
    return matrix && (!direct || toeplitz > plain) ? toeplitz : plain;
  }
  // own_bytes returns the bytes of a tile without a halo.
  int own_bytes() const {
    const int toeplitz = kItem / kToeplitzColumn * pitch_of(kToeplitzColumn * size), plain = lanes * pitch_of(kItem / lanes * size);
    return matrix && (!direct || toeplitz > plain) ? toeplitz : plain;
  }
  int taps_bytes(int taps, bool split) const {
    const int toeplitz = matrix ? (split ? 2 : 1) * kTapCopies * toeplitz_pitch(taps) * size : 0;
    const int plain = direct ? (taps + 7) / 8 * 32 : 0;
    return ((toeplitz > plain ? toeplitz : plain) + 127) & ~127;
  }
};

// vectors_aligned reports whether all rows of seqlen positions are whole vectors of 16 bytes.
template <class T> inline bool vectors_aligned(const Array3& t, int64_t seqlen) {
  return seqlen % kVecElems<T> == 0 && t.last == 1 && is_aligned(t.data, 16) && t.batch * int64_t(sizeof(T)) % 16 == 0 &&
      t.dim * int64_t(sizeof(T)) % 16 == 0;
}

// plan returns the division of all but the work range and the warps of a block, and the memory of a tile.
template <class T> Launch plan(const Problem& p, const Topology& gpu) {
  Launch a{};
  const WarpMemory memory = WarpMemory::of<T>(gpu);
  a.taps = int32_t(p.width < kMaxTaps ? p.width : kMaxTaps), a.passes = int32_t((p.width + a.taps - 1) / a.taps);
  a.split = p.weight.dtype != kDType<T>;
  a.warp_bytes = kStages * memory.tile_bytes(a.taps) + memory.taps_bytes(a.taps, a.split);
  a.x_aligned = vectors_aligned<T>(p.x, p.seqlen);
  return a;
}

// block_warps returns the warps of a block, up to four, whose memory fits.
inline int32_t block_warps(const Launch& a) {
  int64_t warps = tuned_among("warps", 4, 1, 2, 4);
  while (warps > 1 && size_t(warps) * size_t(a.warp_bytes) > kMaxSharedBytes) warps /= 2;
  return int32_t(warps);
}

// launch_items calls run(launch, config) until all items of the problem are done.
template <class Run> Status launch_items(Launch a, const Problem& p, int lanes, int64_t resident_warps, Run run) {
  const int64_t segments = p.seqlen > kItem ? (p.seqlen + kItem - 1) / kItem : 1;
  const int64_t batch = min64(p.batch, (int64_t(1) << 30) / segments), dim = min64(p.dim, (int64_t(1) << 30) / (segments * batch));
  for (int64_t d = 0; d < p.dim; d += dim)
    for (int64_t b = 0; b < p.batch; b += batch) {
      const int64_t rows = min64(batch, p.batch - b), items = min64(dim, p.dim - d) * rows * segments;
      const int64_t each = max64(1, tuned("items", min64((items + resident_warps - 1) / resident_warps, 64)));
      a.dim0 = d, a.batch0 = b, a.items = uint32_t(items), a.each = uint32_t(max64(each, items / (kMaxBlocks * a.warps) + 1));
      a.segments = make_fastdiv(segments), a.batch = make_fastdiv(rows);
      const int64_t warps = (items + a.each - 1) / a.each;
      AITER_TRY(run(a, LaunchConfig{unsigned((warps + a.warps - 1) / a.warps), unsigned(a.warps * lanes),
          unsigned(a.warps * a.warp_bytes)}));
    }
  return Status();
}

}  // namespace aiter::conv1d::wide
