// The backward pass over rows of other layouts, for wide filters: 32 channels are transposed to rows of floats. Included once a level
// (aiter/cpu_each.h).
//
// Tiling: 32 channels by a unit of positions, W-1 positions more on either side of x and behind dout; cpu/bwd_channel_first.h has
// the work. dx takes dout's place, which is read before.
// Bytes: x and dout once (and W-1 positions a unit from cache), dx once.
// Reduction: as of rows, in units.

namespace aiter::AITER_LEVEL::conv1d::bwd {

class Transposed {
 public:
  Transposed(const Backward& problem, DType type, int64_t group)
      : p_(problem), dtype_(type), floats_(kernels(DType::F32)), halo_(problem.width - 1),
        span_(least(unit(problem.width), problem.seqlen)),
        stride_(pieces(span_ + 2 * halo_, kMaxLanes) * kMaxLanes + kMaxLanes), ends_(pieces(halo_ + 1, kMaxLanes) * kMaxLanes) {
    c_ = {0, group * kChannels, int(least(kChannels, p_.dim - group * kChannels))};
  }
  bool grow() {
    if (stride_ > INT64_MAX / 1024 || !memory_.grow(2 * kChannels * (stride_ + ends_)) || !sums_.grow(p_.width + 1)) return false;
    x_ = memory_.data(), g_ = x_ + kChannels * stride_, dfinal_ = g_ + kChannels * stride_, dinitial_ = dfinal_ + kChannels * ends_;
    return true;
  }

  // run computes positions from..to of a batch, which are a unit. It returns false if memory runs out.
  bool run(int64_t b, int64_t from, int64_t to, double* totals) {
    c_.b = b;
    const int64_t end = least(to + halo_, p_.seqlen);
    to_rows(from - halo_, end, x_, stride_, [&](int64_t t, int64_t n) { gather_values(p_, dtype_, c_, t, n, tile_); });
    to_rows(from, end, g_, stride_, [&](int64_t t, int64_t n) { gather(p_.dout, dtype_, c_, t, n, tile_); });
    if (p_.dfinal.data) to_rows(0, halo_, dfinal_, ends_, [&](int64_t t, int64_t n) { gather(p_.dfinal, dtype_, c_, t, n, tile_); });
    const Backward rows = problem(from);
    const ChannelFirst work(rows, DType::F32, false, dtype_size(dtype_) == 2);
    const int64_t u = from / unit(p_.width);
    for (int j = 0; j < c_.count; j++) {
      memset(sums_.data(), 0, (p_.width + 1) * sizeof(double));
      if (!work.run(j, u, u + 1, sums_.data())) return false;
      for (int64_t k = 0; k <= p_.width; k++) totals[k * kChannels + j] += sums_[k];
    }
    rows_to_tile(from, to, g_, stride_, p_.dx);
    if (rows.dinitial.data) rows_to_tile(0, halo_, dinitial_, ends_, p_.dinitial);
    return true;
  }

 private:
  // problem is that of the rows; position `from` is the first one of g_.
  Backward problem(int64_t from) const {
    Backward q = p_;
    const Array3 g{g_ - from, 0, stride_, 1};
    q.batch = 1, q.dim = c_.count, q.channel_last = false;
    q.x = {x_ + halo_ - from, 0, stride_, 1}, q.dout = q.dx = g;
    q.initial = from == 0 ? Array3{x_, 0, stride_, 1} : Array3{};
    if (p_.dfinal.data) q.dfinal = {dfinal_, 0, ends_, 1};
    q.dinitial = p_.dinitial.data && from == 0 ? Array3{dinitial_, 0, ends_, 1} : Array3{};
    q.weight = from_channel(p_.weight), q.bias = from_channel(p_.bias);
    return q;
  }

  Array2 from_channel(Array2 a) const {
    if (a.data) a.data = static_cast<char*>(a.data) + c_.d * a.first * dtype_size(a.dtype);
    return a;
  }

  // to_rows copies positions from..to, of which read(t, n) gathers some into tile_, to rows.
  template <class Read> void to_rows(int64_t from, int64_t to, float* rows, int64_t stride, const Read& read) {
    for (int64_t t = from, n; t < to; t += n) {
      n = least(kTokens, to - t), read(t, n), floats_.tile_to_rows(tile_, n, rows + t - from, stride);
    }
  }
  void rows_to_tile(int64_t from, int64_t to, const float* rows, int64_t stride, const Array3& a) {
    for (int64_t t = from, n; t < to; t += n) {
      n = least(kTokens, to - t), floats_.rows_to_tile(rows + t - from, stride, n, tile_);
      scatter(a, dtype_, c_, t, n, tile_);
    }
  }

  const Backward& p_;
  const DType dtype_;
  const Kernels& floats_;
  const int64_t halo_, span_, stride_, ends_;  // W-1; positions; from a row to the next one, and of rows of states
  Channels c_;
  float *x_, *g_, *dfinal_, *dinitial_;
  Room<float, 1> memory_;
  Room<double, kRowWidth> sums_;  // of a channel
  float tile_[kTokens * kChannels];
};

// transposed computes units u..end of 32 channels, in order. It returns false if memory runs out.
inline bool transposed(const Backward& p, DType dtype, int64_t group, int64_t u, int64_t end, double* totals) {
  Transposed rows(p, dtype, group);
  if (!rows.grow()) return false;
  for (const int64_t each = unit(p.width), per = pieces(p.seqlen, each); u < end; u++)
    if (!rows.run(u / per, u % per * each, least(u % per * each + each, p.seqlen), totals)) return false;
  return true;
}

}  // namespace aiter::AITER_LEVEL::conv1d::bwd
