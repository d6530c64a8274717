// The backward pass over tokens: adjacent channels of one position. Included once a level (aiter/cpu_each.h).
//
// Tiling: up to 144 channels (80 from 9 taps on) by 16 positions as floats in the L1 cache: x, W-1 positions more before it; g, which keeps
// its last W-1 positions, from the sums before the activation, which are computed again; dx, W-1 positions behind. The next tile is
// prefetched meanwhile, row by row.
// Bytes: x and dout once (and W-1 positions a tile from cache), dx once.
// Reduction: dx over the width in fp32. dweight and dbias over 8 tiles in fp32, and over those in double.

namespace aiter::AITER_LEVEL::conv1d::bwd {

class ChannelLast {
 public:
  ChannelLast(const Backward& problem, DType type, const Blocks& blocks, int64_t block, double* totals)
      : p_(problem), dtype_(type), table_(kernels(type)), floats_(kernels(DType::F32)), size_(dtype_size(type)),
        d_(blocks.first(block)), n_(blocks.size(block)), wide_(blocks.most()), halo_(problem.width - 1),
        streams_(streams(problem, type)), totals_(totals) {
    forward_.read(p_, d_, n_), forward_.silu = false;
    back_.width = p_.width, back_.channels = n_, back_.silu = false;
    for (int64_t k = 0; k < p_.width; k++) memcpy(back_.weight + k * n_, forward_.weight + (halo_ - k) * n_, n_ * sizeof(float));
    memset(back_.bias, 0, n_ * sizeof(float));
    for (int64_t i = 0; i < p_.width * n_; i++) finite_ &= __builtin_fabsf(forward_.weight[i]) <= __FLT_MAX__;
    memset(x_, 0, sizeof x_);  // taps beyond the width read behind the last row: no subnormals there
  }

  // run computes positions from..to of a batch. It goes W-1 further for dx.
  void run(int64_t b, int64_t from, int64_t to) {
    b_ = b;
    memset(g_, 0, halo_ * n_ * sizeof(float));
    memset(part_, 0, sizeof part_);
    for (int64_t t = from, tiles = 1; t < to + halo_; t += kSpan, tiles++) {
      const int64_t m = least(kSpan, to + halo_ - t);
      gradients(t, m, least(to + halo_, p_.seqlen));
      if (t < to) sums(least(m, to - t));
      inputs(t - halo_, m, from, to);
      memmove(g_, g_ + m * n_, halo_ * n_ * sizeof(float));
      if (tiles % 8 == 0) flush();
    }
    flush();
    cpu::drain();
  }

 private:
  static constexpr int64_t kSpan = 16;  // positions

  char* element(const Array3& a, int64_t t) const {
    return static_cast<char*>(a.data) + (b_ * a.batch + d_ + t * a.last) * size_;
  }

  void prefetch(const Array3& a, int64_t t, int64_t end) const {
    for (int64_t i = 0; t < end && i < n_ * size_; i += 64) __builtin_prefetch(element(a, t) + i);
  }

  // before reads X[t] into a row, t < 0.
  void before(int64_t t, float* row) const {
    for (int64_t c = 0; c < n_; c++) row[c] = p_.initial.data ? aiter::load(state(p_.initial, c, t + halo_), dtype_, 0) : 0.0f;
  }

  // gradients computes X[t-(W-1)..t+m] into x_, and g[t..t+m], 0 behind the end, into g_. It reads nothing behind end.
  void gradients(int64_t t, int64_t m, int64_t end) {
    const int64_t known = least(m, p_.seqlen - t);
    float* g = g_ + halo_ * n_;
    if (known < m) memset(g + (known > 0 ? known : 0) * n_, 0, (m - (known > 0 ? known : 0)) * n_ * sizeof(float));
    if (known <= 0) return;
    for (int64_t i = 0; i < halo_ + known; i++) {
      if (i >= halo_) prefetch(p_.x, t - halo_ + i + kSpan, end);
      if (t - halo_ + i < 0) before(t - halo_ + i, x_ + i * n_);
      else table_.widen(element(p_.x, t - halo_ + i), n_, x_ + i * n_);
    }
    for (int64_t i = 0; i < known; i++) {
      prefetch(p_.dout, t + i + kSpan, end);
      table_.widen(element(p_.dout, t + i), n_, g + i * n_);
    }
    if (!p_.silu) return;
    floats_.tokens(x_, n_, y_, n_, known, {forward_, 0, n_, DType::F32, false});
    apply_silu_grad(y_, g, known * n_, size_ == 2);
    if (known < m) memset(g + known * n_, 0, (m - known) * n_ * sizeof(float));
  }

