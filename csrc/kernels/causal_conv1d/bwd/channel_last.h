// causal_conv1d_bwd with adjacent channels (channel-last).
//
// Tiling: a thread owns N neighbouring channels (4; 2 for widths above 4, except large problems of 16-bit types on NVIDIA; 1
// with sequence numbers and widths above 4 on AMD) and walks a strip of positions with W-1 positions of x and of incomplete dx
// in registers. The threads of a block take neighbouring channels first, then neighbouring strips. The loads of the next
// positions of x and dout are in flight: eight in shared memory on NVIDIA, four in registers on AMD. More channels a thread
// halve the waves that registers allow: slower, except for wide filters.
// Halo: W-1 positions on either side of a strip are read again, and g of those behind it is computed again.
// Bytes: x and dout once, dx once, 16 an instruction for 4-byte types, 8 for 2-byte types. Channels that are not aligned to
// that are combined from two vectors in shared memory (NVIDIA), or N is 1.
// Sequence numbers: the mask is computed before, in bytes. A group of positions to which all taps are visible takes the path without
// sequence numbers; the positions of other groups are computed one by one.
// Reduction: dweight and dbias in registers along a strip, then over the block's strips in shared memory, over segments in a
// cluster of blocks or by the reduce_segments kernel.
#pragma once

#include <aiter/gpu/async_copy.h>

#include "channel_last_exact.h"
#include "channel_last_reduce.h"
#include "seq_mask.h"

