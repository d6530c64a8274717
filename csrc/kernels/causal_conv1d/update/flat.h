// Decoding on the GPU with any number of taps: one new position of each sequence, a state whose channels follow each other
// without gaps. The values of a block's channels are one run of memory, which it moves as vectors across channels.
//
// Tiling: a block has C channels of up to 4 sequences, and a thread a vector of R values (16 bytes) of each sequence at the same
// places, so that the weights are read once for all of them. C is a multiple of R, such that a vector a thread covers the channels;
// longer states take several chunks of vectors. A vector has values of at most two channels.
//
//   channel   0 0 0 0 0 0 0 | 1 1 1 1 1 1 1 | 2 2 ...     7 values each, float32
//   thread    0 0 0 0 1 1 1   1 2 2 2 2 3 3   3 3 ...     thread 1 has the end of channel 0 and the start of channel 1
//
// A state that shifts is stored at the places where it was read, one value later: a thread also loads the value behind its
// vector, and x follows the end of a channel. All loads of a chunk end before its stores; chunks ascend.
// Bytes: x and out once, the state read and written once (of a circular one only the place of x), the weights once for 4
// sequences, from cache. With conv_state_indices each block reads all of them once.
// Reduction: a vector's products in a thread's fp32 registers, for each of its two channels; these sums through shared memory to
// a channel's team of threads, each of which adds every team-th vector; then over the team. The order is fixed.
#pragma once

#include "decode.h"

namespace aiter::conv1d::update {

constexpr int kFlatThreads = 128;
constexpr int kFlatSequences = 4;  // of a block, at most
template <class T> constexpr int kFlatResident = sizeof(T) == 4 ? 8 : 6;  // blocks of an NVIDIA multiprocessor: as many as do not spill

// FlatPlan is a launch: blocks count tiles of channels of groups of sequences from batch0 and tile0 on.
struct FlatPlan {
  FastDiv tiles, length;
  int32_t channels, team_bits, sequences;  // of a block
  int64_t batch0;
  uint32_t tile0;
};

AITER_DEVICE int least(int a, int b) { return a < b ? a : b; }

// slot_of returns the slot of sequence b, or -1 if the sequence is skipped.
AITER_DEVICE int slot_of(const Stateful& p, int b) {
  if (!p.indices.data) return b;
  const int slot = p.indices[b];
  return slot == p.pad || slot < 0 || slot >= p.slots ? -1 : slot;
}

// origin_of returns the place of sequence b's x in a circular state.
AITER_DEVICE int origin_of(const Stateful& p, int b) {
  const int origin = p.cache_seqlens[b] % int(p.length);
  return origin < 0 ? origin + int(p.length) : origin;
}

// FlatVector is the place of a thread's vector in the run of a block's channels.
struct FlatVector {
  int first;    // its first value in the run
  int channel;  // of the first value
  int value;    // the first value's number in its channel
  int end;      // the element that ends the channel; outside of the vector: none
  int newest;   // the element whose place x takes; outside of the vector: none
  bool closed;  // the second channel ends with the vector

