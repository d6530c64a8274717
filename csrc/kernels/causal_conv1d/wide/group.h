// The sums of a wide filter by a group of four warps, which multiplies with wgmma (sm_90a).
//
// The formulation is that of ToeplitzEngine (wide/toeplitz.h), with outputs and columns exchanged: the left factor is a Toeplitz
// matrix of taps, the right one x in shared memory, which the matrix cores read there. A span is 64 columns of 64 positions. The outputs
// of all columns are
//
//   Y = sum over s of A_s X_s,   A_s[i][k] = w[W-1 - (16 s - 48 + i - k)], 0 outside of the filter,   X_s[k] = x[48 - 16 s + k]
//
// X_s of negative positions is the end of the column before: the same lines of shared memory, one line earlier. Warp w has outputs
// 16 w to 16 w + 15 of each column. Its part of A_s is T_(s+w-3) of ToeplitzEngine.
#pragma once

#include <aiter/gpu/barrier.h>
#include <aiter/gpu/wgmma.h>

#include "toeplitz.h"

namespace aiter::conv1d::wide {

constexpr int kGroupThreads = 128;
constexpr int kGroupPad = 96;  // zeros in front of the taps; 64 behind them

// group_steps returns the number of products; group_halo the columns in front of a span that they read; group_pitch the elements between
// two copies of a filter of `taps` taps.
AITER_SHARED constexpr int group_steps(unsigned taps) { return int((taps + 78) / 16); }
AITER_SHARED constexpr int group_halo(unsigned taps) { return int((taps + 62) / 16 / 4); }
AITER_SHARED constexpr int group_pitch(unsigned taps) { return int((taps + kGroupPad + 64 + 63) / 64 * 64 + 32); }

#if AITER_WGMMA
// group_thread returns a thread's number in its group, and group_barrier<i> waits for the threads of group i of a block.
AITER_DEVICE int group_thread() { return int(threadIdx.x) % kGroupThreads; }
template <int kGroup> AITER_DEVICE void group_barrier() { named_barrier(kGroup, kGroupThreads); }

// GroupEngine multiplies kN columns, some of which may be unused. In float16 taps are of x's type: it does not scale them.
template <class T, int kN> class GroupEngine {
 public:
  static constexpr int kColumn = 64, kPitch = 64, kLanes = kGroupThreads;  // of a tile
  static constexpr int kCopies = 2, kMost = kMaxTaps / kGroupThreads;     // taps of a thread

  AITER_DEVICE explicit GroupEngine(char* memory) : taps_(reinterpret_cast<T*>(memory)) {}

  // Fetched is a thread's part of a channel's taps and bias, as loaded. Conversions would wait for the loads.
  struct Fetched {
    uint32_t taps[kMost], bias;
  };

  // fetch starts to read the taps of channel d, and set_taps stores them.
  static AITER_DEVICE void fetch(const Problem& p, int64_t d, int count, Fetched& f) {
    const TapReader taps(p, d, p.width - count);
    if (taps.dtype == DType::F32) fetch_taps<Bits32>(taps, count, f);
    else fetch_taps<Bits16>(taps, count, f);
    f.bias = read_bias_bits(p, d);
  }
  AITER_DEVICE void set_taps(const Problem& p, int count, bool split, const Fetched& f) {
    const int thread = int(threadIdx.x);
    count_ = count, parts_ = split ? 2 : 1;
    start_ = element_to_float(p.bias.dtype, f.bias);
    set_tap(p, thread, thread < count, f.taps[0]);
    if (count > kLanes) {
      AITER_UNROLL
      for (int k = 1; k < kMost; k++) set_tap(p, thread + k * kLanes, thread + k * kLanes < count, f.taps[k]);
    }
    T zero{};
    for (int part = 0; part < parts_; part++) {
      if (thread < kGroupPad) set_bits(part, thread - kGroupPad, zero);
      if (thread >= kLanes - 64) set_bits(part, count + thread - (kLanes - 64), zero);
    }
  }

  // multiply sets the sums to the bias and the products. own is the address of column 0.
  AITER_DEVICE void multiply(uint32_t own) {
    AITER_UNROLL
    for (float& sum : sums_) sum = start_;
    for (int part = 0; part < (kIsBf16<T> ? parts_ : 1); part++) add(own, part);
  }

  // store writes result(v) of each sum v to the columns of kRows rows, every `pitch` columns `columns` of them, and reports whether all
  // are finite.
  template <int kRows, int kColumns, int kRowPitch, class Result> AITER_DEVICE bool store(uint32_t own, Result result) {
    NonFinite<T> found;
    const int lane = int(threadIdx.x) & 31, warp = int(threadIdx.x) >> 5, line = lane & 7;
    const uint32_t to = own + uint32_t(((lane >> 4) * 8 + line) * 128 + ((2 * warp + (lane >> 3 & 1)) ^ line) * 16);
    AITER_UNROLL
    for (int r = 0; r < kRows; r++) {
      AITER_UNROLL
      for (int c = 0; c < kColumns; c += 16) {  // 16 columns: a lane has outputs g and g+8 of columns 2t, 2t+1, 2t+8, 2t+9
        const int column = r * kRowPitch + c;
        uint32_t word[4];
        AITER_UNROLL
        for (int i = 0; i < 4; i++) {
          const float* y = &sums_[column / 2 + 2 * i];
          word[i] = pack_pair<T>(result(y[0]), result(y[1]));
          found.check(word[i]);
        }
        store_matrices<true>(to + uint32_t(column * 128), word);
      }
    }
    return !found;
  }

 private:
  template <class Bits> static AITER_DEVICE void fetch_taps(const TapReader& taps, int count, Fetched& f) {
    const int thread = int(threadIdx.x);
    const auto* from = (GlobalPtr<const Bits>)(taps.data) + thread * taps.step;
    f.taps[0] = thread < count ? uint32_t(*from) : 0;
    AITER_UNROLL
    for (int k = 1; k < kMost; k++) f.taps[k] = 0;
    if (count <= kLanes) return;
    AITER_UNROLL
    for (int k = 1; k < kMost; k++) {
      from += kLanes * taps.step;
      if (thread + k * kLanes < count) f.taps[k] = *from;
    }
  }

  // set_tap writes tap i, if it exists, to all copies of the filter.
  AITER_DEVICE void set_tap(const Problem& p, int i, bool exists, uint32_t bits) const {
    if (!exists) return;
    if (parts_ == 1) return set_bits(0, i, T{uint16_t(bits)});
    const float w = element_to_float(p.weight.dtype, bits);
    const T high = round_to<T>(w);
    set_bits(0, i, high), set_bits(1, i, round_to<T>(w - to_float(high)));
  }
  AITER_DEVICE void set_bits(int part, int i, T v) const {
    T* const to = taps_ + part * kCopies * group_pitch(count_) + kGroupPad + i;
    set_shared(to, v);
    if (i > -kGroupPad) set_shared(to + group_pitch(count_) - 1, v);
  }

  // A lane has these parts of A_s: the pairs of taps 0, -8 and 8 apart from W-1 - 16 (s+w-3) - g + 2t, the first one twice. The pair 8
  // apart is the one -8 apart of the product before, and is read again nevertheless. ptxas does not find that a product runs from one
  // iteration of a loop to the next: a copy of that pair would share a register with a pair that is read while the product runs.
  using Factor = uint32_t[4];
  static AITER_DEVICE uint32_t pair(uint32_t t) { return load_shared<Words<1>>(t).word[0]; }
  static AITER_DEVICE void get(Factor& f, uint32_t t) {
    const uint32_t near = pair(t + 16), middle = pair(t), far = pair(t - 16);
    wgmma_copy(f[0], middle), wgmma_copy(f[1], far), wgmma_copy(f[2], near), wgmma_copy(f[3], middle);
  }

  AITER_DEVICE void start(const Factor& f, uint32_t x) {
    wgmma_start();
    wgmma<T, kN>(f, wgmma_columns(x), sums_);
    wgmma_commit();
  }

  AITER_DEVICE void add(uint32_t own, int part) {
    const int lane = int(threadIdx.x) & 31, warp = int(threadIdx.x) >> 5, pitch = group_pitch(count_);
    const int c = count_ - 1 - (lane >> 2) + 2 * (lane & 3) + kGroupPad, odd = c & 1;
    uint32_t t = shared_address(taps_ + (part * kCopies + odd) * pitch + (c - odd)) + uint32_t(32 * (3 - warp)), x = own + 96;
    const uint32_t last = x - uint32_t(group_steps(count_) - 1) * 32;
    hold_sums();
    Factor even, next;
    get(even, t);
    for (start(even, x); x != last;) {  // while a product runs, its successor's taps are read
      get(next, t - 32);
      start(next, x - 32);
      wgmma_wait<1>();
      if (x - 32 == last) break;
      t -= 64, x -= 64;
      get(even, t);
      start(even, x);
      wgmma_wait<1>();
    }
    wgmma_wait<0>();
    hold_sums();
  }

  // hold_sums keeps what uses the sums on its side: ptxas would move copies of them to where products run, and wait for these.
  AITER_DEVICE void hold_sums() {
    AITER_UNROLL
    for (float& sum : sums_) asm volatile("" : "+f"(sum)::"memory");
  }

  T* taps_;
  int count_ = 0, parts_ = 1;
  float start_ = 0.0f;  // what sums start from
  float sums_[kN / 2];
};
#endif

}  // namespace aiter::conv1d::wide
