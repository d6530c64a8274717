// The backward pass over rows: adjacent positions of one channel. Included once a level (aiter/cpu_each.h).
//
// Tiling: 512 positions as floats in the L1 cache, W-1 more on either side: x, the sums before the activation, which are computed
// again, g from these, then dx. With more than 32 taps up to 4096 positions in the L2 cache, or four times the width. Rows of wide
// filters are transformed (cpu/long_row.h): the sums, dx and dweight.
// Bytes: x and dout once, dx once.
// Reduction: dx over the width in fp32. dweight and dbias in fp32, a lane for each position modulo 2*kLanes, over at most 4096
// positions, and over those in double; by transforms in double.

namespace aiter::AITER_LEVEL::conv1d::bwd {

using namespace aiter::conv1d;
using namespace aiter::conv1d::bwd;

constexpr int64_t kChunk = 512;

// apply_silu_grad multiplies n gradients g by the derivative of SiLU at the sums before the activation. It sets up to 4*kLanes
// behind them to zero, since subnormals are slow. brief: with the accuracy of float16, not of float32.
AITER_ONCE void apply_silu_grad(float* sums, float* g, int64_t n, bool brief) {
  for (int j = 0; j < 4; j++) store(sums + n + j * kLanes, zeros()), store(g + n + j * kLanes, zeros());
  for (int64_t i = 0; i < n; i += 4 * kLanes) {
    F y[4], e[4];
    for (int j = 0; j < 4; j++) y[j] = load(sums + i + j * kLanes);
    one_plus_exp<4>(y, e, brief ? DType::F16 : DType::F32);
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
  Sums(int64_t width, double* totals) : width_(width), totals_(totals) {}
  ~Sums() { flush(); }
  bool grow() {
    if (!lanes_.grow(pieces(width_, 4) * 4 * kLanes)) return false;
    clear();
    return true;
  }

  // add adds n positions; g is 0 behind them, up to 2*kLanes. x may be the row's last values there, which are left out, since 0
  // times infinity is not 0.
  AITER_HOT void add(const float* x, const float* g, int64_t n) {
    for (int64_t i = 0; i < n; i += kChunk) block(x + i, g + i, least(kChunk, n - i));
    if ((count_ += n) >= kUnit) flush();
  }

 private:
  AITER_HOT void block(const float* x, const float* g, int64_t n) {
    const int64_t rest = n % (2 * kLanes), whole = n - rest;
    const U low = take<U>(kFirst.lanes + 2 * kLanes - rest), high = take<U>(kFirst.lanes + 3 * kLanes - rest);
    for (int64_t k = 0; k < width_; k += 4) {
      F a[4], b[4], even = F{}, odd = F{};
      for (int j = 0; j < 4; j++) a[j] = load(lane(k + j)), b[j] = F{};
      for (int64_t i = 0; i < whole; i += 2 * kLanes) {
        const F u = load(g + i), v = load(g + i + kLanes);
        for (int j = 0; j < 4; j++) a[j] = load(x + i + k + j) * u + a[j], b[j] = load(x + i + k + j + kLanes) * v + b[j];
        if (k == 0) even += u, odd += v;
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
      for (int j = 0; j < 4; j++) store(lane(k + j), a[j] + b[j]);
    }
  }

  float* lane(int64_t k) const { return lanes_.data() + k * kLanes; }
  void clear() {
    memset(lanes_.data(), 0, pieces(width_, 4) * 4 * kLanes * sizeof(float));
    bias_ = F{}, count_ = 0;
  }
  void flush() {
    for (int64_t k = 0; k < width_; k++) totals_[k] += double(sum(load(lane(k))));
    totals_[width_] += double(sum(bias_));
    clear();
  }

  const int64_t width_;
  double* const totals_;
  Room<float, kGradWidth * kLanes> lanes_;  // taps beyond the width are computed, and ignored
  F bias_ = F{};
  int64_t count_ = 0;
};

// Chunk is a chunk's place and values.
struct Chunk {
  int64_t b, d, t, n, known, most;  // positions t..t+n, `most` at most; g of known positions
  RowFilter forward, back;          // from X to y, and from g to dx
  bool finite;                      // all taps are finite
  LongFilter ahead, behind, sums;   // spectra of forward and back, and of dweight, if there are transforms
  float *x, *g, *y;                 // y: then dx. W-1 zeros precede g.

  Chunk() = default;
  Chunk(const Chunk&) = delete;
  ~Chunk() { free(memory_); }

  bool grow(int64_t width, int64_t positions) {
    const int64_t size = long_size(width, least(unit(width), positions), 1, false), filter = size ? LongFilter::bytes(size) : 0;
    most = size ? unit(width) : least(unit(width), pieces(8 * width, 8 * kGradWidth) * kChunk);
    const int64_t each = pieces(most + 2 * (width - 1) + 4 * kLanes, kMaxLanes) * kMaxLanes,
        zeros = pieces(width - 1, kMaxLanes) * kMaxLanes;
    if (!forward.grow(width) || !back.grow(width) || (size && !LongFilter::prepare(size))) return false;
    // One piece of memory: of several the allocator would return some to the system each time.
    char* next = reinterpret_cast<char*>(own_);
    if (3 * each + zeros > kOwn || size) {
      next = static_cast<char*>(memory_ = aligned_alloc(64, 3 * filter + (3 * each + zeros) * sizeof(float)));
    }
    if (!next) return false;
    LongFilter* const all[] = {&ahead, &behind, &sums};
    for (LongFilter* f : all)
      if (size) f->place(next, size), next += filter;
    x = reinterpret_cast<float*>(next), y = x + each, g = y + each + zeros;
    memset(g - zeros, 0, zeros * sizeof(float));
    return true;
  }

  void read(const Problem& p, int64_t channel) {
    d = channel, forward.read(p, d), back.read(p, d);
    for (int64_t k = 0; k < p.width; k++) back.weight[k] = forward.weight[p.width - 1 - k];
    back.bias = 0.0f, back.silu = forward.silu = false;
    finite = true;
    for (int64_t k = 0; k < p.width; k++) finite &= __builtin_fabsf(forward.weight[k]) <= __FLT_MAX__;
    if (!sums.size) return;
    transform_filter(forward, &ahead), transform_filter(back, &behind);
    sums.clear();
  }

 private:
  static constexpr int64_t kOwn = 3 * (kChunk + 2 * kGradWidth + 4 * kMaxLanes) + kGradWidth;
  void* memory_ = nullptr;
  alignas(64) float own_[kOwn];
};

class ChannelFirst {
 public:
  // bypasses: dx may bypass the caches.
  // bypasses: stores of dx may bypass the caches. brief: SiLU's derivative is that of apply_silu_grad's brief.
  ChannelFirst(const Backward& problem, DType type, bool bypasses, bool brief)
      : p(problem), dtype(type), table(kernels(type)), floats(kernels(DType::F32)), size(dtype_size(type)),
        streams(bypasses && aiter::conv1d::streams(problem, type)), brief(brief) {}

  // run computes units u..end of channel d, in order. A unit is kUnit positions of a batch. It returns false if memory runs out.
  bool run(int64_t d, int64_t u, int64_t end, double* totals) const {
    Chunk c;
    Sums sums(p.width, totals);
    if (!c.grow(p.width, p.seqlen) || !sums.grow()) return false;
    c.read(p, d);
    const int64_t each = unit(p.width), per = pieces(p.seqlen, each);
    for (; u < end; u++) {
      c.b = u / per;
      const int64_t from = u % per * each, to = least(from + each, p.seqlen);
      for (c.t = from; c.t < to; c.t += c.most) {
        c.n = least(c.most, to - c.t), c.known = least(c.n + p.width - 1, p.seqlen - c.t);
        prefetch(p.x, c);
        gradients(&c);
        prefetch(p.dout, c);
        inputs(&c);
        if (p.dinitial.data && c.t == 0) initials(c);
        blank(c.x + c.n + p.width - 1, c.g + c.n);
        if (c.sums.size) correlate(&c, &sums);
        else sums.add(c.x, c.g, c.n);
      }
    }
    if (c.sums.size) add_correlations(p.width, &c.sums, totals);
    cpu::drain();
    return true;
  }

 private:
  // correlate is sums.add by transforms.
  void correlate(Chunk* c, Sums* sums) const {
    const int64_t step = c->sums.size - (p.width - 1);
    for (int64_t i = 0; i < c->n; i += 2 * step) {
      const int left = aiter::conv1d::correlate(c->x + i, c->g + i, c->n - i, p.width - 1, &c->sums, &c->ahead);
      for (int j = 0; j < 2; j++)
        if (left >> j & 1) apart(*c, i + j * step, least(step, c->n - i - j * step), sums);
    }
  }

  // apart adds positions from..from+n of a chunk to sums, from a copy of g, since others follow.
  void apart(const Chunk& c, int64_t from, int64_t n, Sums* sums) const {
    for (int64_t i = 0, m; i < n; i += m) {
      alignas(64) float g[kChunk + 2 * kLanes];
      m = least(kChunk, n - i);
      memcpy(g, c.g + from + i, m * sizeof(float)), memset(g + m, 0, 2 * kLanes * sizeof(float));
      sums->add(c.x + from + i, g, m);
    }
  }

  // filtered convolves n values by sums or by transforms.
  void filtered(const float* window, float* out, int64_t n, const RowFilter& taps, LongFilter* filter) const {
    if (filter->size) convolve_long(DType::F32, nullptr, window + p.width - 1, out, n, taps, filter);
    else floats.convolve(window, out, n, taps);
  }

  static AITER_HOT void blank(float* x, float* g) {
    for (int i = 0; i < 2; i++) store(x + i * kLanes, zeros()), store(g + i * kLanes, zeros());
  }

  char* row(const Array3& a, const Chunk& c, int64_t t) const {
    return static_cast<char*>(a.data) + (c.b * a.batch + c.d * a.dim + t * a.last) * size;
  }

  // prefetch loads what the next chunk reads into the cache. The hardware prefetcher stops at a page.
  void prefetch(const Array3& a, const Chunk& c) const {
    int64_t b = c.b, d = c.d, t = c.t + c.most;
    if (t >= p.seqlen) t = 0, b++;
    if (b == p.batch) b = 0, d++;
    if (d == p.dim) return;
    const char* next = static_cast<char*>(a.data) + (b * a.batch + d * a.dim + t * a.last) * size;
    for (int64_t i = 0; i < least(c.most, p.seqlen - t) * size; i += 64) __builtin_prefetch(next + i);
  }

  // gradients computes X from t-(W-1) on into x, and g, which is 0 behind the row as far as the filter reaches.
  void gradients(Chunk* c) const {
    const int64_t halo = p.width - 1, before = c->t < halo ? halo - c->t : 0;
    for (int64_t j = 0; j < before; j++) c->x[j] = p.initial.data ? aiter::load(row(p.initial, *c, c->t + j), dtype, 0) : 0.0f;
    table.widen(row(p.x, *c, c->t - halo + before), c->known + halo - before, c->x + before);
    table.widen(row(p.dout, *c, c->t), c->known, c->g);
    if (p.silu) {
      filtered(c->x, c->y, c->known, c->forward, &c->ahead);
      apply_silu_grad(c->y, c->g, c->known, brief);
    }
    memset(c->g + c->known, 0, (c->n + halo - c->known) * sizeof(float));
  }

  // inputs computes dx. Positions from which the filter reaches behind the row are summed separately where a 0 there is wrong: with
  // dfinal, and with a tap that is not finite.
  void inputs(Chunk* c) const {
    filtered(c->g, c->y, c->n, c->back, &c->behind);
    ends(*c, 0, c->n, c->y);
    table.narrow(c->y, c->n, row(p.dx, *c, c->t), streams);
  }

  // ends completes y, the gradients of X[t+from..t+to], which g behind the row has no part in: with a tap that is not finite they
  // are summed again.
  void ends(const Chunk& c, int64_t from, int64_t to, float* y) const {
    const int64_t first = c.known - (p.width - 1), dfinal = p.seqlen - (p.width - 1) - c.t;
    for (int64_t i = first > from ? first : from; !c.finite && i < to; i++) y[i - from] = one(c, i);
    for (int64_t i = dfinal > from ? dfinal : from; p.dfinal.data && i < to; i++) {
      y[i - from] += aiter::load(row(p.dfinal, c, i - dfinal), dtype, 0);
    }
  }

  // one returns the gradient of X[t+i], i > -W, without dfinal's part.
  float one(const Chunk& c, int64_t i) const {
    float y = 0.0f;
    for (int64_t k = i < 0 ? -i : 0; k < p.width && i + k < c.known; k++) y += c.back.weight[k] * c.g[i + k];
    return y;
  }

  void initials(const Chunk& c) const {
    const int64_t halo = p.width - 1;
    floats.convolve(c.g - halo, c.y, halo, c.back);
    for (int64_t i = -halo; !c.finite && i < 0; i++) c.y[i + halo] = one(c, i);
    ends(c, -halo, 0, c.y);
    for (int64_t i = 0; i < halo; i++) aiter::store(row(p.dinitial, c, i), dtype, 0, c.y[i]);
  }

  const Backward& p;
  const DType dtype;
  const Kernels &table, &floats;
  const int64_t size;
  const bool streams, brief;
};

inline bool rows(const Backward& p, DType dtype, int64_t d, int64_t u, int64_t end, double* totals) {
  return ChannelFirst(p, dtype, true, dtype_size(dtype) == 2).run(d, u, end, totals);
}

}  // namespace aiter::AITER_LEVEL::conv1d::bwd
