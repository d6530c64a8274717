// The sums of a wide filter for adjacent channels that are transposed in their place, on NVIDIA GPUs from sm_90 on.
//
// The formulation is that of ToeplitzEngine (wide/toeplitz.h) with outputs and columns exchanged: the left factor is T_m, the right
// one X_u of 8 columns, which ldmatrix reads and stmatrix writes two steps at a time.
#pragma once

#include "toeplitz.h"

namespace aiter::conv1d::wide {

constexpr int kTransposedVectors = 4, kTransposedColumn = 128;  // of channels, of a block; positions

// TransposedLayout is where the vectors of channels of an item are in shared memory, a position a slot of each vector. 32
// slots are a unit. When it is transposed, slot 4c + n has positions 8n to 8n+7 of channel c: the same bytes, so that a warp transposes it
// alone.
//
// Banks: eight lanes that access 16 bytes each have no conflict if their addresses differ in bits 4 to 6, which are exclusive ors of a
// slot's vector with a permutation of its number. Slots whose numbers differ in bits 0 to 2 (lanes that write transposed vectors), 0, 3 and
// 4 (matrix rows that are read to be transposed) or 7 to 9 (the same vector of 8 columns) differ there, and so do those of four vectors and
// bit 0 or 2 (positions that arrive, and matrix rows that are transposed back).
struct TransposedLayout {
  static constexpr int kUnit = 32 * kTransposedVectors * 16;  // bytes

