// Decoding on the GPU with any number of taps: one new position of each sequence, a state whose channels follow each other
// without gaps. The values of a block's channels are one run of memory, which it moves as vectors across channels.
//
// Tiling: a block has C channels of up to 4 sequences, and a thread a vector of 4 values of each sequence at the same places, so
// that the weights are read once for all of them. C is a multiple of 4, such that a vector a thread covers the channels; longer
// states take several chunks of vectors. A vector has values of at most two channels.
//
//   channel   0 0 0 0 0 0 0 | 1 1 1 1 1 1 1 | 2 2 ...     7 values each
//   thread    0 0 0 0 1 1 1   1 2 2 2 2 3 3   3 3 ...     thread 1 has the end of channel 0 and the start of channel 1
//
// A state that shifts is stored at the places where it was read, one value later: a thread also loads the value behind its
// vector, and x follows the end of a channel. All loads of a chunk end before its stores; chunks ascend.
// Bytes: x and out once, the state read and written once (of a circular one only the place of x), the weights once for 4
// sequences, from cache. With conv_state_indices each block reads all of them once.
// Reduction: a vector's products in a thread's fp32 registers, for each of its two channels; these sums through shared memory to
// a channel's team of threads, each of which adds every team-th vector; then over the team. The order is fixed.
#pragma once

#include "decode_gpu.h"

namespace aiter::conv1d::update {

constexpr int kFlatThreads = 128;
constexpr int kFlatVec = 4;        // values of a thread and a sequence
constexpr int kFlatSequences = 4;  // of a block, at most

// FlatPlan is a launch: blocks count tiles of channels of groups of sequences from batch0 and tile0 on.
struct FlatPlan {
  FastDiv tiles, length;
  int32_t channels, team_bits, sequences;  // of a block
  int64_t batch0;
  uint32_t tile0;
};

AITER_DEVICE int least(int a, int b) { return a < b ? a : b; }

// slot_of returns the slot of sequence b, or -1 if the sequence is skipped.
AITER_DEVICE int slot_of(const Stateful& p, int64_t b) {
  if (!p.indices.data) return int(b);
  const int slot = p.indices[b];
  return slot == p.pad || slot < 0 || slot >= p.slots ? -1 : slot;
}

// origin_of returns the place of sequence b's x in a circular state.
AITER_DEVICE int origin_of(const Stateful& p, int64_t b) {
  const int origin = p.cache_seqlens[b] % int(p.length);
  return origin < 0 ? origin + int(p.length) : origin;
}

// FlatVector is the place of a thread's vector in the run of a block's channels.
struct FlatVector {
  int first;    // its first value in the run
  int channel;  // of the first value
  int value;    // the first value's number in its channel
  int end;      // the element that ends the channel; kFlatVec or more: none
  int newest;   // the element whose place x takes; kFlatVec or more: none

  // origin is the place of x in a circular state, or 0 in a state that shifts.
  AITER_DEVICE FlatVector(const FlatPlan& plan, int number, bool circular, int origin) {
    const int length = int(plan.length.divisor);
    first = number * kFlatVec;
    channel = int(plan.length.quotient(uint32_t(first)));
    value = first - channel * length;
    end = length - 1 - value;
    newest = !circular ? end : origin >= value ? origin - value : end + 1 + origin;
  }
  AITER_DEVICE int channel_of(int i) const { return channel + (i > end); }
  AITER_DEVICE int value_of(int i) const { return i > end ? i - end - 1 : value + i; }
};

// FlatTaps is the weights of a vector's values. A value that is older than the filter's reach has none.
class FlatTaps {
 public:
  AITER_DEVICE void load(const Stateful& p, const FlatVector& v, int64_t d0, int origin) {
    dtype_ = p.weight.dtype, used_ = 0;
    int64_t at[kFlatVec];
    AITER_UNROLL
    for (int i = 0; i < kFlatVec; i++) {
      int age = origin - 1 - v.value_of(i);  // 0: the newest value
      if (age < 0) age += int(p.length);
      const int tap = int(p.width) - 2 - age;
      used_ |= int(tap >= 0) << i;
      at[i] = (d0 + v.channel_of(i)) * p.weight.first + (tap > 0 ? tap : 0) * p.weight.last;
    }
    if (dtype_ == DType::F32) cold_branch(), load_bits_at<uint32_t>(p, at);
    else load_bits_at<uint16_t>(p, at);
  }

  // add adds the product of element i to sum.
  AITER_DEVICE float add(int i, float value, float sum) const {
    return used_ >> i & 1 ? fmaf(element_to_float(dtype_, bits_[i]), value, sum) : sum;
  }

