// The causal_conv1d kernels on the CPU: a table of the functions that are compiled for each instruction set, and what the
// operators share. Elements are copied as bits of their size, and computed with as floats.
#pragma once

#include <aiter/cpu_parallel.h>

#include "../common/problem.h"

namespace aiter::conv1d {

constexpr int64_t kRowWidth = 64;                  // the widest filter of rows that lies on the stack
constexpr int64_t kTokenWidth = 8;                 // the widest filter for whole blocks of tokens
constexpr int64_t kMostTokenWidth = 32;            // the widest filter for tokens: its blocks have fewer channels
constexpr int64_t kLongWidth = 48;                 // the narrowest filter of rows that may be transformed
constexpr int64_t kMaxLanes = 16;                  // floats in the widest vector
constexpr int64_t kBlock = 512;                    // channels of a block of tokens at most,
constexpr int64_t kMaxBlock = kBlock + kMaxLanes;  // and a few more in the last block
constexpr int kChannels = 32;                      // channels in a tile
constexpr int64_t kTokens = 64;                    // positions in a tile
constexpr int64_t kTileWidth = 32;                 // the widest filter whose tile lies on the stack

inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t pieces(int64_t n, int64_t piece) { return (n + piece - 1) / piece; }

// streams reports whether an output of x's shape should bypass the caches, since it is much larger than they are.
inline bool streams(const Problem& p, DType dtype) { return p.batch * p.dim * p.seqlen >= (16 << 20) / dtype_size(dtype); }

// Room is memory for elements: its own, or the heap's if that does not suffice.
template <class T, int64_t kOwn> class Room {
 public:
  Room() = default;
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  ~Room() {
    if (data_ != room_) free(data_);
  }
  // grow is called once. It returns false if memory runs out.
  bool grow(int64_t n) {
    if (n <= kOwn) return true;
    T* more = n > INT64_MAX / int64_t(sizeof(T)) ? nullptr : static_cast<T*>(malloc(n * sizeof(T)));
    if (more) data_ = more;
    return more != nullptr;
  }
  T* data() const { return data_; }
  T& operator[](int64_t i) const { return data_[i]; }

 private:
  T room_[kOwn];
  T* data_ = room_;
};

// RowFilter is the filter of a row.
struct RowFilter {
  Room<float, kRowWidth> weight;
  float bias;
  int64_t width;
  bool silu, streams = false;  // streams: stores of out bypass the caches

  bool grow(int64_t w) { return weight.grow(w); }
  void read(const Problem& p, int64_t d) {
    for (int64_t k = 0; k < p.width; k++) weight[k] = p.weight.get(d, k);
    bias = p.bias.data ? p.bias.get(d, 0) : 0.0f;
    width = p.width, silu = p.silu;
  }
};

// token_block returns the channels of a block of tokens at most: fewer for filters of more than kTokenWidth taps, so that a filter and a
// window of x fit into the L1 cache.
inline int64_t token_block(int64_t width, int64_t most) {
  return width <= kTokenWidth || width > kMostTokenWidth
      ? most : least(most, kTokenWidth * kMaxBlock / width / kMaxLanes * kMaxLanes - kMaxLanes);
}

// long_size returns the values of the transforms with which rows of n positions are convolved fastest (cpu/long_row.h), or 0 if
// sums are faster. It depends on the shape alone. filters: rows that share a filter; tile: rows are columns of tiles.
inline int64_t long_size(int64_t width, int64_t n, int64_t filters, bool tile) {
  // Picoseconds a product, a position, a value, a value and step.
  constexpr int64_t kSum = 24, kTileSum = 22, kTranspose = 600, kValue = 250, kStep = 110;
  if (width < kLongWidth || n <= 0 || n > INT64_MAX >> 24 || filters > (INT64_MAX >> 20) / n || width > INT64_MAX >> 24) return 0;
  const int64_t sums = tile ? kTileSum : kSum, transposes = tile ? kTranspose * n * filters : 0;
  int64_t best = width > (INT64_MAX - transposes) / sums / n / filters ? INT64_MAX : n * filters * width * sums - transposes,
      found = 0, steps = 8;
  for (int64_t size = 256; size < 4 * (width + n); size *= 2, steps++) {
    if (size < width + kMaxLanes) continue;
    const int64_t pairs = pieces(pieces(n, size - width + 1), 2) * filters;
    // Below AVX2 vectors have two doubles.
    const int64_t cost = (2 * pairs + 1) * size * (kValue + steps * kStep) * (cpu::settings().level < cpu::kAvx2 ? 3 : 2) / 2;
    if (cost < best) best = cost, found = size;
  }
  return found;
}

// LongFilter is the spectrum of a row's filter, and the memory for blocks of `size` values.
struct LongFilter {
  int64_t size = 0;
  bool finite;
  double *spectrum, *work;
  double total;  // of correlations: of g