  // sums adds m positions' part of dweight and dbias.
  AITER_ONCE void sums(int64_t m) {
    for (int64_t c = 0; c < n_; c += kLanes) {
      const bool again = c > n_ - kLanes;
      const int64_t skip = again ? c - (n_ - kLanes) : 0;
      c -= skip;
      for (int64_t k = 0; k < p_.width; k += 4) {
        const float *x = x_ + k * n_ + c, *g = g_ + halo_ * n_ + c;
        F a[4], bias = F{};
        for (F& sum : a) sum = F{};
        for (int64_t i = 0; i < m; i++, x += n_, g += n_) {
          const F d = load(g);
          bias += d;
          for (int j = 0; j < 4; j++) a[j] = load(x + j * n_) * d + a[j];
        }
        for (int j = 0; j < 4; j++)
          if (k + j < p_.width) add(k + j, c, skip, a[j]);
        if (k == 0) add(p_.width, c, skip, bias);
      }
    }
  }

  // add leaves out the first `skip` lanes, which were added before.
  AITER_HOT void add(int64_t k, int64_t c, int64_t skip, F sum) {
    float lane[kLanes], *to = part_ + k * n_ + c;
    if (skip == 0) return store(to, load(to) + sum);
    give(lane, sum);
    for (int64_t j = skip; j < kLanes; j++) to[j] += lane[j];
  }

  void flush() {
    for (int64_t k = 0; k <= p_.width; k++)
      for (int64_t c = 0; c < n_; c++) totals_[k * wide_ + c] += double(part_[k * n_ + c]);
    memset(part_, 0, sizeof part_);
  }

  // inputs computes dx[t..t+m] from g_, which begins at t.
  void inputs(int64_t t, int64_t m, int64_t from, int64_t to) {
    floats_.tokens(g_, n_, y_, n_, m, {back_, 0, n_, DType::F32, false});
    for (int64_t i = 0; i < m; i++) {
      const int64_t u = t + i;
      float* row = y_ + i * n_;
      if (u >= to || (u < from && u >= 0)) continue;
      if (!finite_ && (u < 0 || u + halo_ >= p_.seqlen)) edge(u, g_ + i * n_, row);
      if (p_.dfinal.data && u >= p_.seqlen - halo_)
        for (int64_t c = 0; c < n_; c++) row[c] += aiter::load(state(p_.dfinal, c, u - (p_.seqlen - halo_)), dtype_, 0);
      if (u >= 0) table_.narrow(row, n_, element(p_.dx, u), streams_);
      else if (p_.dinitial.data && from == 0)
        for (int64_t c = 0; c < n_; c++) aiter::store(state(p_.dinitial, c, u + halo_), dtype_, 0, row[c]);
    }
  }

  // edge computes dx[u] from g[u..u+W-1], where some of these positions do not exist: their 0
  // times an infinite tap would be NaN.
  AITER_ONCE void edge(int64_t u, const float* g, float* row) const {
    memset(row, 0, n_ * sizeof(float));
    for (int64_t k = u < 0 ? -u : 0; k < p_.width && u + k < p_.seqlen; k++)
      for (int64_t c = 0; c < n_; c++) row[c] += back_.weight[k * n_ + c] * g[k * n_ + c];
  }

  AITER_ONCE char* state(const Array3& a, int64_t c, int64_t j) const {
    return static_cast<char*>(a.data) + (b_ * a.batch + (d_ + c) * a.dim + j * a.last) * size_;
  }

  const Backward& p_;
  const DType dtype_;
  const Kernels &table_, &floats_;
  const int64_t size_, d_, n_, wide_, halo_;  // channels d_..d_+n_; W-1
  const bool streams_;
  bool finite_ = true;  // all taps are finite
  double* const totals_;
  int64_t b_ = 0;
  ChannelLastFilter forward_, back_;              // from X to y, and from g to dx
  float part_[token_rows(1)];              // of totals_, since the last flush
  // Taps beyond the width are computed, and ignored.
  alignas(64) float x_[token_rows(3 + kSpan)], g_[token_rows(kSpan)], y_[(kSpan + 1) * (kTokenBlock + kMaxLanes)];
};

// tokens computes units u..end of a block of channels, in order. A unit is kUnit
// positions of a batch.
inline bool tokens(const Backward& p, DType dtype, int64_t block, int64_t u, int64_t end, double* totals) {
  const Blocks blocks = group_blocks(p.dim, p.width);
  ChannelLast tokens(p, dtype, blocks, block, totals);
  for (const int64_t per = pieces(p.seqlen, kUnit); u < end; u++) {
    const int64_t from = u % per * kUnit;
    tokens.run(u / per, from, least(from + kUnit, p.seqlen));
  }
  return true;
}

}  // namespace aiter::AITER_LEVEL::conv1d::bwd
