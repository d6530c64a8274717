// Serving updates of up to four tokens a sequence on the GPU: packed filters of 2 to 4 taps, adjacent channels, x, out and states of
// one type in aligned vectors. Offsets are products of 32-bit numbers: at this size instructions and their loads take longer than the
// data.
//
// Tiling: a block has 64 or 128 threads of one sequence, a thread C adjacent channels and all tokens. The loads of the filter, the
// indices and x are in flight together, then those of the state. With PDL the first blocks read their indices before the previous kernel
// has ended, as a guess: all loads are in flight together, from the L2 cache, and those of the state are repeated if the guess is wrong.
// Bytes: x and out once; of a state what is read and what is kept; the taps once a sequence, from cache. With shared slots each block reads
// all indices once.
// Reduction: over the width, in one thread's fp32 registers, the oldest value first.
#pragma once

#include "../common/filter_gpu.h"
#include "../common/served.h"
#include "../common/state_gpu.h"
#include "index.h"

namespace aiter::conv1d::serve {

// ByteArray is elements whose distance is `stride` bytes.
struct ByteArray {
  const void* data;
  uint32_t stride;
};

AITER_DEVICE char* byte_at(const void* p, uint32_t i, uint32_t stride) {
  return static_cast<char*>(const_cast<void*>(p)) + uint64_t(i) * stride;
}

// FewParams is the parameters of a launch. Strides in bytes.
struct FewParams {
  const void* x;
  void* state;
  void* out[3];  // channel 0 of x in each output
  ByteArray slots, accepted;  // data may be null
  uint32_t x_batch, x_last, state_batch, state_last;
  uint32_t out_batch[3], out_last[3];
  FastDiv chunks;
  int32_t ends[2], dim, batch, tokens, slot_count, pad, most_accepted;
  int32_t width;  // at most 4
  bool slots_int64, accepted_int64, silu, clears;
  Array2 weight, bias;  // in elements; bias.data may be null
  uint32_t early;       // the first blocks, which guess their slots
};

// FewSlots is the slots of the sequences, for SlotUsers.
struct FewSlots {
  struct Column {
    ByteArray array;
    const void* data;
    AITER_DEVICE int32_t operator[](int64_t i) const {
      return *reinterpret_cast<const int32_t*>(byte_at(array.data, uint32_t(i), array.stride));
    }
    AITER_DEVICE bool packed() const { return array.stride == sizeof(int32_t) && is_aligned(data, 16); }
  } indices;
  int32_t batch;

  AITER_DEVICE explicit FewSlots(const FewParams& a) : indices{a.slots, a.slots.data}, batch(a.batch) {}
};

// FewSlot is the slot of a sequence. Its loads are in flight after the constructor.
class FewSlot {
 public:
  // accepts: the call may have num_accepted_tokens.
  AITER_DEVICE FewSlot(const FewParams& a, uint32_t b, bool accepts)
      : slot_(a.slots.data != nullptr, a.slots_int64, byte_at(a.slots.data, b, a.slots.stride)),
        accepted_(accepts && a.accepted.data, a.accepted_int64, byte_at(a.accepted.data, b, a.accepted.stride)) {}

  // get returns the slot, or -1 for a sequence that is skipped, and the place of its oldest value.
  AITER_DEVICE int get(const FewParams& a, uint32_t b, bool accepts, uint32_t* first) const {
    int slot = int(b), n = 0;
    bool live = true;
    if (a.slots.data) live = slot_.fits(&slot) && uint32_t(slot) < uint32_t(a.slot_count) && slot != a.pad;
    *first = 0;
    if (accepts && a.accepted.data) {
      live = live && accepted_.fits(&n) && uint32_t(n - 1) < uint32_t(a.most_accepted);
      *first = uint32_t(n - 1);
    }
    return live ? slot : -1;
  }

 private:
  IndexBits slot_, accepted_;
};

// FewGuess is what FewSlot::get returns, as it is before pdl_wait. Later blocks have none: the previous kernel has ended when they start.
struct FewGuess {
  int slot = -1;
  uint32_t first = 0;