  void clear() { memset(spectrum, 0, 2 * size * sizeof(double)), total = 0; }

  LongFilter() = default;
  LongFilter(const LongFilter&) = delete;
  ~LongFilter() { free(memory_); }

  // grow takes a size of long_size. It returns false if memory runs out.
  bool grow(int64_t n);
  // place takes memory of bytes(n) instead, after prepare(n). It begins at a multiple of 64.
  static bool prepare(int64_t n);
  static int64_t bytes(int64_t n) { return 4 * n * int64_t(sizeof(double)) + 3 * (n + 4 * kMaxLanes) * int64_t(sizeof(float)); }
  void place(void* memory, int64_t n) {
    size = n, spectrum = static_cast<double*>(memory), work = spectrum + 2 * n, blocks_ = reinterpret_cast<float*>(work + 2 * n);
  }
  // block is one of 3 with memory for `size` floats, and four vectors behind them.
  float* block(int i) const { return blocks_ + i * (size + 4 * kMaxLanes); }

 private:
  void* memory_ = nullptr;
  float* blocks_;
};

// ChannelLastFilter is the filter of a block of channels, tap by tap.
struct ChannelLastFilter {
  float weight[kTokenWidth * kMaxBlock], bias[kMaxBlock];
  int64_t width, channels;
  bool silu;

  void read(const Problem& p, int64_t d, int64_t count);

 private:
  template <class T> void column(const Array2& a, int64_t d, int64_t k, float* to) const;
};

struct Filter;

// Side is some channels of a filter, and the use of their sums.
struct Side {
  const float *weight, *bias;
  int64_t width, next, channels;  // next: from a tap to the next one
  DType rounded;                  // to what the sums are rounded
  bool silu, streams;             // streams: stores bypass the caches

  Side(const ChannelLastFilter& f, int64_t first, int64_t n, DType r, bool s)
      : weight(f.weight + first), bias(f.bias + first), width(f.width), next(f.channels), channels(n), rounded(r), silu(f.silu),
        streams(s) {}
  Side(const Filter& f, int64_t w, bool activate);
};

// Buffer is rows of kChannels floats: its own memory, or the heap's if that does not suffice.
template <int64_t kRows> class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  ~Buffer() {
    if (data_ != room_) free(data_);
  }
  bool grow(int64_t rows) {
    if (rows <= kRows) return true;
    if (rows > INT64_MAX / int64_t(sizeof(float)) / kChannels) return false;
    float* more = static_cast<float*>(malloc(rows * kChannels * sizeof(float)));
    if (more) data_ = more;
    return more != nullptr;
  }
  float* row(int64_t i) const { return data_ + i * kChannels; }

 private:
  float room_[kRows * kChannels];
  float* data_ = room_;
};

// Channels are neighbouring channels of one batch.
struct Channels {
  int64_t b, d;
  int count;  // 1 to kChannels
};

// Filter is the weight and the bias of a tile's channels.
struct Filter {
  Buffer<kTileWidth> taps;
  float bias[kChannels];

  void read(const Problem& p, const Channels& c) {
    for (int64_t k = 0; k < p.width; k++) row(p.weight, c, k, taps.row(k));
    row(p.bias, c, 0, bias);
  }

 private:
  static void row(const Array2& a, const Channels& c, int64_t k, float* to) {
    for (int j = 0; j < kChannels; j++) to[j] = j < c.count && a.data ? a.get(c.d + j, k) : 0.0f;
  }
};

inline Side::Side(const Filter& f, int64_t w, bool activate)
    : weight(f.taps.row(0)), bias(f.bias), width(w), next(kChannels), channels(kChannels), rounded(DType::F32), silu(activate),
      streams(false) {}

// Blocks divides channels into ranges of `block`; the last has a few more, so that none has fewer than a vector if dim has not.
struct Blocks {
  int64_t dim, block, count;
  Blocks(int64_t d, int64_t size) : dim(d), block(size), count(d / size + (d % size >= kMaxLanes || d < size)) {}
  int64_t first(int64_t i) const { return i * block; }
  int64_t size(int64_t i) const { return i + 1 < count ? block : dim - i * block; }
  int64_t most() const { return size(count - 1) > block ? size(count - 1) : least(dim, block); }
};

// PositionRun is a run of positions of a block of channels.
struct PositionRun {
  const void* x;  // position 0; others may precede it
  void* out;
  int64_t x_stride, out_stride;  // elements
  const void* before;            // rows for the positions before 0
  bool streams;                  // stores of out bypass the caches
};