  static AITER_SHARED constexpr int permutation(int slot) {
    return ((slot & 1) * 4) ^ (slot & 2) ^ ((slot >> 2 & 1) * 5) ^ (slot >> 3 & 3) ^ (slot >> 5 & 1) ^ (slot >> 7 & 7);
  }
  // line returns the place of a slot's line of 128 bytes, inside the offset in it.
  static AITER_SHARED constexpr int line(int slot) { return slot * kTransposedVectors / 8 * 128; }
  static AITER_SHARED constexpr int inside(int slot, int vector) { return (permutation(slot) ^ vector) * 16; }
  static AITER_SHARED constexpr int at(int slot, int vector) { return line(slot) + inside(slot, vector); }
  // transposed returns the slot of positions 8n to 8n+7 of a channel.
  static AITER_SHARED constexpr int transposed(int channel, int n) { return n / 4 * 32 + channel % 8 * 4 + n % 4; }
};

constexpr int kTransposedPad = 30;  // zeros in front of the taps; half as many, and one, behind them

// transposed_blocks returns how many T_m follow T_0 for a filter, which is rounded up to one of few lengths, so that code for each is
// without loops: 1, 2, 4 or 8. transposed_taps returns the taps of these blocks: the first are zeros. transposed_halo returns the lines of
// 64 positions in front of an item that they read, transposed_pitch the elements between two copies of a filter, whose banks differ by at
// least eight.
constexpr int kTransposedMost = 129;  // taps
AITER_SHARED constexpr int transposed_blocks(int taps) { return taps <= 17 ? 1 : taps <= 33 ? 2 : taps <= 65 ? 4 : 8; }
AITER_SHARED constexpr int transposed_taps(int blocks) { return 16 * blocks + 1; }
AITER_SHARED constexpr int transposed_halo(int blocks) { return (blocks + 3) / 4; }
AITER_SHARED constexpr int transposed_pitch(int blocks) {
  const int n = (transposed_taps(blocks) + 3 * kTransposedPad / 2 + 8) / 8 * 8, rest = n % 64;
  return rest < 16 ? n + 16 - rest : rest > 48 ? n + 80 - rest : n;
}

#if AITER_CUDA
// TransposedEngine computes 8 columns of 128 positions of a channel.
template <class T> class TransposedEngine {
 public:
  using Layout = TransposedLayout;
  static constexpr int kLanes = 32, kSteps = kTransposedColumn / kMatrixStep;
  static_assert(8 * kTransposedColumn == kItem, "all columns of an item");

#if __CUDA_ARCH__ >= 900
  // Channel holds the places of a channel in shared memory for a lane: its row for ldmatrix of steps 0 and 1 of its column; those of the
  // two units in front of the column, the nearest one first; what end reads; its pairs of taps.
  struct Channel {
    uint32_t row, before[2], last, taps;
  };

  // zero is 0, which the compiler must not know.
  AITER_DEVICE TransposedEngine(int lane, uint32_t zero) : lane_(lane), zero_(zero) {}

  // channel returns the places of channel c. own, halo and taps are the places of all channels' columns, of channel 0's halo, and of
  // channel c's taps. They are hidden from the compiler, which would compute them for each channel.
  AITER_DEVICE Channel channel(int c, int blocks, uint32_t own, uint32_t halo, uint32_t taps) const {
    const int lines = transposed_halo(blocks), column = lane_ & 7, ahead = (column + 7) & 7;
    const int slot = Layout::transposed(c, lane_ >> 3);  // rows of four matrices: two steps, two vectors each
    const int kept = (kItem / 64 - lines + (lane_ >> 3 & (lines - 1))) * 64 + Layout::transposed(c, column);  // lines: 1 or 2
    const int tap = transposed_taps(blocks) - 1 - (lane_ >> 2) + 2 * (lane_ & 3) + kTransposedPad, odd = tap & 1;
    Channel at;
    halo += uint32_t(c * lines * 128);
    at.row = own + uint32_t(Layout::at(slot + column * kTransposedColumn, c / 8));
    AITER_UNROLL
    for (int n = 0; n < 2; n++) {
      const int from = slot + ahead * kTransposedColumn + (3 - n) * 32;
      at.before[n] = column ? own + uint32_t(Layout::line(from)) : halo + uint32_t(lines * 128 - 128);
      at.before[n] += uint32_t(Layout::inside(from, c / 8));
      launder(at.before[n]);
    }
    at.last = own + uint32_t(Layout::at(kept, c / 8));
    at.taps = taps + uint32_t(odd * transposed_pitch(blocks) + tap - odd) * 2;
    launder(at.row), launder(at.last), launder(at.taps);
    return at;
  }
  // behind returns the places of the channel that is n behind one, where n has no bit of its number, of a stage `distance` behind.
  AITER_DEVICE Channel behind(Channel at, int n, uint32_t halo_bytes, uint32_t taps_bytes, uint32_t distance) const {
    const uint32_t line = uint32_t(Layout::line(Layout::transposed(n, 0))) + distance,
        inside = uint32_t(Layout::inside(Layout::transposed(n, 0), n / 8)), halo = uint32_t(n) * halo_bytes;
    at.row = (at.row ^ inside) + line;
    AITER_UNROLL
    for (uint32_t& before : at.before) before = (before ^ inside) + (lane_ & 7 ? line : halo);
    at.last = (at.last ^ inside) + line;
    at.taps += uint32_t(n) * taps_bytes;
    return at;
  }

  // fetch reads the columns of the channel that the next call of multiply takes.
  AITER_DEVICE void fetch(const Channel& at) {
    AITER_UNROLL
    for (int u = 0; u < kSteps; u += 2) load(row(at, u), x_[u], x_[u + 1]);
  }
  // multiply sets the sums to `start` and the products of a channel with its taps.
  AITER_DEVICE void multiply(const Channel& at, int blocks, int parts, float start) {
    if (blocks == 1) add_parts<1>(at, parts, start);
    else if (blocks == 2) add_parts<2>(at, parts, start);
    else if (blocks == 4) add_parts<4>(at, parts, start);
    else add_parts<8>(at, parts, start);
  }

  // end reads the channel's last positions; keep writes those that are the next item's halo to its lines, at the same places in a line.
  AITER_DEVICE Words<4> end(const Channel& at) const { return load_shared<Words<4>>(at.last); }
  AITER_DEVICE void keep(const Channel& at, uint32_t halo, int lines, const Words<4>& v) const {
    if (lane_ >> 3 < lines) store_shared(halo + uint32_t((lane_ >> 3) * 128) + (at.last & 112), v);
  }

  // finish writes outputs, result(v) of each sum v, and reports whether all of this lane's are finite.
  template <class Result> AITER_DEVICE bool finish(const Channel& at, Result result) {
    NonFinite<T> found;
    AITER_UNROLL
    for (int u = 0; u < kSteps; u += 2) {
      uint32_t word[4];
      AITER_UNROLL
      for (int j = 0; j < 4; j++) {
        const float* y = &sums_[u + j / 2][j % 2 * 2];
        word[j] = pack_pair<T>(result(y[0]), result(y[1]));
        found.check(word[j]);
      }
      store_matrices<true>(row(at, u), word);
    }
    return !found;
  }

 private:
  // row returns this lane's row of steps u and u + 1 of its column. Negative steps are in front of it: in the column before, or, of column
  // 0, in the halo.
  AITER_DEVICE uint32_t row(const Channel& at, int u) const {
    if (u < 0) return u < -4 ? at.before[-u / 2 - 3] - (lane_ & 7 ? 2 * Layout::kUnit : 128) : at.before[-u / 2 - 1];
    return (u & 2 ? at.row ^ 16 : at.row) + u / 2 * Layout::kUnit;
  }

  using Step = uint32_t[2];
  static AITER_DEVICE void load(uint32_t address, Step& low, Step& high) {
    uint32_t v[4];
    load_matrices<false>(address, v);
    low[0] = v[0], low[1] = v[1], high[0] = v[2], high[1] = v[3];
  }

  // A Factor is the part of T_m of lane 4g+t: the pairs of taps 0, -8 and 8 apart from W-1-16m-g+2t, the first one twice. The pair 8
  // further is the one -8 apart of T_{m-1}. Copies are sums with zero_: of what it knows to be a copy, ptxas makes one before each product.
  using Factor = uint32_t[4];
  static AITER_DEVICE uint32_t pair(uint32_t t) { return load_shared<Words<1>>(t).word[0]; }
  AITER_DEVICE void get(Factor& f, uint32_t t, uint32_t near) const {
    f[0] = pair(t), f[1] = pair(t - 16);
    copy(f[2], near), copy(f[3], f[0]);
  }
  AITER_DEVICE void copy(uint32_t& to, uint32_t from) const { asm volatile("or.b32 %0, %1, %2;" : "=r"(to) : "r"(from), "r"(zero_)); }

  template <int kBlocks> AITER_DEVICE void add_parts(const Channel& at, int parts, float start) {
    add<kBlocks, true>(at, at.taps, start);
    AITER_ROLLED
    for (int part = 1; part < parts; part++) add<kBlocks, false>(at, at.taps + uint32_t(part * 4 * transposed_pitch(kBlocks)), start);
  }

  // add adds the products with T_0 to T_kBlocks. The taps of a block are read while the block before is multiplied. kFirst: the columns are
  // fetched.
  template <int kBlocks, bool kFirst> AITER_DEVICE void add(const Channel& at, uint32_t t, float start) {
    constexpr int kBefore = (kBlocks + 1) / 2 * 2;
    Step x[kBefore + kSteps];  // step u is at kBefore + u
    Factor f[2];
    get(f[0], t, pair(t + 16));
    if (!kFirst) fetch(at);
    AITER_UNROLL
    for (int u = 0; u < kSteps; u++) x[kBefore + u][0] = x_[u][0], x[kBefore + u][1] = x_[u][1];
    AITER_UNROLL
    for (int m = 0; m <= kBlocks; m++) {
      if (m % 2 == 0 && m < kBlocks) load(row(at, -m - 2), x[kBefore - m - 2], x[kBefore - m - 1]);
      if (m < kBlocks) get(f[(m + 1) % 2], t - 32 * (m + 1), f[m % 2][1]);
      AITER_UNROLL
      for (int u = 0; u < kSteps; u++) {
        const Step& v = x[kBefore + u - m];
        float (&y)[4] = sums_[u];
        if (kFirst && m == 0) ToeplitzEngine<T>::mma(f[0], v[0], v[1], y[0], y[1], y[2], y[3], start, start, start, start);
        else ToeplitzEngine<T>::mma(f[m % 2], v[0], v[1], y[0], y[1], y[2], y[3], y[0], y[1], y[2], y[3]);
      }
    }
  }

  int lane_;
  uint32_t zero_;
  float sums_[kSteps][4];
  Step x_[kSteps];  // what fetch has read
#endif
};

// Tile of this engine: own is the place of all channels, key the channel.
template <class T> struct Tile<T, TransposedEngine<T>> {
  T* own;
  int lane, key;

  AITER_DEVICE T* at(int p) const {
    return own + TransposedLayout::at(TransposedLayout::transposed(key, p / 8), key / 8) / int(sizeof(T)) + p % 8;
  }
};
#endif

}  // namespace aiter::conv1d::wide
