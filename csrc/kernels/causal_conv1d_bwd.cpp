// causal_conv1d_bwd on the CPU.
//
// Tiling: 16 channels by 128 positions, gathered into floats with width-1
// positions on either side; the sums before the activation are computed again
// from x, then g, then dx, which is scattered back.
// Bytes: x and dout once (plus the edges of a tile, from cache), dx once.
// Reduction: dx over the width in fp32. dweight and dbias over a tile in fp32 and
// over the tiles of a channel, in order, in double; one store at the end.

#include <aiter/dispatch.h>
#include <aiter/ffi.h>

#include "causal_conv1d_cpu.h"

namespace aiter::conv1d::bwd {

// Totals sums dweight and dbias of a tile's channels; the last row is dbias.
class Totals {
 public:
  ~Totals() { free(data_); }
  bool grow(int64_t width) {
    rows_ = width + 1;
    if (rows_ > INT64_MAX / int64_t(sizeof(double)) / kLanes) return false;
    data_ = static_cast<double*>(malloc(rows_ * kLanes * sizeof(double)));
    return data_ != nullptr;
  }
  void clear() {
    for (int64_t i = 0; i < rows_ * kLanes; i++) data_[i] = 0;
  }
  void add(int64_t k, const float* v) {
    for (int j = 0; j < kLanes; j++) data_[k * kLanes + j] += double(v[j]);
  }
  float get(int64_t k, int j) const { return float(data_[k * kLanes + j]); }