 private:
  template <class U> AITER_DEVICE void load_bits_at(const Stateful& p, const int64_t (&at)[kFlatVec]) {
    AITER_UNROLL
    for (int i = 0; i < kFlatVec; i++) bits_[i] = load_readonly_element(static_cast<const U*>(p.weight.data) + at[i]);
  }

  uint32_t bits_[kFlatVec];
  int used_;
  DType dtype_;
};

// FlatValues is a thread's values of one sequence.
template <class T> class FlatValues {
 public:
  // load issues the loads. place is that of the vector in the state, x that of the block's first channel.
  AITER_DEVICE void load(const FlatVector& v, const T* place, const T* x, int64_t x_dim, bool shifts) {
    values_ = load_vec<T, kFlatVec>(place);
    if (shifts && v.end != kFlatVec - 1) behind_ = place[kFlatVec];
    if (v.newest < kFlatVec) x_ = load_readonly_element(x + v.channel_of(v.newest) * x_dim);
  }
  AITER_DEVICE void clear() { values_.clear(); }

  // sums returns the sums of products in the vector's first and second channel.
  AITER_DEVICE void sums(const FlatVector& v, const FlatTaps& taps, float* first, float* second) const {
    float sum = 0.0f;
    *first = 0.0f;
    AITER_UNROLL
    for (int i = 0; i < kFlatVec; i++) {
      sum = taps.add(i, values_.value(i), sum);
      if (i == v.end) *first = sum, sum = 0.0f;
    }
    if (v.end >= kFlatVec) *first = sum;
    *second = sum;
  }

  // shift makes each value the one behind it, and x the newest. The loads end here.
  AITER_DEVICE void shift(const FlatVector& v) {
    Vec<T, kFlatVec> next;
    next.clear();
    AITER_UNROLL
    for (int i = 0; i < kFlatVec; i++) next.set(i, i == v.end ? x_ : i + 1 < kFlatVec ? values_.get(i + 1) : behind_);
    AITER_UNROLL
    for (int i = 0; i < next.kWords; i++) launder(next.word[i]);
    values_ = next;
  }

  AITER_DEVICE void store(const FlatVector& v, T* place, bool shifts) const {
    if (shifts) store_vec(place, values_);
    else if (v.newest < kFlatVec) place[v.newest] = x_;
  }

 private:
  Vec<T, kFlatVec> values_;
  T behind_{}, x_{};
};

// FlatShared is a block's shared memory.
struct FlatShared {
  float sums[kFlatSequences][kFlatThreads][2];
  int shares[kFlatSequences];  // another sequence of the batch names this one's slot
};

// find_shared_slots sets shared->shares for the block's sequences, from b on. All threads of the block call it.
AITER_DEVICE void find_shared_slots(const Stateful& p, int64_t b, const int (&slot)[kFlatSequences], FlatShared* shared) {
  if (threadIdx.x < kFlatSequences) shared->shares[threadIdx.x] = 0;
  block_barrier();
  if (!p.indices.data) return;
  AITER_ROLLED
  for (int64_t i = threadIdx.x; i < p.batch; i += kFlatThreads) {
    const int32_t other = p.indices[i];
    AITER_UNROLL
    for (int r = 0; r < kFlatSequences; r++)
      if (other == slot[r] && i != b + r) shared->shares[r] = 1;
  }
}

// run_flat computes sequences b to b + n - 1 for the channels from d0 on and moves their states. alone: the caller knows that it may;
// otherwise sequences that share a slot are left out.
template <class T>
AITER_DEVICE void run_flat(const KernelParam<Stateful>& a, const FlatPlan& plan, int64_t b, int n, int d0, bool alone, FlatShared* shared) {
  const Stateful& p = reload_kernarg(a);
  const bool shifts = !p.cache_seqlens.data;
  const int origin = shifts ? 0 : origin_of(p, b);  // of a circular state: n is 1
  const int length = int(p.length), dim = int(p.dim), channels = least(plan.channels, dim - d0), vectors = channels * length / kFlatVec;
  const int team = 1 << plan.team_bits, lane = int(threadIdx.x) & (team - 1), c = int(threadIdx.x) >> plan.team_bits;
  const bool closes = lane == 0 && c < channels;
  const uint32_t weight = closes ? load_bits(p.weight, (d0 + c) * p.weight.first + (p.width - 1) * p.weight.last) : 0;
  const uint32_t bias = closes && p.bias.data ? load_bits(p.bias, (d0 + c) * p.bias.first) : 0;
  int slot[kFlatSequences];
  float sum[kFlatSequences];
  T newest[kFlatSequences];
  AITER_UNROLL
  for (int r = 0; r < kFlatSequences; r++) {
    slot[r] = r < n ? slot_of(p, b + r) : -1;
    launder(slot[r]);  // scalar registers are scarce
    sum[r] = 0.0f;
    if (closes && r < n) newest[r] = load_readonly_element(p.x.row<T>(b + r, d0 + c));
  }
  AITER_ROLLED
  for (int chunk = 0; chunk < vectors; chunk += kFlatThreads) {
    const bool inside = chunk + int(threadIdx.x) < vectors;
    const FlatVector v(plan, inside ? chunk + int(threadIdx.x) : 0, !shifts, origin);
    FlatValues<T> values[kFlatSequences];
    FlatTaps taps;
    const int64_t at = int64_t(d0) * length + v.first;
    AITER_UNROLL
    for (int r = 0; r < kFlatSequences; r++) {
      const Stateful& q = reload_kernarg(a);
      values[r].clear();
      if (inside && slot[r] >= 0) values[r].load(v, q.state.row<T>(slot[r], 0) + at, q.x.row<T>(b + r, d0), q.x.dim, shifts);
    }
    taps.load(reload_kernarg(a), v, d0, origin);
    if (!alone && chunk == 0) find_shared_slots(reload_kernarg(a), b, slot, shared);
    AITER_UNROLL
    for (int r = 0; r < kFlatSequences; r++) {
      if (r >= n) continue;
      float* const sums = shared->sums[r][threadIdx.x];
      values[r].sums(v, taps, &sums[0], &sums[1]);
      if (shifts) values[r].shift(v);
    }
    block_barrier();
    AITER_UNROLL
    for (int r = 0; r < kFlatSequences; r++)
      if (inside && slot[r] >= 0 && (alone || !shared->shares[r])) values[r].store(v, reload_kernarg(a).state.template row<T>(slot[r], 0) + at, shifts);
    const int from = c * length, first = -least(-(from / kFlatVec), -chunk);
    const int last = least((from + length - 1) / kFlatVec, chunk + kFlatThreads - 1);
    if (c < channels) {
      AITER_ROLLED
      for (int i = first + lane; i <= last; i += team) {
        AITER_UNROLL
        for (int r = 0; r < kFlatSequences; r++) sum[r] += shared->sums[r][i - chunk][i * kFlatVec < from];
      }
    }
    if (chunk + kFlatThreads < vectors) block_barrier();
  }
  AITER_ROLLED
  for (int m = 1; m < team; m <<= 1) {
    AITER_UNROLL
    for (int r = 0; r < kFlatSequences; r++) sum[r] += shuffle_xor(sum[r], m);
  }
  if (!closes) return;
  AITER_UNROLL
  for (int r = 0; r < kFlatSequences; r++) {
    if (r >= n || (slot[r] >= 0 && !alone && shared->shares[r])) continue;
    const Stateful& q = reload_kernarg(a);
    const float y = fmaf(element_to_float(q.weight.dtype, weight), to_float(newest[r]), sum[r]) + element_to_float(q.bias.dtype, bias);
    *q.out.row<T>(b + r, d0 + c) = round_to<T>(slot[r] >= 0 ? apply_activation(q.silu, y) : 0.0f);
  }
}

template <class T> __global__ void AITER_LAUNCH_BOUNDS(kFlatThreads, 8)
causal_conv1d_update_flat_kernel(KernelParam<Stateful> p, FlatPlan plan) {
  if constexpr (kDeviceCode) {
    __shared__ FlatShared shared;
    const uint32_t number = plan.tile0 + blockIdx.x, group = plan.tiles.quotient(number);
    const int64_t b0 = plan.batch0 + int64_t(group) * plan.sequences;
    const int n = int(min64(plan.sequences, p.batch - b0)), d0 = int(number - group * plan.tiles.divisor) * plan.channels;
    int64_t b = b0;
    int count = n, r = 0;
    bool alone = false;
    AITER_ROLLED
    for (;;) {
      run_flat<T>(p, plan, b, count, d0, alone, &shared);
      if (!p.indices.data) return;
      __syncthreads();
      // Of the sequences that share a slot, the block of the first computes all, in order.
      if (alone) b = next_with_slot(p, slot_of(p, b), b + 1, p.batch);
      AITER_ROLLED
      while (!alone || b == p.batch) {
        if (r == n) return;
        b = b0 + r++;
        const int slot = slot_of(p, b);
        alone = slot >= 0 && shared.shares[r - 1] && next_with_slot(p, slot, 0, b) == b;
      }
      count = 1;
    }
  }
}

}  // namespace aiter::conv1d::update