// Kernels is the functions of an element type at one level. Pointers may have any alignment of their element type.
struct Kernels {
  // convolve computes n adjacent positions; window is X from W-1 positions before the first on.
  void (*convolve)(const void* window, void* out, int64_t n, const RowFilter& taps);
  // tile_to_rows writes n positions of a tile of floats to the rows of its channels, rows_to_tile the reverse.
  void (*tile_to_rows)(const float* tile, int64_t n, float* rows, int64_t stride);
  void (*rows_to_tile)(const float* rows, int64_t stride, int64_t n, float* tile);
  // strip computes positions from..to.
  void (*strip)(const PositionRun& strip, int64_t from, int64_t to, const ChannelLastFilter& taps);
  // tokens computes count positions of floats; x is X from W-1 positions before the first on.
  void (*tokens)(const float* x, int64_t x_stride, float* out, int64_t out_stride, int64_t count, const Side& side);
  // step computes one position of channels whose slots hold three values each, and moves these.
  void (*step)(void* slots, const void* x, void* out, const ChannelLastFilter& taps);
  // widen and narrow convert n adjacent elements to and from floats; streams: stores bypass the caches.
  void (*widen)(const void* from, int64_t n, float* to);
  void (*narrow)(const float* from, int64_t n, void* to, bool streams);
  // widen_tile and narrow_tile convert n positions of up to kChannels adjacent channels to and from a tile. stride: elements from a
  // position to the next one.
  void (*widen_tile)(const void* from, int64_t stride, int64_t n, int64_t channels, float* tile);
  void (*narrow_tile)(const float* tile, int64_t n, int64_t channels, void* to, int64_t stride);
};

// kernels returns the functions of the type for settings().level.
const Kernels& kernels(DType dtype);

// convolve_long is Kernels::convolve by transforms (cpu/long_row.h), for a filter of which transform_filter has made the spectrum.
// before: the W-1 values before x, or null if x has them. out may begin W-1 values before x.
void convolve_long(DType dtype, const void* before, const void* x, void* out, int64_t n, const RowFilter& taps, LongFilter* filter);
void transform_filter(const RowFilter& taps, LongFilter* filter);

// correlate adds to sums, for each tap k, the products of g and of x k positions further, n of them, up to two blocks. It returns
// bit i for each block i that it left out, since its values need a direct sum. other's memory is used.
int correlate(const float* x, const float* g, int64_t n, int64_t halo, LongFilter* sums, LongFilter* other);
// add_correlations adds the sums of the taps, and that of g, to totals.
void add_correlations(int64_t width, LongFilter* sums, double* totals);

// tile_sums computes n positions from t on of a row's tile: x holds X from t-(W-1)
// on. activate: with SiLU if the problem has it, and zeros at padding.
void tile_sums(const Problem& p, const Filter& filter, int64_t b, int64_t t, int64_t n, const float* x, float* y, bool activate);

// gather reads positions from..from+n of an array into rows.
void gather(const Array3& a, DType dtype, const Channels& c, int64_t from, int64_t n, float* rows);
// scatter writes rows to positions from..from+n of an array.
void scatter(const Array3& a, DType dtype, const Channels& c, int64_t from, int64_t n, const float* rows);

// gather_values reads X[from..from+n], initial states and zeros included.
inline void gather_values(const Problem& p, DType dtype, const Channels& c, int64_t from, int64_t n, float* rows) {
  const int64_t before = least(from < 0 ? -from : 0, n);
  if (before > 0 && p.initial.data) gather(p.initial, dtype, c, from + p.width - 1, before, rows);
  else memset(rows, 0, before * kChannels * sizeof(float));
  if (before < n) gather(p.x, dtype, c, from + before, n - before, rows + before * kChannels);
}

inline Status no_memory() { return runtime_error("out of memory for a tile"); }

// RowStart is the beginning of a row, computed from a copy behind the values before it.
template <class T> struct RowStart {
  Room<T, 2 * kRowWidth + kMaxLanes> values;

  bool grow(int64_t width) { return values.grow(2 * width + kMaxLanes); }

  // row computes n positions of x; values begin with the W-1 that come before.
  void row(const Kernels& kernels, const T* x, T* out, int64_t n, const RowFilter& taps) {
    const int64_t halo = taps.width - 1, m = least(n, halo > kRowWidth ? halo : kRowWidth);
    memcpy(values.data() + halo, x, m * sizeof(T));
    kernels.convolve(values.data(), out, m, taps);
    if (n > m) kernels.convolve(x + m - halo, out + m, n - m, taps);
  }
};

}  // namespace aiter::conv1d
