// causal_conv1d_bwd on the CPU.
//
// Tiling: rows with adjacent positions (cpu/bwd_channel_first.h), tokens with adjacent channels (cpu/bwd_channel_last.h), columns of other
// layouts as rows if the filter is wide (cpu/bwd_transposed.h), otherwise and with sequence numbers tiles (cpu/bwd_tile.h). A part of the
// work is some channels over all positions of all batches; with few channels it is a segment of the positions, with sums of its own.
// Bytes: x and dout once (and W-1 positions a tile from cache), dx once.
// Reduction: the segments of a channel, in order, in double. The division into segments depends on the shape alone, so that the
// sums are the same for any number of threads.

#include <aiter/ffi.h>

#include "cpu.h"
#include "groups.h"

namespace aiter::conv1d::bwd {

constexpr int64_t kGradWidth = 32;     // the widest filter of rows that lies on the stack
constexpr int64_t kUnit = 4096;        // positions summed up in fp32 at most; positions of a unit of work
constexpr int64_t kPart = 64 << 10;    // elements

// unit returns the positions of a unit of work. If the halo is long, it is several times as many.
inline int64_t unit(int64_t width) { return width <= kUnit / 4 ? kUnit : pieces(4 * width, kUnit) * kUnit; }

constexpr int64_t kSlots = 4096;            // sums on the caller's stack
constexpr int64_t kGroupsEnough = 64;       // from this number of groups of channels on there is one segment
constexpr int64_t kTokenBlock = 128;        // channels of a block of tokens at most, and a few more in the last block
constexpr int64_t kMostBwdTokenWidth = 20;  // the widest filter for tokens; beyond kTokenWidth a block has kFewChannels
constexpr int64_t kFewChannels = 64;

// token_rows returns the elements of k rows of a block, and of as many more as the filter has taps.
constexpr int64_t token_rows(int64_t k) {
  const int64_t whole = (kTokenWidth + k) * (kTokenBlock + kMaxLanes), smaller = (kMostBwdTokenWidth + k) * (kFewChannels + kMaxLanes);
  return whole > smaller ? whole : smaller;
}

// group_blocks divides the channels evenly among the threads. Where kSlots has room for several segments, their number
// depends on the groups, which are then the same for any number of threads.
inline Blocks group_blocks(int64_t dim, int64_t width) {
  const int64_t threads = 2 * dim < kSlots ? 16 : cpu::settings().threads;
  const int64_t rounds = pieces(dim, threads * (width <= kTokenWidth ? kTokenBlock : kFewChannels));
  const int64_t each = pieces(dim, threads * rounds * kMaxLanes) * kMaxLanes;
  return Blocks(dim, each < 32 ? 32 : each);
}

}  // namespace aiter::conv1d::bwd

#define AITER_CPU_FILE <../kernels/causal_conv1d/cpu/bwd_levels.h>
#include <aiter/cpu_each.h>

namespace aiter::conv1d::bwd {

// Totals are the sums of a group of channels, [width + 1][wide].
class Totals {
 public:
  ~Totals() {
    if (data_ != room_) free(data_);
  }
  bool grow(int64_t slot) {
    if (slot <= kRoom) return true;
    double* more = static_cast<double*>(malloc(slot * sizeof(double)));
    if (more) data_ = more;
    return more != nullptr;
  }
  double* data() { return data_; }

 private:
  static constexpr int64_t kRoom = token_rows(1);
  double room_[kRoom];
  double* data_ = room_;
};

inline void zero(double* v, int64_t n) { memset(v, 0, n * sizeof(double)); }

// Work is a problem and its division into parts. A group is up to `wide` channels whose sums are made together: one of rows, a
// block of tokens, or a tile's.
class Work {
 public:
  Work(const Backward& problem, DType type) : p(problem), dtype(type), blocks(group_blocks(p.dim, p.width)) {
    const bool adjacent = p.x.last == 1 && p.dout.last == 1 && p.dx.last == 1;
    rows = p.seqlen == 1 || (adjacent && !p.channel_last);
    rows = rows && !p.seq.data;
    tokens = !rows && p.x.dim == 1 && p.dout.dim == 1 && p.dx.dim == 1 && !p.seq.data && p.dim >= kMaxLanes &&
             p.width <= kMostBwdTokenWidth;
    transposed = !rows && !tokens && !p.seq.data && p.width > kTokenWidth;
    wide = rows ? 1 : tokens ? blocks.most() : kChannels;
    groups = tokens ? blocks.count : pieces(p.dim, wide), units = p.batch * pieces(p.seqlen, unit(p.width));
    slot = (p.width + 1) * wide;
    cuts = groups >= kGroupsEnough ? 1 : least(units, kSlots / groups / slot);
    cuts = least(cuts, pieces(p.batch * p.seqlen * wide, kPart));
    if (cuts < 1) cuts = 1;
  }