  // guesses: whether a block guesses at all.
  AITER_DEVICE FewGuess(const FewParams& a, uint32_t b, bool accepts, bool guesses) {
    if (!guesses || blockIdx.x >= a.early) return;
    slot = a.slots.data ? int(peek(byte_at(a.slots.data, b, a.slots.stride))) : int(b);
    if (accepts && a.accepted.data) first = peek(byte_at(a.accepted.data, b, a.accepted.stride)) - 1;
    if (uint32_t(slot) >= uint32_t(a.slot_count) || first >= uint32_t(a.most_accepted)) slot = -1;
  }
  AITER_DEVICE bool is(int other, uint32_t other_first) const { return slot == other && first == other_first; }
};

// kFewTokens is the most tokens of a sequence, for threads of C channels.
template <int C> constexpr int kFewTokens = C <= 4 ? 4 : 2;

// FewTokens is C channels of a sequence. kKind, TW: the form of the packed filter and its type.
template <class T, int C, FilterKind kKind, class TW, bool kAccepts> class FewTokens {
  using V = Vec<T, C>;
  static constexpr int W = 4, H = W - 1, N = kFewTokens<C>;
  // The slot is stored after the sums, which wait for the loads of the state: a store to a sector whose load is in flight delays the
  // load, and a window of 2 taps, x alone, depends on no load. With 4 taps of x's type, and in causal_conv1d_update, the store first takes
  // fewer registers and is faster.
  static constexpr bool kKeepsFirst = !kAccepts || (kKind == FilterKind::kPacked && kDType<TW> == kDType<T>);

 public:
  // The constructor issues the loads of the filter.
  AITER_DEVICE FewTokens(const FewParams& a, int d) : d_(d), none_(kKind == FilterKind::kPacked ? 0 : W - a.width) {
    filter_.load(filter_of(a), d);
  }

  AITER_DEVICE void load_x(const FewParams& a, uint32_t b) {
    const char* at = byte_at(byte_at(a.x, b, a.x_batch), d_, sizeof(T));
    AITER_UNROLL
    for (int i = 0; i < N; i++) {
      value_[H + i].clear();
      if (i == 0 || i < a.tokens) value_[H + i] = load_vec<T, C>(reinterpret_cast<const T*>(byte_at(at, i, a.x_last)));
    }
  }

  // load_state issues the loads of the values before the first token.
  AITER_DEVICE void load_state(const FewParams& a, int slot, uint32_t first) {
    slot_ = byte_at(byte_at(a.state, slot, a.state_batch), d_, sizeof(T));
    const char* at = kAccepts ? byte_at(slot_, first, a.state_last) : slot_;
    AITER_UNROLL
    for (int k = 0; k < H; k++)
      if (filter_.has_tap(k)) value_[k] = load_vec<T, C>(reinterpret_cast<const T*>(byte_at(at, k - none_, a.state_last)));
  }

  AITER_DEVICE void convert_filter(const FewParams& a) { filter_.convert(filter_of(a)); }

  // run computes the sequence and writes its slot. out may be x.
  AITER_DEVICE void run(const FewParams& a, uint32_t b) {
    const bool accepts = kAccepts && a.accepted.data;
    if (kKeepsFirst) keep(a, accepts);
    compute_all(a, output(a, b));
    if (!kKeepsFirst) keep(a, accepts);
  }

  AITER_DEVICE void clear(const FewParams& a, uint32_t b) const {
    const Output out = output(a, b);
    AITER_ROLLED
    for (int i = 0; i < a.tokens; i++) store_vec<T, C>(reinterpret_cast<T*>(byte_at(out.at, i, out.step)), V{});
  }

 private:
  struct Output {
    char* at;
    uint32_t step;
  };

  AITER_DEVICE static FilterSource filter_of(const FewParams& a) {
    return {a.weight, a.bias, a.dim, a.width, true, true};
  }

  AITER_DEVICE Output output(const FewParams& a, uint32_t b) const {
    const void* first = a.out[0];
    uint32_t row = a.out_batch[0], step = a.out_last[0];
    if (d_ >= a.ends[0]) {
      cold_branch();
      const int part = 1 + int(d_ >= a.ends[1]);
      first = a.out[part], row = a.out_batch[part], step = a.out_last[part];
    }
    return {byte_at(byte_at(first, b, row), d_, sizeof(T)), step};
  }

  AITER_DEVICE void store_entry(const FewParams& a, int i, const V& v) const {
    store_vec<T, C>(reinterpret_cast<T*>(byte_at(slot_, i, a.state_last)), v);
  }

  // keep writes the slot.
  AITER_DEVICE void keep(const FewParams& a, bool accepts) const {
    if (accepts) keep_tokens(a);
    else keep_window(a);
  }

  // keep_window makes the slot the last values.
  AITER_DEVICE void keep_window(const FewParams& a) const {
    AITER_UNROLL
    for (int k = 0; k < H; k++) {
      if (!filter_.has_tap(k)) continue;
      V v = value_[k + 1];
      AITER_UNROLL
      for (int n = 2; n <= N; n++)
        AITER_UNROLL
        for (int i = 0; i < V::kWords; i++) v.word[i] = a.tokens >= n ? value_[k + n].word[i] : v.word[i];
      store_entry(a, k - none_, v);
    }
  }

  // keep_tokens makes the slot the values in front of the tokens, and the tokens.
  AITER_DEVICE void keep_tokens(const FewParams& a) const {
    AITER_UNROLL
    for (int k = 1; k < H + N; k++)
      if (k < H ? filter_.has_tap(k - 1) : k == H || k - H < a.tokens) store_entry(a, k - none_ - 1, value_[k]);
  }

  // compute_all computes all tokens.
  AITER_DEVICE void compute_all(const FewParams& a, const Output& out) const {
    if (a.tokens == 1) return compute<1>(a, out, 0);
    AITER_UNROLL
    for (int i = 0; i < N; i += 2)
      if (i == 0 || i < a.tokens) compute<2>(a, out, i);
  }

  // compute computes token i, and together with it the next ones, up to M, that exist.
  template <int M> AITER_DEVICE void compute(const FewParams& a, const Output& out, int i) const {
    float y[M][C];
    AITER_UNROLL
    for (int n = 0; n < M; n++)
      AITER_UNROLL
      for (int c = 0; c < C; c++) {
        y[n][c] = filter_.bias[c];
        AITER_UNROLL
        for (int k = 0; k < W; k++)
          if (filter_.has_tap(k)) y[n][c] = fmaf(filter_.weight[c][k], value_[i + n + k].value(c), y[n][c]);
      }
    if (a.silu) {
      AITER_UNROLL
      for (int n = 0; n < M; n++)
        AITER_UNROLL
        for (int c = 0; c < C; c++) y[n][c] *= sigmoid(y[n][c]);
    }
    AITER_UNROLL
    for (int n = 0; n < M; n++) {
      V result;
      AITER_UNROLL
      for (int w = 0; w < V::kWords; w++) result.word[w] = pack_word<T>(y[n] + w * kWordElems<T>);
      if (n == 0 || i + n < a.tokens) store_vec<T, C>(reinterpret_cast<T*>(byte_at(out.at, i + n, out.step)), result);
    }
  }

  Filter<TW, W, C, kKind, T, true> filter_;
  int d_, none_;     // the first channel; taps that do not exist
  char* slot_;       // its channels in entry 0 of the slot
  V value_[H + N];  // the values in front of the tokens, and the tokens
};

// prefetch_few starts to load a thread's vectors of the first token, the filter and the state into the L2 cache.
template <class T, class TW> AITER_DEVICE void prefetch_few(const FewParams& a, uint32_t b, int d, const FewGuess& guess) {
  const char* at = byte_at(byte_at(byte_at(a.state, guess.slot, a.state_batch), guess.first, a.state_last), d, sizeof(T));
  prefetch_l2(byte_at(byte_at(a.x, b, a.x_batch), d, sizeof(T)));
  prefetch_l2(byte_at(a.weight.data, d, a.width * sizeof(TW)));
  prefetch_l2(at);
  if (a.width > 2) prefetch_l2(byte_at(at, 1, a.state_last));
  if (a.width > 3) prefetch_l2(byte_at(at, 2, a.state_last));
}

// NoFewUsers is SlotUsers where no two sequences share a slot that they write.
struct NoFewUsers {
  AITER_DEVICE explicit NoFewUsers(const FewSlots&) {}
  AITER_DEVICE bool share_slot(const FewSlots&, int64_t, int64_t) { return false; }
};

constexpr int kFewThreads = 128;  // of a block at most
// few_blocks returns the blocks of an NVIDIA multiprocessor, or the waves of an AMD SIMD unit: as many as registers allow.
AITER_SHARED constexpr int few_blocks(int channels) {
  return AITER_HIP ? 2 : channels <= 4 ? 8 : 4;
}

// kGuesses reports whether the first blocks of a kernel guess their slots. In causal_conv1d_update with float32 filters of 16-bit x the
// instructions for it take longer than the loads, except with few registers.
template <class T, int C, FilterKind kKind, class TW, bool kOrdered>
constexpr bool kGuesses = kStartsEarly && (!kOrdered || kDType<TW> == kDType<T> || (kKind == FilterKind::kPacked && C == 2));

// kOrdered: sequences that share a slot run in the order of the batch; the call has no num_accepted_tokens.
template <class T, int C, FilterKind kKind, class TW, bool kOrdered>
__global__ void __launch_bounds__(kFewThreads, few_blocks(C)) causal_conv1d_serve_few_kernel(KernelParam<FewParams> p) {
  if constexpr (AITER_KERNEL_CODE) {
    constexpr bool kAccepts = !kOrdered, kGuess = kGuesses<T, C, kKind, TW, kOrdered>;
    const FewParams& a = p;
    uint32_t b = a.chunks.quotient(blockIdx.x);
    const int place = int((blockIdx.x - b * a.chunks.divisor) * blockDim.x + threadIdx.x) * C;
    pdl_trigger();
    const FewGuess guess(a, b, kAccepts, kGuess);
    if (kGuess && guess.slot >= 0 && place < a.dim) prefetch_few<T, TW>(a, b, place, guess);
    pdl_wait();
    const FewSlot loaded(a, b, kAccepts);
    FewTokens<T, C, kKind, TW, kAccepts> tokens(a, place < a.dim ? place : 0);
    tokens.load_x(a, b);
    std::conditional_t<kOrdered, SlotUsers<FewSlots>, NoFewUsers> others{FewSlots(a)};
    if (kGuess && guess.slot >= 0) tokens.load_state(a, guess.slot, guess.first);
    uint32_t first = 0;
    const int slot = loaded.get(a, b, kAccepts, &first);
    if (slot >= 0 && !(kGuess && guess.is(slot, first))) tokens.load_state(a, slot, first);
    const bool shared = others.share_slot(FewSlots(a), b, slot);
    if (place >= a.dim) return;
    if (slot < 0) {
      if (a.clears) tokens.clear(a, b);
      return;
    }
    // The first sequence of those that share a slot computes them all.
    if (shared && next_with_slot(FewSlots(a), slot, int32_t(0), int32_t(b)) < int32_t(b)) return;
    tokens.convert_filter(a);
    AITER_ROLLED
    for (;;) {
      tokens.run(a, b);
      if (!shared) break;
      b = uint32_t(next_with_slot(FewSlots(a), slot, int32_t(b) + 1, a.batch));
      if (int32_t(b) == a.batch) break;
      tokens.load_x(a, b);
      tokens.load_state(a, slot, first);
    }
  }
}

}  // namespace aiter::conv1d::serve
