// causal_conv1d_fwd on the CPU.
//
// Tiling: 16 channels by 128 positions, gathered into floats with the width-1
// positions before them, convolved and scattered back. Tiles follow each other
// along whichever of the two is adjacent in memory.
// Bytes: x once (plus width-1 values a tile, from cache) and out once.
// Reduction: over the width, in fp32, for 16 channels at a time.

#include <aiter/dispatch.h>
#include <aiter/ffi.h>

#include "causal_conv1d_cpu.h"

namespace aiter::conv1d::fwd {

// Worker holds the memory of one tile.
template <class T> class Worker {
 public:
  explicit Worker(const Forward& p) : p_(p) {}

  bool prepare() { return filter_.grow(p_.width) && x_.grow(kTokens + p_.width - 1) && y_.grow(kTokens); }

  // run computes the rows of channels c, block by block of positions.
  void run(const Channels& c, int64_t from, int64_t to) {
    filter_.read(p_, c);
    for (int64_t t = from; t < to; t += kTokens) tile(c, t, least(kTokens, to - t));
  }

 private:
  void tile(const Channels& c, int64_t t, int64_t n) {
    gather_values<T>(p_, c, t - (p_.width - 1), n + p_.width - 1, x_.row(0));
    for (int64_t i = 0; i < n; i++) {
      float* y = y_.row(i);
      filter_.sum(p_, c.b, t + i, x_.row(i), y);
      if (p_.silu) activate(y);
      if (p_.seq.data && p_.sequence(c.b, t + i) < 0)
        for (int j = 0; j < kLanes; j++) y[j] = 0.0f;
    }
    scatter<T>(p_.out, c, t, n, y_.row(0));
  }

  static void activate(float* y) {
    float s[kLanes];
    sigmoid(y, s);
    for (int j = 0; j < kLanes; j++) y[j] *= s[j];
  }

  const Forward& p_;
  Filter filter_;
  Buffer x_, y_;
};

template <class T> Status run(const Forward& p) {
  Worker<T> worker(p);
  if (!worker.prepare()) return no_memory();
  const int64_t stretch = p.channel_last ? kTokens : p.seqlen;  // positions before the next channels
  for (int64_t b = 0; b < p.batch; b++) {
    for (int64_t t = 0; t < p.seqlen; t += stretch)
      for (int64_t d = 0; d < p.dim; d += kLanes)
        worker.run({b, d, int(least(kLanes, p.dim - d))}, t, least(p.seqlen, t + stretch));
    for (int64_t d = 0; p.final.data && d < p.dim; d++) final_states<T>(p, b, d);
  }
  return Status();
}

static Status forward(TensorView out, TensorView x, TensorView weight, Optional<TensorView> bias, bool use_silu,
                      Optional<TensorView> seq_idx, Optional<TensorView> initial_states,
                      Optional<TensorView> final_states_out) {
  Forward p{};
  AITER_TRY(check_forward({x, weight, given(bias), seq_idx, initial_states}, out, final_states_out, use_silu, &p));
  return dispatch_float(x, [&](auto zero) { return run<decltype(zero)>(p); });
}

}  // namespace aiter::conv1d::fwd

AITER_EXPORT(causal_conv1d_fwd, conv1d::fwd::forward, arg("out"), arg("x"), arg("weight"), none("bias"),
             flag("use_silu", false), none("seq_idx"), none("initial_states"), none("final_states_out"))
