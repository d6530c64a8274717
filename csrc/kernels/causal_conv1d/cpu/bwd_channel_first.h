// The backward pass over rows: adjacent positions of one channel. Included once a level (aiter/cpu_each.h).
//
// Tiling: 512 positions as floats in the L1 cache, W-1 more on either side: x, the sums before the activation, which are computed
// again, g from these, then dx.
// Bytes: x and dout once, dx once.
// Reduction: dx over the width in fp32. dweight and dbias in fp32, a lane for each position modulo 2*kLanes, over at most 4096
// positions, and over those in double.

namespace aiter::AITER_LEVEL::conv1d::bwd {

using namespace aiter::conv1d;
using namespace aiter::conv1d::bwd;

constexpr int64_t kChunk = 512;
constexpr int64_t kPadded = kChunk + 2 * kGradWidth + 4 * kLanes;

// apply_silu_grad multiplies n gradients g by the derivative of SiLU at the sums before the activation. It sets up to 4*kLanes
// behind them to zero, since subnormals are slow.
AITER_ONCE void apply_silu_grad(float* sums, float* g, int64_t n, bool brief) {
  for (int j = 0; j < 4; j++) store(sums + n + j * kLanes, zeros()), store(g + n + j * kLanes, zeros());
  for (int64_t i = 0; i < n; i += 4 * kLanes) {
    F y[4], e[4];
    for (int j = 0; j < 4; j++) y[j] = load(sums + i + j * kLanes);
    one_plus_exp<4>(y, e, brief);
    for (int j = 0; j < 4; j++) {
      const F s = over(set(1.0f), e[j]);
      store(g + i + j * kLanes, load(g + i + j * kLanes) * (s * (y[j] * (1.0f - s) + 1.0f)));
    }
  }
}

// First is masks of the first lanes of two vectors: of `rest` lanes from 2*kLanes - rest on.
struct First {
  uint32_t lanes[4 * kLanes] = {};
  constexpr First() {
    for (int i = 0; i < 2 * kLanes; i++) lanes[i] = ~0u;
  }
};
constexpr First kFirst;

// Sums are dweight and dbias of a channel; the last is dbias.
class Sums {
 public:
  explicit Sums(int64_t width, double* totals) : width_(width), totals_(totals) { clear(); }
  ~Sums() { flush(); }

  // add adds n positions; g is 0 behind them, up to 2*kLanes. x may be the row's last values there, which are left out, since 0
  // times infinity is not 0.
  AITER_HOT void add(const float* x, const float* g, int64_t n) {
    const int64_t rest = n % (2 * kLanes), whole = n - rest;
    const U low = take<U>(kFirst.lanes + 2 * kLanes - rest), high = take<U>(kFirst.lanes + 3 * kLanes - rest);
    for (int64_t k = 0; k < width_; k += 4) {
      F a[4], b[4], even = F{}, odd = F{};
      for (int j = 0; j < 4; j++) a[j] = lane_[k + j], b[j] = F{};
      for (int64_t i = 0; i < whole; i += 2 * kLanes) {
        const F u = load(g + i), v = load(g + i + kLanes);
        for (int j = 0; j < 4; j++) a[j] = load(x + i + k + j) * u + a[j], b[j] = load(x + i + k + j + kLanes) * v + b[j];
        even += u, odd += v;
      }
      if (rest) {
        const F u = load(g + whole), v = load(g + whole + kLanes);
        for (int j = 0; j < 4; j++) {
          const float* from = x + whole + k + j;
          a[j] = floats(bits(load(from)) & low) * u + a[j], b[j] = floats(bits(load(from + kLanes)) & high) * v + b[j];
        }
        even += u, odd += v;
      }
      if (k == 0) bias_ += even + odd;
      for (int j = 0; j < 4; j++) lane_[k + j] = a[j] + b[j];
    }
    if ((count_ += n) >= kUnit) flush();
  }

 private:
  void clear() {
    for (int64_t k = 0; k < kGradWidth; k++) lane_[k] = F{};
    bias_ = F{}, count_ = 0;
  }
  void flush() {
    for (int64_t k = 0; k < width_; k++) totals_[k] += double(sum(lane_[k]));
    totals_[width_] += double(sum(bias_));
    clear();
  }

  const int64_t width_;
  double* const totals_;
  F lane_[kGradWidth], bias_;  // taps beyond the width are computed, and ignored
  int64_t count_;
};

// Chunk is a chunk's place and values.
struct Chunk {
  int64_t b, d, t, n, known;                             // positions t..t+n; g of known positions
  RowFilter forward, back;                               // from X to y, and from g to dx
  bool finite;                                           // all taps are finite
  alignas(64) float x[kPadded], g[kPadded], y[kPadded];  // y: then dx

