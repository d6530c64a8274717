// The backward pass over tiles, for every layout and with sequence numbers.
// Included once a level (aiter/cpu_each.h).
//
// Tiling: 32 channels by 64 positions as floats, W-1 positions more on either side:
// x, then g from the sums before the activation, which are computed again, then dx,
// which is scattered back. Filters wider than 32 take memory from the heap.
// Bytes: x and dout once (and W-1 positions a tile from cache), dx once.
// Reduction: dx over the width in fp32. dweight and dbias over a tile in fp32, and
// over the tiles in double.

namespace aiter::AITER_LEVEL::conv1d::bwd {

// Row is a position's channels.
struct Row {
  F v[kChannels / kLanes];

  AITER_HOT Row() {
    for (F& f : v) f = F{};
  }
  AITER_HOT void to(float* p) const {
    for (int i = 0; i < kChannels / kLanes; i++) store(p + i * kLanes, v[i]);
  }
  AITER_HOT void add_product(const float* a, const float* b) {
    for (int i = 0; i < kChannels / kLanes; i++) v[i] = load(a + i * kLanes) * load(b + i * kLanes) + v[i];
  }
  AITER_HOT void add(const float* a) {
    for (int i = 0; i < kChannels / kLanes; i++) v[i] += load(a + i * kLanes);
  }
};

class Tile {
 public:
  Tile(const Backward& problem, DType type, double* totals)
      : p_(problem), dtype_(type), totals_(totals), halo_(problem.width - 1) {}

  bool prepare() {
    return halo_ <= (INT64_MAX >> 8) && filter_.taps.grow(p_.width) && x_.grow(kTokens + 2 * halo_) &&
           g_.grow(kTokens + halo_ + 2) && dx_.grow(kTokens + halo_ + 2) && dfinal_.grow(halo_);
  }
  void take(int64_t d, int count) { c_ = {0, d, count}, filter_.read(p_, c_); }

  void run(int64_t b, int64_t from, int64_t to) {
    c_.b = b;
    if (p_.dfinal.data) gather(p_.dfinal, dtype_, c_, 0, halo_, dfinal_.row(0));
    for (int64_t t = from; t < to; t += kTokens) tile(t, least(kTokens, to - t));
    if (p_.dinitial.data && from == 0) initial();
  }

 private:
  // tile computes dx of n positions from t on, and their part of the totals.
  void tile(int64_t t, int64_t n) {
    const int64_t known = least(n + halo_, p_.seqlen - t);  // rows of g
    gradients(t, known);
    for (int64_t i = 0; i < n; i++) input_gradient(t + i, t, known).to(dx_.row(i));
    scatter(p_.dx, dtype_, c_, t, n, dx_.row(0));
    for (int64_t k = 0; k < p_.width; k++) add_weight(t, n, k);
    Row sum;
    for (int64_t i = 0; i < n; i++) sum.add(g_.row(i));
    add(p_.width, sum);
  }

  // initial computes dinitial, which is dx of the positions before 0.
  void initial() {
    const int64_t known = least(halo_, p_.seqlen);
    gradients(0, known);
    for (int64_t i = 0; i < halo_; i++) input_gradient(i - halo_, 0, known).to(dx_.row(i));
    scatter(p_.dinitial, dtype_, c_, 0, halo_, dx_.row(0));
  }

  // gradients computes X from t-(W-1) on into x_, and g[t..t+n] into g_. dx_ holds the sums before the activation meanwhile.
  void gradients(int64_t t, int64_t n) {
    gather_values(p_, dtype_, c_, t - halo_, n + halo_, x_.row(0));
    gather(p_.dout, dtype_, c_, t, n, g_.row(0));
    if (p_.silu) {
      tile_sums(p_, filter_, c_.b, t, n, x_.row(0), dx_.row(0), false);
      apply_silu_grad(dx_.row(0), g_.row(0), n * kChannels, false);
    }
    for (int64_t i = 0; p_.seq.data && i < n; i++)
      if (p_.sequence(c_.b, t + i) < 0) Row().to(g_.row(i));
  }

  // input_gradient returns the gradient of X[t]; g_ holds g[from..from+known].
  Row input_gradient(int64_t t, int64_t from, int64_t known) const {
    Row sum;
    for (int64_t u = t < from ? from : t; u < from + known && u - t < p_.width; u++)
      if (!p_.seq.data || p_.visible(c_.b, p_.sequence(c_.b, u), t))
        sum.add_product(filter_.taps.row(p_.width - 1 - (u - t)), g_.row(u - from));
    const int64_t f = t - (p_.seqlen - halo_);
    if (p_.dfinal.data && f >= 0) sum.add(dfinal_.row(f));
    return sum;
  }

  void add_weight(int64_t t, int64_t n, int64_t k) {
    Row sum;
    for (int64_t i = 0; i < n; i++)
      if (!p_.seq.data || p_.visible(c_.b, p_.sequence(c_.b, t + i), t + i - halo_ + k)) sum.add_product(x_.row(i + k), g_.row(i));
    add(k, sum);
  }

  void add(int64_t k, const Row& sum) {
    float lane[kChannels];
    sum.to(lane);
    for (int j = 0; j < kChannels; j++) totals_[k * kChannels + j] += double(lane[j]);
  }

  const Backward& p_;
  const DType dtype_;
  double* const totals_;
  const int64_t halo_;  // W-1
  Channels c_{};
  Filter filter_;
  Buffer<kTokens + 2 * (kTileWidth - 1)> x_;
  Buffer<kTokens + kTileWidth + 1> g_, dx_;  // and what apply_silu_grad writes behind them
  Buffer<kTileWidth - 1> dfinal_;
};

// tiles computes units u..end of 32 channels, in order. A unit is kUnit positions of
// a batch. It returns false if memory runs out.
inline bool tiles(const Backward& p, DType dtype, int64_t group, int64_t u, int64_t end, double* totals) {
  Tile tile(p, dtype, totals);
  if (!tile.prepare()) return false;
  const int64_t d = group * kChannels, each = unit(p.width), per = pieces(p.seqlen, each);
  tile.take(d, int(least(kChannels, p.dim - d)));
  for (; u < end; u++) tile.run(u / per, u % per * each, least(u % per * each + each, p.seqlen));
  return true;
}

}  // namespace aiter::AITER_LEVEL::conv1d::bwd