namespace aiter::conv1d::bwd {

// Positions in flight in shared memory. A group of kGroup positions is in flight in
// registers.
template <class ChannelVec, bool kTwoVectors>
constexpr int kTokensInFlight = ChannelVec::kBytes == 16 && kTwoVectors ? 4 : 8;

template <class T, int W, int N, bool kMasked, bool kUnaligned> struct ChannelLastWalk {
  static constexpr int H = W - 1;
  using ChannelVec = Vec<T, N>;

  // Token is a position's channels.
  struct Token {
    ChannelVec x, dout;
  };

  // InFlight is the pipelines of the tokens. kUnaligned: channels that start within a vector are in two vectors.
  static constexpr int kSharedStages = kTokensInFlight<ChannelVec, kUnaligned>;
  struct InFlight {
    static constexpr int kStageBytes = pipeline_bytes<ChannelVec>(kSharedStages, kChannelLastThreads);
    AsyncPipeline<ChannelVec, kSharedStages, kGroup, kChannelLastThreads> x, dout, next_x, next_dout;
    AsyncPipeline<Vec<uint32_t, 1>, kSharedStages / kGroup, 1, kChannelLastThreads> mask;  // of a group

    AITER_DEVICE explicit InFlight(char* memory)
        : x(memory), dout(memory + kStageBytes), next_x(memory + 2 * kStageBytes), next_dout(memory + 3 * kStageBytes),
          mask(memory + (kUnaligned ? 4 : 2) * kStageBytes) {}
  };
  static constexpr int kStages = decltype(InFlight::x)::kStages;
  // Positions of a group that are computed side by side: as many as registers allow.
  static constexpr int kTogether = !AITER_ASYNC_COPY ? 1 : kUnaligned || W * N == 24 ? 2 : 4;

  const BwdArg& a;
  const Backward& p;
  int64_t b = 0;
  const int64_t d;
  const int missing_taps, channels;       // channels from d on
  int needed_end = 0;                     // end of the positions that the strip needs
  const T *x = nullptr, *dout = nullptr;  // next position to issue
  T* dx = nullptr;                        // next position to complete; the first W-1 precede the strip
  const uint32_t* next_mask = nullptr;    // of the next group to issue; null: no mask
  float weight[W][N], bias[N], past_x[H][N], partial_dx[H][N], sums[W + 1][N] = {};
  ChannelVec halo_x[H];
  InFlight in_flight;

  AITER_DEVICE ChannelLastWalk(const BwdArg& a, int64_t d, char* memory)
      : a(a), p(reload_kernarg(a).p), d(d), missing_taps(kMasked || kUnaligned || W > 4 ? W - int(p.width) : 0), channels(int(p.dim - d)),
        in_flight(memory) {}

  // full_mask is the LastMask of a group with `taps` visible taps. all_visible reports whether all W taps exist and are visible.
  AITER_DEVICE static uint32_t full_mask(int taps) { return ~0u >> (32 - 4 * taps); }
  AITER_DEVICE bool all_visible(uint32_t mask_bits) const { return mask_bits == full_mask(W <= 4 ? W : int(reload_kernarg(a).p.width)); }
  // The kernel of one channel a thread also takes tensors without sequence numbers.
  AITER_DEVICE bool has_mask() const { return N > 1 || next_mask; }
  // issue_mask loads the mask of a group through the pipeline of x and dout: a load of its own would wait for theirs.
  AITER_DEVICE void issue_mask(int group) {
    if (!has_mask()) return;
    in_flight.mask.issue(group, next_mask++, true);
  }
  // consume_mask returns the mask of a group from t on.
  AITER_DEVICE uint32_t consume_mask(int group, int t) const {
    if (has_mask()) return in_flight.mask.consume(group).word[0];
    const Backward& p = reload_kernarg(a).p;
    return LastMask::one_sequence(int(p.width), t, int(p.seqlen)).word[0];
  }

  // offset returns the distance of p from its vector's start, in elements.
  AITER_DEVICE static int offset(const T* p) { return int(reinterpret_cast<uintptr_t>(p) / sizeof(T)) & (N - 1); }

  // issue loads the vector in which the elements at p start, and the next vector. consume combines them.
  template <class Pipeline>
  AITER_DEVICE void issue(Pipeline& one, Pipeline& next, int stage, const T* p, bool valid) const {
    const int shift = offset(p);
    one.issue(stage, p - shift, valid), next.issue(stage, p - shift + N, valid && shift && N - shift < channels);
  }
  template <class Pipeline>
  AITER_DEVICE static ChannelVec consume(const Pipeline& one, const Pipeline& next, int stage, const T* p) {
    const ChannelVec low = one.consume(stage), high = next.consume(stage);
    uint32_t word[2 * ChannelVec::kWords];
    AITER_UNROLL
    for (int i = 0; i < ChannelVec::kWords; i++) word[i] = low.word[i], word[ChannelVec::kWords + i] = high.word[i];
    return funnel_shift<T, N>(word, offset(p));
  }

  // advanced returns p plus a stride, given in elements and in bytes. nvcc would multiply a stride in elements for each group;
  // on AMD a stride in bytes takes 4 registers more.
  template <class E>
  AITER_DEVICE static E* advanced(E* p, [[maybe_unused]] int64_t elements, [[maybe_unused]] int64_t bytes) {
    return AITER_CUDA ? (E*)((const char*)p + bytes) : p + elements;
  }

  // issue loads the next position, or zeros if it is behind the row or not needed.
  AITER_DEVICE void issue(int stage, bool valid) {
    if constexpr (kUnaligned) {
      issue(in_flight.x, in_flight.next_x, stage, x, valid), issue(in_flight.dout, in_flight.next_dout, stage, dout, valid);
    } else {
      in_flight.x.issue(stage, x, valid), in_flight.dout.issue(stage, dout, valid);
    }
    x = advanced(x, p.x.last, a.step_x), dout = advanced(dout, p.dout.last, a.step_dout);
  }
  // consume returns the token of a stage. x and dout plus offset_positions are a multiple of kSharedStages positions behind it.
  AITER_DEVICE Token consume(int stage, int offset_positions) const {
    Token token = {};
    if constexpr (kUnaligned) {
      token.x = consume(in_flight.x, in_flight.next_x, stage, x + offset_positions * p.x.last);
      token.dout = consume(in_flight.dout, in_flight.next_dout, stage, dout + offset_positions * p.dout.last);
    } else {
      token.x = in_flight.x.consume(stage), token.dout = in_flight.dout.consume(stage);
    }
    if constexpr (AITER_ASYNC_COPY && ChannelVec::kBytes == 2) {
      token.x.word[0] >>= reinterpret_cast<uintptr_t>(x + offset_positions * p.x.last) % 4 * 8;
      token.dout.word[0] >>= reinterpret_cast<uintptr_t>(dout + offset_positions * p.dout.last) % 4 * 8;
    }
    return token;
  }

  // The tokens of the stages from first on, and the loads of as many later positions.
  template <int M> AITER_DEVICE void consume(Token (&token)[M], int first) const {
    AITER_UNROLL
    for (int j = 0; j < M; j++) token[j] = consume(first + j, j);
  }
  AITER_DEVICE void issue(int first, int t, int many) {
    AITER_UNROLL
    for (int j = 0; j < many; j++) issue(first + j, needed_end - t > j + kStages);
  }

  // load_channels and store_channels move the thread's channels at p, those that exist.
  AITER_DEVICE ChannelVec load_channels(const T* p) const {
    ChannelVec v;
    if constexpr (kUnaligned) {
      v.clear();
      AITER_UNROLL
      for (int i = 0; i < N; i++)
        if (i < channels) v.set(i, load_vec<T, 1>(p + i).get(0));
    } else {
      v = load_vec<T, N>(p);
    }
    return v;
  }
  AITER_DEVICE void store_channels(T* p, const ChannelVec& v) const {
    if constexpr (kUnaligned) {
      if (offset(p) == 0 && channels >= N) return store_vec(p, v);
      AITER_UNROLL
      for (int i = 0; i < N; i++) {
        Vec<T, 1> one = {};
        one.set(0, v.get(i));
        if (i < channels) store_vec(p + i, one);
      }
    } else {
      store_vec(p, v);
    }
  }

  // start_strip issues the first of the positions from..to of row b, and loads x before them.
  AITER_DEVICE void start_strip(int64_t b, int from, int to) {
    const Backward& p = reload_kernarg(a).p;
    this->b = b, needed_end = to + H < int(p.seqlen) ? to + H : int(p.seqlen);
    if constexpr (kMasked)
      next_mask = a.mask ? reload_kernarg(a).mask + b * mask_pitch(p.seqlen, kGroup) + kMaskBefore + from / kGroup : nullptr;
    x = p.x.row<T>(b, d) + (from - H) * p.x.last, dout = p.dout.row<T>(b, d) + from * p.dout.last;
    dx = p.dx.row<T>(b, d) + (from - H) * p.dx.last;
    AITER_UNROLL
    for (int k = 0; k < H; k++) {
      const int u = from - H + k;
      halo_x[k].clear();
      if (u >= 0) halo_x[k] = load_channels(x);
      x += p.x.last;
    }
    AITER_UNROLL
    for (int j = 0; j < kStages; j++) {
      issue(j, from + j < needed_end);
      if (j % kGroup != kGroup - 1) continue;
      if constexpr (kMasked) {
        if (j < kGroup) pdl_wait();
        issue_mask(j / kGroup);
      }
      commit_group();
    }
  }

  // begin_strip converts what start_strip has loaded before position from.
  AITER_DEVICE void begin_strip(int from) {
    AITER_UNROLL
    for (int k = 0; k < H; k++) {
      AITER_UNROLL
      for (int i = 0; i < N; i++) past_x[k][i] = halo_x[k].value(i), partial_dx[k][i] = 0.0f;
    }
    if (from < H) load_initial_states(from);
  }

  // load_initial_states puts the initial states in front of the row.
  AITER_DEVICE void load_initial_states(int from) {
    const Backward& p = reload_kernarg(a).p;
    if (!p.initial.data || p.seq.data) return;
    const T* state = p.initial.row<T>(b, d) + (from - H + int(p.width) - 1) * p.initial.last;
    AITER_UNROLL
    for (int k = 0; k < H; k++) {
      const int u = from - H + k;
      AITER_UNROLL
      for (int i = 0; i < N; i++)
        if (u < 0 && u + int(p.width) > 0 && (!kUnaligned || i < channels)) {
          past_x[k][i] = load_vec<T, 1>(state + i * p.initial.dim).value(0);
        }
      state += p.initial.last;
    }
  }

  // step computes position t, and out, dx of position t-(W-1), which it completes. own: t belongs to the strip.
  template <class Mask> AITER_DEVICE void step(const Mask& mask, const Token& token, bool silu, bool own, float* out) {
    float now[N], g[N], sum[N];
    AITER_UNROLL
    for (int i = 0; i < N; i++) now[i] = token.x.value(i), g[i] = token.dout.value(i), sum[i] = bias[i];
    if (silu) {
      AITER_UNROLL
      for (int k = 0; k < W; k++) {
        if (!mask(k)) continue;
        AITER_UNROLL
        for (int i = 0; i < N; i++) sum[i] = fmaf(weight[k][i], k < H ? past_x[k][i] : now[i], sum[i]);
      }
      AITER_UNROLL
      for (int i = 0; i < N; i++) g[i] *= silu_grad(sum[i]);
    }
    if (own) {
      AITER_UNROLL
      for (int k = 0; k < W; k++) {
        const bool use = mask(k);
        AITER_UNROLL
        for (int i = 0; i < N; i++) {
          // With an `if`, nvcc emits branches and converts dout again in each.
          sums[k][i] = use ? fmaf(k < H ? past_x[k][i] : now[i], g[i], sums[k][i]) : sums[k][i];
          if (use && k == H) sums[W][i] += g[i];
        }
      }
    }
    AITER_UNROLL
    for (int k = 0; k < W; k++) {
      const bool use = mask(k);
      AITER_UNROLL
      for (int i = 0; i < N; i++) {
        float v = k < H ? partial_dx[k][i] : 0.0f;
        if (use) v = fmaf(weight[k][i], g[i], v);
        if (k == 0) out[i] = v;
        else partial_dx[k - 1][i] = v;
      }
    }
    AITER_UNROLL
    for (int k = 0; k < H; k++) {
      AITER_UNROLL
      for (int i = 0; i < N; i++) past_x[k][i] = k + 1 < H ? past_x[k + 1][i] : now[i];
    }
  }

  // tap_exists: a kernel is for one width, for 5 to 8, or for 1 to 4. Masked kernels take narrower filters to run_masked_group.
  AITER_DEVICE bool tap_exists(int k) const { return (!kUnaligned && W <= 4) || k > 2 || k >= missing_taps; }

  // load_staged_filter loads the filter that stage_filter has put into shared memory.
  AITER_DEVICE void load_staged_filter(const ChannelValues<N>* staged, [[maybe_unused]] int lanes) {
    AITER_UNROLL
    for (int k = 0; k <= W; k++) {
      const ChannelValues<N> v = staged[k * tap_stride(lanes)];
      AITER_UNROLL
      for (int i = 0; i < N; i++) (k < W ? weight[k] : bias)[i] = v.v[i];
    }
  }

  // run_group computes kGroup positions from t on, from the stages from first on. own: they belong to the strip from..to;
  // otherwise they are behind it, and only contribute to dx.
  AITER_DEVICE void run_group(int t, int first, int from, int to, bool silu, bool own) {
    wait_group<kStages / kGroup - 1>();
    if constexpr (kMasked) {
      const uint32_t mask_bits = consume_mask(first / kGroup, t);
      issue_mask(first / kGroup);
      if (!all_visible(mask_bits)) return run_masked_group(mask_bits, t, first, from, to, silu, own);
    }
    const auto mask = [this](int k) { return tap_exists(k); };
    AITER_UNROLL
    for (int i = 0; i < kGroup; i += kTogether) {
      Token token[kTogether];
      float out[kTogether][N];
      consume(token, first + i), issue(first + i, t + i, kTogether);
      AITER_UNROLL
      for (int j = 0; j < kTogether; j++) step(mask, token[j], silu, own, out[j]);
      AITER_UNROLL
      for (int j = 0; j < kTogether; j++) store_dx(t, i + j, from, to, own, out[j]);
    }
    commit_group();
  }

  // run_masked_group computes a group in which some taps are not visible, one position at a time.
  AITER_DEVICE void run_masked_group(uint32_t mask_bits, int t, int first, int from, int to, bool silu, bool own) {
    // Registers cannot be indexed: the queue moves up.
    constexpr int kQueue = AITER_ASYNC_COPY ? 1 : kGroup;
    Token token[kQueue];
    if constexpr (!AITER_ASYNC_COPY) consume(token, first), issue(first, t, kGroup);
    AITER_ROLLED
    for (int i = 0; i < kGroup; i++, mask_bits >>= 1) {
      if constexpr (AITER_ASYNC_COPY) consume(token, first + i), issue(first + i, t + i, 1);
      float out[N];
      step([mask_bits](int k) { return (mask_bits >> (W - 1 - k) * LastMask::kBits & 1) != 0; }, token[0], silu, own, out);
      store_dx(t, i, from, to, own, out);
      AITER_UNROLL
      for (int j = 1; j < kQueue; j++) token[j - 1] = token[j];
    }
    commit_group();
  }

  // walk computes positions from..to, and those behind them that dx needs. A strip has whole groups, except at a row's end,
  // where g is 0.
  AITER_DEVICE void walk(int from, int to, bool silu) {
    // In the other kernels `own` costs more than a second loop.
    constexpr bool kOneLoop = AITER_CUDA ? sizeof(T) == 4 || (kMasked && N == 1) : W * N > 4;
    int t = from, first = 0;
    AITER_ROLLED
    for (; t < (kOneLoop ? to + H : to); t += kGroup, first = next_group(first)) run_group(t, first, from, to, silu, !kOneLoop || t < to);
    if constexpr (!kOneLoop) {
      AITER_ROLLED
      for (; t < to + H; t += kGroup, first = next_group(first)) run_group(t, first, from, to, silu, false);
    }
    wait_group<0>();
  }

  // needs_exact reports whether walk would multiply a value that is not finite by the zeros behind the row: a tap or, in a group
  // with positions on both sides of the strip's end, one of the row's last inputs.
  AITER_DEVICE bool needs_exact(int to) const {
    const Backward& p = reload_kernarg(a).p;
    if (kMasked || p.silu || to + H <= int(p.seqlen)) return false;
    bool all_finite = true;
    AITER_UNROLL
    for (int k = 0; k < W; k++) all_finite = all_finite && finite(weight[k]);
    if (to % kGroup == 0) return !all_finite;
    const T* last = p.x.row<T>(b, d) + (to - H) * p.x.last;
    AITER_UNROLL
    for (int k = 0; k < H; k++, last += p.x.last)
      // past_x has the positions in front of the strip: the group uses those only if the strip is shorter than that.
      all_finite = all_finite && (to >= H || finite(past_x[k])) && (to - H + k < 0 || load_channels(last).finite());
    return !all_finite;
  }

  // walk_exact computes what walk computes without SiLU, from memory.
  AITER_DEVICE void walk_exact(int from, int to) {
    cold_branch();
    wait_group<0>();
    const int skip = W - int(reload_kernarg(a).p.width), row = int(b);
    AITER_ROLLED
    for (int n = 0; n < N && n < channels; n++) {
      AITER_ROLLED
      for (int t = from; t < to; t++) store_exact_dx<T>(a, row, int(d) + n, t);
    }
    AITER_ROLLED
    for (int k = 0; k <= W; k++) {
      AITER_ROLLED
      for (int n = 0; n < N; n++) {  // registers cannot be indexed: all sums move by one
        float sum = sums[0][0];
        if (k >= skip && n < channels) sum = add_exact_products<T>(a, row, int(d) + n, from, to, k - skip, sum);
        AITER_UNROLL
        for (int i = 1; i < (W + 1) * N; i++) sums[(i - 1) / N][(i - 1) % N] = sums[i / N][i % N];
        sums[W][N - 1] = sum;
      }
    }
  }

  AITER_DEVICE static int next_group(int first) {
    static_assert(kStages == kGroup || kStages == 2 * kGroup, "a group's slots are the first or the last");
    return kStages == kGroup ? 0 : first ^ kGroup;
  }

  // store_dx stores dx that position i of the group from t on completes, if that is within the strip.
  AITER_DEVICE void store_dx(int t, int i, int from, int to, bool own, const float* v) {
    const bool begun = H <= kGroup ? t > from || i >= H : t + i - H >= from;
    if (begun && ((own && H >= kGroup - 1) || t + i - H < to)) store_channels(dx, pack_vec<T, N>(v));
    dx = advanced(dx, p.dx.last, a.step_dx);
  }
};

}  // namespace aiter::conv1d::bwd
