// The loads of causal_conv1d_bwd's channel-first kernels: a lane's part of a chunk of x and dout, and the halo of x before it.
#pragma once

#include <aiter/gpu/async_copy.h>

#include "tile.h"

namespace aiter::conv1d::bwd {

// RowKind is the rows that a kernel takes. kWhole: whole vectors, equally aligned in all tensors, no states. kRagged: any
// rows. kSeqIdx: any rows, with sequence numbers. For widths above 4 AMD has one kernel for kRagged and kSeqIdx, since
// these take longest to compile. Only NVIDIA: kWholeStates, whole rows with states or their gradients, of 4 taps;
// kWholeSeqIdx, whole rows with sequence numbers.
enum RowKind { kWhole, kRagged, kSeqIdx, kWholeStates, kWholeSeqIdx };
template <RowKind kKind> constexpr bool kWholeVectors = kKind != kRagged && kKind != kSeqIdx;
template <RowKind kKind> constexpr bool kHasSeqIdx = kKind == kSeqIdx || kKind == kWholeSeqIdx;
template <int W> constexpr bool kSharedKernel = AITER_HIP && W > 4;

// Chunks in flight in shared memory, at most.
constexpr int kMaxInFlight = 4;

template <class T, int W, RowKind kKind> struct ChunkLoader {
  static constexpr int R = 16 / sizeof(T), H = W - 1, E = H < 4 ? 4 : 8;  // positions of a lane; halo; halo as loaded
  static constexpr int kParts = E > R ? E / R : 1;                        // vectors (or one part of a vector) of the halo

  using Vec16 = Vec<T, R>;
  using HaloVec = Vec<T, E>;
  using HaloPart = Vec<T, E / kParts>;
  static constexpr int kPartWords = HaloPart::kWords;

  // Chunk is a lane's part of a chunk.
  struct Chunk {
    Vec16 x, dout;
    HaloVec halo;
  };

  // kSharesHalo: the halo comes from the preceding lanes' vectors in shared memory; otherwise it is loaded. kFunnelShifts: a
  // vector whose alignment differs from dx's is combined from two. kUnaligned: AMD loads it unaligned.
  static constexpr bool kSharesHalo = AITER_ASYNC_COPY;
  static constexpr bool kFunnelShifts = kSharesHalo && !kWholeVectors<kKind>, kUnaligned = AITER_HIP && !kWholeVectors<kKind>;
  static constexpr int kHaloLanes = kParts + kFunnelShifts;  // preceding lanes whose vectors a lane needs
  static constexpr int kSharedStages = kMaxInFlight;
  static constexpr int kWarpBytes = 32 * Vec16::kBytes;  // of a warp's vectors
  using Pipeline = AsyncPipeline<Vec16, kSharedStages, 1, 64>;
  struct InFlight {
    Pipeline x, dout;
    AsyncPipeline<HaloPart, kSharedStages, 1, 0, false> halo[kSharesHalo ? 1 : kParts];

    // Each warp has its own stages, in each dout behind x: an address is the stage's plus a constant.
#if AITER_ASYNC_COPY
    AITER_DEVICE explicit InFlight(char* memory)
        : x(memory + (threadIdx.x >> 5) * ((2 * kSharedStages - 1) * kWarpBytes)), dout(x.address + kWarpBytes) {}
#else
    AITER_DEVICE explicit InFlight(char*) {}
#endif
  };
  static constexpr int kStages = Pipeline::kStages;
  // stages_in_use returns the number of stages. It is variable only in kernels that memory bounds, since the test costs 2 to 5%.
  // wait_chunk waits for a chunk and, if lanes share halos, for the chunk before it.
  static constexpr bool kFewerStages = kSharesHalo && kKind == kWhole && W <= 4 && sizeof(T) == 2;
  AITER_DEVICE int stages_in_use() const { return kFewerStages ? a.in_flight : kStages; }
  AITER_DEVICE void wait_chunk() const {
    if (!kFewerStages || stages_in_use() == kStages) wait_group<kStages - 1 - kSharesHalo>();
    else if (stages_in_use() == kStages - 1) wait_group<kStages - 3>();
    else wait_group<0>();
  }
  // kMovingPointers: the pointers point to the lane's positions; otherwise to the rows' starts.
  static constexpr bool kMovingPointers = kSharesHalo && kWholeVectors<kKind>;

  const BwdArg& a;
  const Backward& p;
  // previous_thread is the distance to the thread with the preceding vector. The low bits of next_lane_key are the next lane's
  // number; it is negative in a team's first lane.
  const int d, length, lanes, lane, chunk_length, previous_thread, next_lane_key;
  const T *x, *dout;          // row of the next chunk to issue
  T* dx;                      // row of the chunk to compute, of batch b
  uint32_t issue_dx_address;  // low bits of the address of dx of the row to issue
  int b, issue_t, t;          // the lane's first position to issue and to compute; negative where a row starts within 16 bytes
  int offsets = 0;            // offsets of x and (16 bits higher) dout of batch b from their vectors

  // Chunk number `at` is counted over all rows of channel d.
  AITER_DEVICE ChunkLoader(const BwdArg& a, int d, uint32_t at)
      : a(a), p(a.p), d(d), length(int(a.p.seqlen)), lanes(1 << a.lane_bits), lane(int(threadIdx.x) & (lanes - 1)),
        chunk_length(lanes * R), previous_thread(pin_register(lane ? -1 : lanes - 1)),
        next_lane_key(pin_register((int(threadIdx.x) + 1) | (lane ? 0 : int(0x80000000)))) {
    b = int(a.row_split.quotient(at));
    x = p.x.row<T>(b, d), dout = p.dout.row<T>(b, d), dx = p.dx.row<T>(b, d), issue_dx_address = low_bits(dx);
    t = issue_t = int(at - uint32_t(b) * a.row_split.divisor) * chunk_length + lane * R - row_offset(issue_dx_address);
    update_offsets();
    if (kMovingPointers) x += issue_t, dout += issue_t, dx += t;
  }

  AITER_DEVICE static uint32_t low_bits(const T* p) { return uint32_t(reinterpret_cast<uintptr_t>(p)); }
  // offset returns an address's distance from 16 bytes, in elements.
  AITER_DEVICE static int offset(uint32_t address) { return int(address / sizeof(T)) & (R - 1); }
  // row_offset returns the distance of a row of dx from 16 bytes.
  AITER_DEVICE int row_offset(uint32_t row) const { return !kWholeVectors<kKind> && a.peel ? offset(row) : 0; }
  AITER_DEVICE void update_offsets() {
    if (kFunnelShifts && !a.same_alignment) {
      offsets = offset(low_bits(p.x.row<T>(b, d) + t)) | offset(low_bits(p.dout.row<T>(b, d) + t)) << 16;
    }
  }

  // step_back goes to the preceding chunk and reports whether it is in the preceding row.
  AITER_DEVICE bool step_back() {
    t -= chunk_length;
    if (kMovingPointers) dx = pin_register(dx - chunk_length);
    if (t > -R) return false;
    cold_branch();
    const BwdArg& a = reload_kernarg(this->a);
    const int row = int(a.row_split.divisor) * chunk_length;
    t += row_offset(low_bits(dx)) + row;
    b--, dx -= a.p.dx.batch;
    t -= row_offset(low_bits(dx));
    if (kMovingPointers) dx = pin_register(dx + row);
    update_offsets();
    return true;
  }

  // inside_row reports whether a lane's part and its halo are within the row.
  AITER_DEVICE bool inside_row(int t) const { return t >= E && t + R <= length; }

  // issue starts the loads of a chunk's vectors: of x and dout if valid, of those that other lanes need if halo_needed. Then it
  // goes to the preceding chunk. A vector with any element of the row is loaded whole: its 16 bytes are in one page. With
  // kFunnelShifts it is the vector behind the one in which the lane's part starts. An unaligned vector is loaded only if
  // it is within the row.
  AITER_DEVICE void issue(InFlight& in_flight, int stage, bool valid, bool halo_needed) {
    if (kFunnelShifts && !a.same_alignment) {
      const int in_x = issue_t + R - offset(low_bits(x + issue_t)), in_dout = issue_t + R - offset(low_bits(dout + issue_t));
      halo_needed = a.contiguous && halo_needed;
      in_flight.x.issue(stage, x + in_x, in_x < length && halo_needed);
      in_flight.dout.issue(stage, dout + in_dout, in_dout < length && halo_needed);
    } else {
      const bool has = issue_t < length &&
          (kWholeVectors<kKind> || a.same_alignment || (kUnaligned && a.contiguous && inside_row(issue_t)));
      in_flight.x.template issue<kUnaligned>(stage, kMovingPointers ? x : x + issue_t, has && (kSharesHalo ? halo_needed : valid));
      in_flight.dout.template issue<kUnaligned>(stage, kMovingPointers ? dout : dout + issue_t, has && valid);
      if constexpr (!kSharesHalo) {
        AITER_UNROLL
        for (int i = 0; i < kParts; i++)
          in_flight.halo[i].template issue<kUnaligned>(stage, x + issue_t - E + i * HaloPart::kElements,
                                                has && valid && issue_t > (kParts - 1 - i) * R);
      }
    }
    commit_group();
    issue_t -= chunk_length;
    if (kMovingPointers) x = pin_register(x - chunk_length), dout = pin_register(dout - chunk_length);
    if (issue_t > -R) return;
    cold_branch();
    const BwdArg& a = reload_kernarg(this->a);
    const int row = int(a.row_split.divisor) * chunk_length;
    issue_t += row_offset(issue_dx_address) + row;
    x -= a.p.x.batch, dout -= a.p.dout.batch, issue_dx_address -= uint32_t(a.p.dx.batch * int(sizeof(T)));
    issue_t -= row_offset(issue_dx_address);
    if (kMovingPointers) x = pin_register(x + row), dout = pin_register(dout + row);
  }

  // consume returns the chunk of a stage. The preceding chunk is in prev_stage.
  AITER_DEVICE Chunk consume(const InFlight& from, int stage, [[maybe_unused]] int prev_stage) const {
    Chunk chunk = {from.x.consume(stage), from.dout.consume(stage), {}};
#if AITER_ASYNC_COPY
    if (kFunnelShifts && !a.same_alignment) {
      shift_chunk(from, stage, prev_stage, chunk);
      return chunk;
    }
    chunk.halo.clear();
    AITER_UNROLL
    for (int i = 0; i < kParts; i++)
      if (t < length && t > (kParts - 1 - i) * R)
        set_part(chunk.halo.word, i, load_shared<HaloPart>(halo_address<HaloPart>(from.x, stage, prev_stage, kParts - i)));
#else
    AITER_UNROLL
    for (int i = 0; i < kParts; i++) set_part(chunk.halo.word, i, from.halo[i].consume(stage));
#endif
    return chunk;
  }

  AITER_DEVICE static void set_part(uint32_t* word, int part, const HaloPart& v) {
    AITER_UNROLL
    for (int i = 0; i < kPartWords; i++) word[part * kPartWords + i] = v.word[i];
  }

#if AITER_ASYNC_COPY
  // halo_address returns the address of the end of the vector `distance` vectors before the lane's.
  template <class V>
  AITER_DEVICE uint32_t halo_address(const Pipeline& from, int stage, int prev_stage, int distance) const {
    const bool here = distance == 1 ? next_lane_key >= 0 : lane >= distance;
    return from.address_of(here ? stage : prev_stage, distance == 1 ? previous_thread : here ? -distance : lanes - distance) +
        Vec16::kBytes - V::kBytes;
  }

  // load_earlier loads that end. In the row's first chunk no lane may have it; then it comes from global memory.
  template <class V>
  AITER_DEVICE V load_earlier(const Pipeline& from, const Array3& rows, int own, int stage, int prev_stage, int distance) const {
    if (lane >= distance || t > lane * R) return load_shared<V>(halo_address<V>(from, stage, prev_stage, distance));
    cold_branch();
    V v;
    v.clear();
    const int at = own - distance * R;
    if (a.contiguous && b >= 0 && at > -R && at < length) {  // b < 0: the team has finished
      const Vec16 all = load_vec<T, R>(rows.row<T>(b, d) + at);
      AITER_UNROLL
      for (int i = 0; i < V::kWords; i++) v.word[i] = all.word[Vec16::kWords - V::kWords + i];
    }
    return v;
  }

  // shift_chunk combines a lane's part from its vectors and the preceding ones.
  AITER_DEVICE void shift_chunk(const InFlight& from, int stage, int prev_stage, Chunk& chunk) const {
    constexpr int kVecWords = Vec16::kWords, kHaloWords = HaloVec::kWords;
    const int off_x = offsets & 0xffff, off_dout = offsets >> 16, in_x = t + R - off_x, in_dout = t + R - off_dout;
    uint32_t word[kHaloWords + 2 * kVecWords];
    AITER_UNROLL
    for (int i = 0; i < kParts; i++) set_part(word, i, load_earlier<HaloPart>(from.x, p.x, in_x, stage, prev_stage, kParts + 1 - i));
    const Vec16 previous = load_earlier<Vec16>(from.x, p.x, in_x, stage, prev_stage, 1);
    AITER_UNROLL
    for (int i = 0; i < kVecWords; i++) word[kHaloWords + i] = previous.word[i], word[kHaloWords + kVecWords + i] = chunk.x.word[i];
    const auto all = funnel_shift<T, E + R>(word, off_x);
    AITER_UNROLL
    for (int i = 0; i < kHaloWords; i++) chunk.halo.word[i] = all.word[i];
    AITER_UNROLL
    for (int i = 0; i < kVecWords; i++) chunk.x.word[i] = all.word[kHaloWords + i];
    const Vec16 first = load_earlier<Vec16>(from.dout, p.dout, in_dout, stage, prev_stage, 1);
    uint32_t both[2 * kVecWords];
    AITER_UNROLL
    for (int i = 0; i < kVecWords; i++) both[i] = first.word[i], both[kVecWords + i] = chunk.dout.word[i];
    chunk.dout = funnel_shift<T, R>(both, off_dout);
  }
#endif

  // fit_to_row clears elements of other rows. It loads single elements where a row cannot be loaded in vectors.
  AITER_DEVICE void fit_to_row(Chunk& chunk, bool active) const {
    const bool loaded = a.same_alignment || (a.contiguous && (kFunnelShifts || (kUnaligned && inside_row(t))));
    if (active && loaded && inside_row(t)) return;
    cold_branch();
    if (active && loaded) {
      chunk.halo.keep_range(E - t, E - t + length), chunk.x.keep_range(-t, length - t), chunk.dout.keep_range(-t, length - t);
    } else {
      chunk.x.clear(), chunk.dout.clear(), chunk.halo.clear();
      if (!active) return;
      load_elements(chunk);
    }
    if (kKind == kSeqIdx && t >= length) chunk.halo.clear();  // its positions may be padding
    if ((kKind == kRagged || kSharedKernel<W>) && t < H) load_initial_states(chunk);
  }

  // load_initial_states puts the initial states before the row.
  AITER_DEVICE void load_initial_states(Chunk& chunk) const {
    const Backward& p = reload_kernarg(a).p;
    if (!p.initial.data || p.seq.data) return;
    cold_branch();
    const T* from = p.initial.row<T>(b, d) + (p.width - 1) * p.initial.last;
#if AITER_CUDA
    AITER_UNROLL
#else
    AITER_ROLLED  // unrolled it is a tenth of the kernel
#endif
    for (int j = -H; j < 0; j++) {
      if (j + int(p.width) <= 0) continue;
      const T v = load_vec<T, 1>(from + j * p.initial.last).get(0);
      if (kWholeVectors<kKind>) chunk.halo.set(E + j, v);  // here t is 0
      else chunk.halo.or_at(E - t + j, v), chunk.x.or_at(j - t, v);
    }
  }

  // load_elements loads a lane's part of a chunk element by element.
  AITER_DEVICE void load_elements(Chunk& chunk) const {
    const Backward& p = reload_kernarg(a).p;
    const T *x = p.x.row<T>(b, d), *dout = p.dout.row<T>(b, d);
    x += (t - H) * p.x.last, dout += (t - H) * p.dout.last;
#pragma unroll 2
    for (int i = E - H; i < E + R; i++, x += p.x.last, dout += p.dout.last) {
      if (unsigned(t - E + i) >= unsigned(length)) continue;
      const T v = load_vec<T, 1>(x).get(0);
      chunk.halo.or_at(i, v), chunk.x.or_at(i - E, v);
      if (i >= E) chunk.dout.or_at(i - E, load_vec<T, 1>(dout).get(0));
    }
  }
};

}  // namespace aiter::conv1d::bwd