  // origin is the place of x in a circular state, or 0 in a state that shifts.
  AITER_DEVICE FlatVector(const FlatPlan& plan, int place, int size, bool circular, int origin) {
    const int length = int(plan.length.divisor);
    first = place;
    channel = int(plan.length.quotient(uint32_t(first)));
    value = first - channel * length;
    end = length - 1 - value;
    newest = !circular ? end : origin >= value ? origin - value : end + 1 + origin;
    closed = end + length == size - 1;
  }
  AITER_DEVICE int channel_of(int i) const { return channel + (i > end); }
  AITER_DEVICE int value_of(int i) const { return i > end ? i - end - 1 : value + i; }
};

// FlatTaps is the weights of a vector's values. A value that is older than the filter's reach has none.
template <class T> class FlatTaps {
  static constexpr int kVec = kVecElems<T>;

 public:
  AITER_DEVICE void load(const Stateful& p, const FlatVector& v, int d0, int origin) {
    used_.clear();
    int at[kVec];
    AITER_UNROLL
    for (int i = 0; i < kVec; i++) {
      // Age 0 is the newest value.
      const int age = origin - 1 - v.value_of(i), tap = int(p.width) - 2 - (age < 0 ? age + int(p.length) : age);
      if (tap >= 0) used_.word[i / kWordElems<T>] |= (sizeof(T) == 4 ? 0xffffffffu : 0xffffu) << (i % kWordElems<T> * 16);
      at[i] = v.channel_of(i) * int(p.weight.first) + (tap > 0 ? tap : 0) * int(p.weight.last);
    }
    const int64_t base = d0 * p.weight.first;
    if (p.weight.dtype == DType::F32) cold_branch(), load_bits_at<uint32_t>(p, base, at);
    else load_bits_at<uint16_t>(p, base, at);
    AITER_UNROLL
    for (int i = 0; i < kVec; i++) weight_[i] = element_to_float(p.weight.dtype, bits_[i]);
  }

  // sums returns the sums of products in the vector's first and second channel.
  AITER_DEVICE void sums(const FlatVector& v, Vec<T, kVec> values, float* first, float* second) const {
    AITER_UNROLL
    for (int i = 0; i < values.kWords; i++) values.word[i] &= used_.word[i];
    int end = v.end;
    if (kVec > 4) launder(end);  // a comparison for each use: there are not enough registers to keep them all
    float sum = 0.0f;
    *first = 0.0f;
    AITER_UNROLL
    for (int i = 0; i < kVec; i++) {
      sum = fmaf(weight_[i], values.value(i), sum);
      if (i == end) *first = sum, sum = 0.0f;
    }
    if (end >= kVec) *first = sum;
    *second = sum;
  }

 private:
  template <class U> AITER_DEVICE void load_bits_at(const Stateful& p, int64_t base, const int (&at)[kVec]) {
    AITER_UNROLL
    for (int i = 0; i < kVec; i++) bits_[i] = load_readonly_element(static_cast<const U*>(p.weight.data) + base + at[i]);
  }

  Vec<T, kVec> used_;  // the bits of the values that have a weight; the others have the weight of tap 0
  uint32_t bits_[kVec];
  float weight_[kVec];
};

// FlatValues is a thread's values of one sequence.
template <class T> class FlatValues {
  static constexpr int kVec = kVecElems<T>;

 public:
  // load issues the loads. place is that of the vector in the state, x that of the channel that `newest` is of.
  AITER_DEVICE void load(const FlatVector& v, const T* place, const T* x, int64_t x_dim, bool shifts) {
    values = load_vec<T, kVec>(place);
    if (shifts && v.end != kVec - 1) behind_ = v.closed ? x[x_dim] : place[kVec];
    if (v.newest < kVec) x_ = load_readonly_element(x);
  }

  // shift makes each value the one behind it, and x the newest. The loads end here.
  AITER_DEVICE void shift(const FlatVector& v) {
    constexpr int kEach = kWordElems<T>;
    uint32_t x = 0, behind = 0;
    __builtin_memcpy(&x, &x_, sizeof(T)), __builtin_memcpy(&behind, &behind_, sizeof(T));
    if (kEach == 2) x |= x << 16;
    AITER_UNROLL
    for (int i = 0; i < values.kWords; i++) {
      const uint32_t next = i + 1 < values.kWords ? values.word[i + 1] : behind;
      const uint32_t word = kEach == 1 ? next : values.word[i] >> 16 | next << 16;
      const int at = v.end - i * kEach;
      const uint32_t mask = kEach == 1 ? (at == 0 ? 0xffffffffu : 0) : at == 0 ? 0xffffu : at == 1 ? 0xffff0000u : 0;
      values.word[i] = (word & ~mask) | (x & mask);
      launder(values.word[i]);
    }
  }

  AITER_DEVICE void store(const FlatVector& v, T* place, bool shifts) const {
    if (shifts) store_vec(place, values);
    else if (v.newest < kVec) place[v.newest] = x_;
  }

  Vec<T, kVec> values;

 private:
  T behind_{}, x_{};
};

// FlatShared is a block's shared memory.
struct FlatShared {
  float sums[kFlatSequences][kFlatThreads][2];
  int shares[kFlatSequences];  // another sequence of the batch names this one's slot
};

// find_shared_slots sets shared->shares for the block's sequences, from b on. All threads of the block call it.
AITER_DEVICE void find_shared_slots(const Stateful& p, int b, const int (&slot)[kFlatSequences], FlatShared* shared) {
  if (threadIdx.x < kFlatSequences) shared->shares[threadIdx.x] = 0;
  block_barrier();
  if (!p.indices.data) return;
  AITER_ROLLED
  for (int i = threadIdx.x; i < int(p.batch); i += kFlatThreads) {
    const int32_t other = p.indices[i];
    AITER_UNROLL
    for (int r = 0; r < kFlatSequences; r++)
      if (other == slot[r] && i != b + r) shared->shares[r] = 1;
  }
}

// finish writes the output of a sequence, from the sum over its state, or 0 if it is skipped.
template <class T> AITER_DEVICE void finish(const Stateful& p, int64_t b, int64_t d, float sum, bool live) {
  float y = fmaf(p.weight.get(d, p.width - 1), to_float(*p.x.row<T>(b, d)), sum);
  if (p.bias.data) y += p.bias.get(d, 0);
  *p.out.row<T>(b, d) = round_to<T>(live ? apply_activation(p.silu, y) : 0.0f);
}

// run_flat computes sequences b to b + n - 1 for the channels from d0 on and moves their states. alone: no other thread computes
// sequences of these slots; otherwise sequences that share a slot are left out.
template <class T>
AITER_DEVICE void run_flat(const KernelParam<Stateful>& a, const FlatPlan& plan, int b, int n, int d0, bool alone, FlatShared* shared) {
  constexpr int kVec = kVecElems<T>;
  const Stateful& p = reload_kernarg(a);
  const bool shifts = !p.cache_seqlens.data;
  const int origin = shifts ? 0 : origin_of(p, b);  // of a circular state: n is 1
  const int length = int(p.length), channels = least(plan.channels, int(p.dim) - d0), vectors = channels * length / kVec;
  const int team = 1 << plan.team_bits, lane = int(threadIdx.x) & (team - 1), c = int(threadIdx.x) >> plan.team_bits;
  int slot[kFlatSequences];
  float sum[kFlatSequences];
  AITER_UNROLL
  for (int r = 0; r < kFlatSequences; r++) {
    slot[r] = r < n ? slot_of(p, b + r) : -1;
    launder(slot[r]);  // scalar registers are scarce
    sum[r] = 0.0f;
  }
  AITER_ROLLED
  for (int chunk = 0; chunk < vectors; chunk += kFlatThreads) {
    const bool inside = chunk + int(threadIdx.x) < vectors;
    const FlatVector v(plan, inside ? (chunk + int(threadIdx.x)) * kVec : 0, kVec, !shifts, origin);
    FlatValues<T> values[kFlatSequences];
    FlatTaps<T> taps;
    T* state = static_cast<T*>(reload_kernarg(a).state.data) + int64_t(d0) * length + v.first;
    const T* x = reload_kernarg(a).x.template row<T>(b, d0 + v.channel_of(v.newest));
    AITER_UNROLL
    for (int r = 0; r < kFlatSequences; r++) {
      values[r].values.clear();
      if (inside && slot[r] >= 0) values[r].load(v, state + slot[r] * reload_kernarg(a).state.batch, x, reload_kernarg(a).x.dim, shifts);
      x += reload_kernarg(a).x.batch;
    }
    taps.load(reload_kernarg(a), v, d0, origin);
    if (!alone && chunk == 0) find_shared_slots(reload_kernarg(a), b, slot, shared);
    AITER_UNROLL
    for (int r = 0; r < kFlatSequences; r++) {
      if (r >= n) continue;
      float* const sums = shared->sums[r][threadIdx.x];
      taps.sums(v, values[r].values, &sums[0], &sums[1]);
      if (shifts) values[r].shift(v);
    }
    block_barrier();
    AITER_UNROLL
    for (int r = 0; r < kFlatSequences; r++)
      if (inside && slot[r] >= 0 && (alone || !shared->shares[r])) {
        values[r].store(v, state + slot[r] * reload_kernarg(a).state.batch, shifts);
      }
    const int from = c * length, first = -least(-(from / kVec), -chunk);
    const int last = c < channels ? least((from + length - 1) / kVec, chunk + kFlatThreads - 1) : -1;
    AITER_ROLLED
    for (int i = first + lane; i <= last; i += team) {
      AITER_UNROLL
      for (int r = 0; r < kFlatSequences; r++) sum[r] += shared->sums[r][i - chunk][i * kVec < from];
    }
    if (chunk + kFlatThreads < vectors) block_barrier();
  }
  AITER_ROLLED
  for (int m = 1; m < team; m <<= 1) {
    AITER_UNROLL
    for (int r = 0; r < kFlatSequences; r++) sum[r] += shuffle_xor(sum[r], m);
  }
  // Each thread of a team finishes a sequence.
  AITER_ROLLED
  for (int r = lane; r < n && c < channels; r += team) {
    float y = sum[0];
    int place = slot[0];
    AITER_UNROLL
    for (int i = 1; i < kFlatSequences; i++) y = r == i ? sum[i] : y, place = r == i ? slot[i] : place;
    if (place >= 0 && !alone && shared->shares[r]) continue;
    finish<T>(reload_kernarg(a), b + r, d0 + c, y, place >= 0);
  }
}

template <class T> __global__ void AITER_LAUNCH_BOUNDS(kFlatThreads, kFlatResident<T>)
causal_conv1d_update_flat_kernel(KernelParam<Stateful> p, KernelParam<FlatPlan, KernelParam<Stateful>> a) {
  if constexpr (AITER_KERNEL_CODE) {
    __shared__ FlatShared shared;
    const FlatPlan& plan = reload_kernarg(a);
    const uint32_t number = plan.tile0 + blockIdx.x, group = plan.tiles.quotient(number);
    const int b0 = int(plan.batch0) + int(group) * plan.sequences, d0 = int(number - group * plan.tiles.divisor) * plan.channels;
    const int n = least(plan.sequences, int(p.batch) - b0);
    int b = b0, count = n, r = 0;
    bool alone = false;
    AITER_ROLLED
    for (;;) {
      run_flat<T>(p, reload_kernarg(a), b, count, d0, alone, &shared);
      if (!reload_kernarg(p).indices.data) return;
      __syncthreads();
      // Of the sequences that share a slot, the block of the first computes all, in order.
      if (alone) b = next_with_slot(reload_kernarg(p), slot_of(reload_kernarg(p), b), b + 1, int(p.batch));
      AITER_ROLLED
      while (!alone || b == int(p.batch)) {
        if (r == n) return;
        b = b0 + r++;
        const int slot = slot_of(reload_kernarg(p), b);
        alone = slot >= 0 && shared.shares[r - 1] && next_with_slot(reload_kernarg(p), slot, 0, b) == b;
      }
      count = 1;
    }
  }
}

}  // namespace aiter::conv1d::update