  void read(const Problem& p, int64_t channel) {
    d = channel, forward.read(p, d), back = forward;
    for (int64_t k = 0; k < p.width; k++) back.weight[k] = forward.weight[p.width - 1 - k];
    back.bias = 0.0f, back.silu = forward.silu = false;
    finite = true;
    for (int64_t k = 0; k < p.width; k++) finite &= __builtin_fabsf(forward.weight[k]) <= __FLT_MAX__;
  }
};

class ChannelFirst {
 public:
  ChannelFirst(const Backward& problem, DType type)
      : p(problem), dtype(type), table(kernels(type)), floats(kernels(DType::F32)), size(dtype_size(type)),
        streams(aiter::conv1d::streams(problem, type)) {}

  // run computes units u..end of channel d, in order. A unit is kUnit positions of a batch.
  void run(int64_t d, int64_t u, int64_t end, double* totals) const {
    Chunk c;
    c.read(p, d);
    Sums sums(p.width, totals);
    const int64_t per = pieces(p.seqlen, kUnit);
    for (; u < end; u++) {
      c.b = u / per;
      const int64_t from = u % per * kUnit, to = least(from + kUnit, p.seqlen);
      for (c.t = from; c.t < to; c.t += kChunk) {
        c.n = least(kChunk, to - c.t), c.known = least(c.n + p.width - 1, p.seqlen - c.t);
        prefetch(p.x, c);
        gradients(&c);
        prefetch(p.dout, c);
        inputs(&c);
        if (p.dinitial.data && c.t == 0) initials(c);
        blank(c.x + c.n + p.width - 1, c.g + c.n);
        sums.add(c.x, c.g, c.n);
      }
    }
    cpu::drain();
  }

 private:
  static AITER_HOT void blank(float* x, float* g) {
    for (int i = 0; i < 2; i++) store(x + i * kLanes, zeros()), store(g + i * kLanes, zeros());
  }

  char* row(const Array3& a, const Chunk& c, int64_t t) const {
    return static_cast<char*>(a.data) + (c.b * a.batch + c.d * a.dim + t * a.last) * size;
  }

  // prefetch loads what the next chunk reads into the cache. The hardware prefetcher stops at a page.
  void prefetch(const Array3& a, const Chunk& c) const {
    int64_t b = c.b, d = c.d, t = c.t + kChunk;
    if (t >= p.seqlen) t = 0, b++;
    if (b == p.batch) b = 0, d++;
    if (d == p.dim) return;
    const char* next = static_cast<char*>(a.data) + (b * a.batch + d * a.dim + t * a.last) * size;
    for (int64_t i = 0; i < least(kChunk, p.seqlen - t) * size; i += 64) __builtin_prefetch(next + i);
  }

  // gradients computes X from t-(W-1) on into x, and g, which is 0 behind the row as far as the filter reaches.
  void gradients(Chunk* c) const {
    const int64_t halo = p.width - 1, before = c->t < halo ? halo - c->t : 0;
    for (int64_t j = 0; j < before; j++) c->x[j] = p.initial.data ? aiter::load(row(p.initial, *c, c->t + j), dtype, 0) : 0.0f;
    table.widen(row(p.x, *c, c->t - halo + before), c->known + halo - before, c->x + before);
    table.widen(row(p.dout, *c, c->t), c->known, c->g);
    if (p.silu) {
      floats.convolve(c->x, c->y, c->known, c->forward);
      apply_silu_grad(c->y, c->g, c->known, size == 2);
    }
    memset(c->g + c->known, 0, (c->n + halo - c->known) * sizeof(float));
  }

  // inputs computes dx. Positions from which the filter reaches behind the row are summed separately where a 0 there is wrong: with
  // dfinal, and with a tap that is not finite.
  void inputs(Chunk* c) const {
    floats.convolve(c->g, c->y, c->n, c->back);
    const int64_t from = c->known - (p.width - 1);
    if (p.dfinal.data || !c->finite)
      for (int64_t i = from > 0 ? from : 0; i < c->n; i++) c->y[i] = one(*c, i);
    table.narrow(c->y, c->n, row(p.dx, *c, c->t), streams);
  }

  // one returns the gradient of X[t+i], i > -W, with dfinal's part.
  float one(const Chunk& c, int64_t i) const {
    float y = 0.0f;
    for (int64_t k = i < 0 ? -i : 0; k < p.width && i + k < c.known; k++) y += c.back.weight[k] * c.g[i + k];
    const int64_t f = c.t + i - (p.seqlen - (p.width - 1));
    return p.dfinal.data && f >= 0 ? y + aiter::load(row(p.dfinal, c, f), dtype, 0) : y;
  }

  void initials(const Chunk& c) const {
    for (int64_t i = 0; i < p.width - 1; i++) aiter::store(row(p.dinitial, c, i), dtype, 0, one(c, i - (p.width - 1)));
  }

  const Backward& p;
  const DType dtype;
  const Kernels &table, &floats;
  const int64_t size;
  const bool streams;
};

inline bool rows(const Backward& p, DType dtype, int64_t d, int64_t u, int64_t end, double* totals) {
  ChannelFirst(p, dtype).run(d, u, end, totals);
  return true;
}

}  // namespace aiter::AITER_LEVEL::conv1d::bwd