  Status run() {
    if (cuts > 1) cut();
    else uncut();
    return failed ? no_memory() : Status();
  }

 private:
  void uncut() {
    const int64_t elements = p.batch * p.seqlen * wide, each = kPart / (elements + 1) + 1;  // groups a part
    cpu::parallel(pieces(groups, each), [&](int64_t part) {
      for (int64_t g = part * each; g < least(groups, part * each + each); g++) {
        Totals totals;
        if (!totals.grow(slot)) return fail();
        zero(totals.data(), slot);
        segment(g, 0, units, totals.data());
        finish(g, totals.data());
      }
    });
  }

  void cut() {
    double slots[kSlots];
    zero(slots, groups * cuts * slot);
    cpu::parallel(groups * cuts, [&](int64_t part) {
      const int64_t i = part % cuts;
      segment(part / cuts, units * i / cuts, units * (i + 1) / cuts, slots + part * slot);
    });
    for (int64_t g = 0; g < groups; g++) {
      double* first = slots + g * cuts * slot;
      for (int64_t i = slot; i < cuts * slot; i++) first[i % slot] += first[i];
      finish(g, first);
    }
  }

  void segment(int64_t group, int64_t u, int64_t end, double* totals) {
    const bool done = rows     ? AITER_CPU_CALL(conv1d::bwd::rows(p, dtype, group, u, end, totals))
                      : tokens ? AITER_CPU_CALL(conv1d::bwd::tokens(p, dtype, group, u, end, totals))
                      : transposed ? AITER_CPU_CALL(conv1d::bwd::transposed(p, dtype, group, u, end, totals))
                               : AITER_CPU_CALL(conv1d::bwd::tiles(p, dtype, group, u, end, totals));
    if (!done) fail();
  }

  void finish(int64_t group, const double* totals) const {
    const int64_t d = tokens ? blocks.first(group) : group * wide, n = tokens ? blocks.size(group) : least(wide, p.dim - d);
    for (int64_t j = 0; j < n; j++) {
      for (int64_t k = 0; k < p.width; k++) p.dweight.set(d + j, k, float(totals[k * wide + j]));
      if (p.dbias.data) p.dbias.set(d + j, 0, float(totals[p.width * wide + j]));
    }
  }

  void fail() { __atomic_store_n(&failed, true, __ATOMIC_RELAXED); }

  const Backward& p;
  const DType dtype;
  const Blocks blocks;  // of tokens
  bool rows, tokens, transposed;
  int64_t wide, groups, units, slot, cuts;
  bool failed = false;  // atomic: out of memory
};

// empty_gradients computes the gradients of the states if there are no positions. T is any type of the elements' size.
template <class T> void empty_gradients(const Backward& p) {
  for (int64_t b = 0; p.dinitial.data && b < p.batch; b++)
    for (int64_t d = 0; d < p.dim; d++)
      for (int64_t j = 0; j < p.width - 1; j++)
        p.dinitial.row<T>(b, d)[j * p.dinitial.last] =
            p.dfinal.data ? p.dfinal.row<T>(b, d)[j * p.dfinal.last] : round_to<T>(0.0f);
}

static Status backward(TensorView dx, TensorView dweight, Optional<TensorView> dbias, TensorView x, TensorView weight,
                       Optional<TensorView> bias, TensorView dout, bool use_silu, Optional<TensorView> seq_idx,
                       Optional<TensorView> initial_states, Optional<TensorView> dfinal_states,
                       Optional<TensorView> dinitial_states) {
  Backward p{};
  AITER_TRY(check_backward({x, weight, given(bias), seq_idx, initial_states},
                           {dx, dweight, dout, given(dbias), dfinal_states, dinitial_states}, use_silu, &p));
  AITER_TRY(cpu::check_settings());
  if (p.dim == 0) return Status();
  ChannelFilters filters;
  AITER_TRY(filters.expand(weight, &p));
  AITER_TRY(filters.expand_gradient(weight, &p));
  if (p.seqlen == 0 && dtype_size(x.dtype()) == 4) empty_gradients<float>(p);
  else if (p.seqlen == 0) empty_gradients<half_t>(p);
  AITER_TRY(Work(p, x.dtype()).run());
  filters.sum(dweight, p);
  return Status();
}

}  // namespace aiter::conv1d::bwd

AITER_EXPORT(causal_conv1d_bwd, conv1d::bwd::backward, arg("dx"), arg("dweight"), arg("dbias"), arg("x"), arg("weight"),
             arg("bias"), arg("dout"), flag("use_silu", false), none("seq_idx"), none("initial_states"),
             none("dfinal_states"), none("dinitial_states"))