 private:
  double* data_ = nullptr;
  int64_t rows_ = 0;
};

// Worker holds the memory of one tile.
template <class T> class Worker {
 public:
  explicit Worker(const Backward& p) : p_(p), halo_(p.width - 1) {}

  bool prepare() {
    return halo_ <= (INT64_MAX >> 8) && filter_.grow(p_.width) && totals_.grow(p_.width) &&
           x_.grow(kTokens + 2 * halo_) && g_.grow(kTokens + halo_) && dx_.grow(kTokens + halo_) &&
           dfinal_.grow(halo_);
  }

  // run computes all gradients of count channels from d on.
  void run(int64_t d, int count) {
    Channels c{0, d, count};
    filter_.read(p_, c);
    totals_.clear();
    for (c.b = 0; c.b < p_.batch; c.b++) {
      if (p_.dfinal.data) gather<T>(p_.dfinal, c, 0, halo_, dfinal_.row(0));
      for (int64_t t = 0; t < p_.seqlen; t += kTokens) tile(c, t, least(kTokens, p_.seqlen - t));
      if (p_.dinitial.data) initial(c);
    }
    for (int j = 0; j < count; j++) {
      for (int64_t k = 0; k < p_.width; k++) p_.dweight.set(d + j, k, totals_.get(k, j));
      if (p_.dbias.data) p_.dbias.set(d + j, 0, totals_.get(p_.width, j));
    }
  }

 private:
  // tile: dx of n positions from t on, and their part of the totals.
  void tile(const Channels& c, int64_t t, int64_t n) {
    const int64_t known = least(n + halo_, p_.seqlen - t);  // rows of g
    gradients(c, t, known);
    for (int64_t i = 0; i < n; i++) input_gradient(c.b, t + i, t, known, dx_.row(i));
    scatter<T>(p_.dx, c, t, n, dx_.row(0));
    for (int64_t k = 0; k < p_.width; k++) add_weight(c.b, t, n, k);
    float sum[kLanes] = {};
    for (int64_t i = 0; i < n; i++)
      for (int j = 0; j < kLanes; j++) sum[j] += g_.row(i)[j];
    totals_.add(p_.width, sum);
  }

  // initial: dinitial, which is dx of the positions before 0.
  void initial(const Channels& c) {
    const int64_t known = least(halo_, p_.seqlen);
    gradients(c, 0, known);
    for (int64_t i = 0; i < halo_; i++) input_gradient(c.b, i - halo_, 0, known, dx_.row(i));
    scatter<T>(p_.dinitial, c, 0, halo_, dx_.row(0));
  }

  // gradients: X from t-(W-1) on into x_, and g[t..t+n] into g_.
  void gradients(const Channels& c, int64_t t, int64_t n) {
    gather_values<T>(p_, c, t - halo_, n + halo_, x_.row(0));
    gather<T>(p_.dout, c, t, n, g_.row(0));
    for (int64_t i = 0; i < n; i++) {
      float* g = g_.row(i);
      if (p_.silu) {
        float y[kLanes], s[kLanes];
        filter_.sum(p_, c.b, t + i, x_.row(i), y);
        sigmoid(y, s);
        for (int j = 0; j < kLanes; j++) g[j] *= s[j] * (1.0f + y[j] * (1.0f - s[j]));
      }
      if (p_.seq.data && p_.sequence(c.b, t + i) < 0)
        for (int j = 0; j < kLanes; j++) g[j] = 0.0f;
    }
  }

  // input_gradient: the gradient of X[t]; g_ holds g[from..from+known].
  void input_gradient(int64_t b, int64_t t, int64_t from, int64_t known, float* out) const {
    float sum[kLanes] = {};
    for (int64_t u = t < from ? from : t; u < from + known && u - t < p_.width; u++) {
      if (p_.seq.data && !p_.sees(b, p_.sequence(b, u), t)) continue;
      const float *w = filter_.tap(p_.width - 1 - (u - t)), *g = g_.row(u - from);
      for (int j = 0; j < kLanes; j++) sum[j] += w[j] * g[j];
    }
    const int64_t f = t - (p_.seqlen - halo_);
    if (p_.dfinal.data && f >= 0)
      for (int j = 0; j < kLanes; j++) sum[j] += dfinal_.row(f)[j];
    for (int j = 0; j < kLanes; j++) out[j] = sum[j];
  }

  void add_weight(int64_t b, int64_t t, int64_t n, int64_t k) {
    float sum[kLanes] = {};
    for (int64_t i = 0; i < n; i++) {
      if (p_.seq.data && !p_.sees(b, p_.sequence(b, t + i), t + i - halo_ + k)) continue;
      const float *x = x_.row(i + k), *g = g_.row(i);
      for (int j = 0; j < kLanes; j++) sum[j] += x[j] * g[j];
    }
    totals_.add(k, sum);
  }

  const Backward& p_;
  const int64_t halo_;  // W-1
  Filter filter_;
  Totals totals_;
  Buffer x_, g_, dx_, dfinal_;
};

template <class T> Status run(const Backward& p) {
  Worker<T> worker(p);
  if (!worker.prepare()) return no_memory();
  for (int64_t d = 0; d < p.dim; d += kLanes) worker.run(d, int(least(kLanes, p.dim - d)));
  return Status();
}

static Status backward(TensorView dx, TensorView dweight, Optional<TensorView> dbias, TensorView x, TensorView weight,
                       Optional<TensorView> bias, TensorView dout, bool use_silu, Optional<TensorView> seq_idx,
                       Optional<TensorView> initial_states, Optional<TensorView> dfinal_states,
                       Optional<TensorView> dinitial_states) {
  Backward p{};
  AITER_TRY(check_backward({x, weight, given(bias), seq_idx, initial_states},
                           {dx, dweight, dout, given(dbias), dfinal_states, dinitial_states}, use_silu, &p));
  return dispatch_float(x, [&](auto zero) { return run<decltype(zero)>(p); });
}

}  // namespace aiter::conv1d::bwd

AITER_EXPORT(causal_conv1d_bwd, conv1d::bwd::backward, arg("dx"), arg("dweight"), arg("dbias"), arg("x"), arg("weight"),
             arg("bias"), arg("dout"), flag("use_silu", false), none("seq_idx"), none("initial_states"),
             none("dfinal_states"), none("dinitial_states"))
