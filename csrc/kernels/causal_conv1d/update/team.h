// causal_conv1d_update on the GPU with any number of taps and any strides, positions and states: calls that the decoding kernels refuse.
//
// Tiling: a team of threads has one channel of a sequence, and a thread of it every team-th tap or value. If a channel's values are
// adjacent in memory, neighbouring threads are of one team, otherwise of neighbouring channels:
//
//   values adjacent     tap     0 1 2 3 ... 31 32 ...      channels adjacent   channel  0 1 2 3 ... 31
//                       thread  0 1 2 3 ... 31  0 ...                          tap 0    0 1 2 3 ... 31
//                                                                              tap 1   32 ...       63
// Bytes: x and out once, the state read and written once (of a circular one only the places of x), the weights once for each
// position; what is read again comes from cache. With conv_state_indices each block reads all of them once.
// Reduction: over every team-th tap in a thread's fp32 registers, then over the team, in a fixed order.
#pragma once

#include "../common/state_gpu.h"

namespace aiter::conv1d::update {

constexpr int kTeamThreads = 128;
constexpr int kTeamLoads = 4;  // of a thread, in flight

// TeamPlan is a launch: blocks count tiles of channels of sequences from batch0 and tile0 on.
struct TeamPlan {
  FastDiv tiles;
  int32_t team_bits;
  bool channels_adjacent;
  int64_t batch0;
  uint32_t tile0;
};

// Team is a thread's part of a channel. All threads of a block call its functions together.
template <class T> class Team {
 public:
  AITER_DEVICE Team(const KernelParam<Stateful>& p, const TeamPlan& plan, int64_t tile) : p_(p) {
    const int thread = int(threadIdx.x), channels = kTeamThreads >> plan.team_bits;
    size_ = 1 << plan.team_bits, step_ = plan.channels_adjacent ? channels : 1;
    const int c = plan.channels_adjacent ? thread & (channels - 1) : thread >> plan.team_bits;
    lane_ = plan.channels_adjacent ? thread / channels : thread & (size_ - 1);
    d_ = tile * channels + c, inside_ = d_ < p.dim;
  }

  AITER_DEVICE void clear(const Sequence& s) {
    T* out = reload_kernarg(p_).template outputs<T>(s, d_);
    AITER_ROLLED
    for (int64_t t = lane_; inside_ && t < s.len; t += size_) out[t * p_.out.last] = round_to<T>(0.0f);
  }

  // run computes a sequence and moves its state.
  AITER_DEVICE void run(const Sequence& s, float* shared) {
    AITER_ROLLED
    for (int64_t t = 0; t < s.len; t++) {
      const Stateful& p = reload_kernarg(p_);
      const float sum = total(part(p, s, t), shared);
      if (lane_ > 0 || !inside_) continue;
      const float y = sum + (p.bias.data ? p.bias.get(d_, 0) : 0.0f);
      p.template outputs<T>(s, d_)[t * p.out.last] = round_to<T>(apply_activation(p.silu, y));
    }
    if (p_.cache_seqlens.data) insert(reload_kernarg(p_), s);
    else shift(reload_kernarg(p_), s);
  }

 private:
  // part returns the sum over the thread's taps for position t.
  AITER_DEVICE float part(const Stateful& p, const Sequence& s, int64_t t) {
    const T *x = p.template inputs<T>(s, d_), *slot = p.state.template row<T>(s.slot, d_);
    float sum = 0.0f;
    AITER_ROLLED
    for (int64_t k0 = lane_; inside_ && k0 < p.width; k0 += kTeamLoads * size_) {
      uint32_t weight[kTeamLoads];
      T value[kTeamLoads];
      AITER_UNROLL
      for (int i = 0; i < kTeamLoads; i++) {
        const int64_t k = k0 + i * size_, u = t - (p.width - 1) + k;
        if (k >= p.width) continue;
        value[i] = *(u < 0 ? slot + p.history(s, u) * p.state.last : x + u * p.x.last);
        weight[i] = load_bits(p.weight, d_ * p.weight.first + k * p.weight.last);
      }
      AITER_UNROLL
      for (int i = 0; i < kTeamLoads; i++)
        if (k0 + i * size_ < p.width) sum = fmaf(element_to_float(p.weight.dtype, weight[i]), to_float(value[i]), sum);
    }
    return sum;
  }

  // total returns to a team's first thread the sum over the team.
  AITER_DEVICE float total(float sum, float* shared) {
    if (step_ == 1 || size_ == 1) {
      AITER_ROLLED
      for (int m = 1; m < size_; m <<= 1) sum += shuffle_xor(sum, m);
      return sum;
    }
    shared[threadIdx.x] = sum;
    block_barrier();
    AITER_ROLLED
    for (int i = 1; lane_ == 0 && i < size_; i++) sum += shared[threadIdx.x + i * step_];
    block_barrier();
    return sum;
  }

  // insert writes x to a circular state.
  AITER_DEVICE void insert(const Stateful& p, const Sequence& s) {
    T* slot = p.state.template row<T>(s.slot, d_);
    const T* x = p.template inputs<T>(s, d_);
    const int64_t n = min64(s.len, p.length), first = divmod(s.origin + s.len - n, p.length).remainder;
    AITER_ROLLED
    for (int64_t i = lane_; inside_ && i < n; i += size_) {
      const int64_t at = first + i;
      slot[(at < p.length ? at : at - p.length) * p.state.last] = x[(s.len - n + i) * p.x.last];
    }
  }

  // shift moves a state by the sequence's length and appends x. The loads of a chunk end before its stores; chunks ascend.
  AITER_DEVICE void shift(const Stateful& p, const Sequence& s) {
    T* slot = p.state.template row<T>(s.slot, d_);
    const T* x = p.template inputs<T>(s, d_);
    AITER_ROLLED
    for (int64_t chunk = 0; chunk < p.length; chunk += kTeamLoads * size_) {
      uint32_t bits[kTeamLoads] = {};
      AITER_UNROLL
      for (int i = 0; i < kTeamLoads; i++) {
        const int64_t j = chunk + i * size_ + lane_, u = j + s.len - p.length;
        if (!inside_ || j >= p.length) continue;
        const T v = *(u >= 0 ? x + u * p.x.last : slot + (u + p.length) * p.state.last);
        __builtin_memcpy(&bits[i], &v, sizeof(T));
      }
      AITER_UNROLL
      for (int i = 0; i < kTeamLoads; i++) launder(bits[i]);
      if (size_ > 1) block_barrier();
      AITER_UNROLL
      for (int i = 0; i < kTeamLoads; i++) {
        const int64_t j = chunk + i * size_ + lane_;
        T v;
        __builtin_memcpy(&v, &bits[i], sizeof(T));
        if (inside_ && j < p.length) slot[j * p.state.last] = v;
      }
    }
  }

  const KernelParam<Stateful>& p_;
  int64_t d_;
  int size_, step_, lane_;
  bool inside_;
};

template <class T> __global__ void AITER_LAUNCH_BOUNDS(kTeamThreads, 8)
causal_conv1d_update_team_kernel(KernelParam<Stateful> p, TeamPlan plan) {
  if constexpr (AITER_KERNEL_CODE) {
    __shared__ float shared[kTeamThreads];
    const uint32_t number = plan.tile0 + blockIdx.x, row = plan.tiles.quotient(number);
    const int64_t b = plan.batch0 + row;
    SlotUsers<Stateful> others(reload_kernarg(p));
    Team<T> team(p, plan, number - row * plan.tiles.divisor);
    Sequence s = reload_kernarg(p).sequence(b);
    if (!s.live) return team.clear(s);
    const int64_t slot = s.slot;
    const bool several = others.share_slot(reload_kernarg(p), b, slot);
    if (several && earlier_sequence_has_slot(reload_kernarg(p), b, slot)) return;
    AITER_ROLLED
    for (int64_t i = b;;) {
      team.run(s, shared);
      if (!several) return;
      AITER_ROLLED
      do {
        if (++i == reload_kernarg(p).batch) return;
        s = reload_kernarg(p).sequence(i);
      } while (!s.live || s.slot != slot);
      __syncthreads();  // the state is in memory
    }
  }
}

}  // namespace aiter::conv1d::update
