// rms_norm on the GPU, for hipcc and nvcc.
//
// Tiling: a team of threads computes a row: 32 lanes, or a block. Rows of whole 16-byte vectors stay in registers, up to
// kMaxVectors a thread; longer rows, and those of other strides or alignments, are read twice.
// Bytes: x once (twice where it is read twice, the second time mostly from cache), weight from cache, out once.
// Reduction: a thread's elements in fp32, then the team's threads in a fixed order.

#include <aiter/ffi.h>
#include <aiter/gpu.h>
#include <aiter/gpu/reduce.h>
#include <aiter/tuning.h>

#include "rms_norm.h"

namespace aiter::rms_norm {

constexpr int kLanes = 32;       // threads of a small team, part of a warp on each GPU
constexpr int kBlock = 256;      // threads of a block of small teams
constexpr int kMaxBlock = 512;   // threads of a block that is one team
constexpr int kMaxVectors = 8;   // vectors of a thread in registers
constexpr int kTwoPasses = 0;    // instead of a number of vectors: rows are read twice
constexpr int64_t kSmall = 1024; // elements of a row up to which a small team reads it element by element

// Team is the threads that compute a row together. All teams of a block do the same steps, since sum needs whole warps: a
// team without a row gets no elements.
template <bool kSmallTeam> struct Team {
  AITER_DEVICE static int size() { return kSmallTeam ? kLanes : int(blockDim.x); }
  AITER_DEVICE static int thread() { return kSmallTeam ? int(threadIdx.x) % kLanes : int(threadIdx.x); }
  AITER_DEVICE static int rows() { return kSmallTeam ? int(blockDim.x) / kLanes : 1; }  // of a block
  AITER_DEVICE static int64_t first() { return int64_t(blockIdx.x) * rows(); }
  AITER_DEVICE static int64_t step() { return int64_t(gridDim.x) * rows(); }
  AITER_DEVICE static int64_t row(int64_t first) { return kSmallTeam ? first + int(threadIdx.x) / kLanes : first; }

  // sum adds a value of each thread; parity alternates from call to call, 0 and 1.
  AITER_DEVICE static float sum(float v, int parity) {
    if constexpr (kSmallTeam) {
      float sums[1] = {v};
      warp_all_reduce(sums, 1, kLanes);
      return sums[0];
    } else {
      __shared__ float shared[2][32];
      return block_all_reduce(shared[parity], v);
    }
  }
};

// square_sum adds the squares of a vector to two sums.
template <class T, int N> AITER_DEVICE void square_sum(const Vec<T, N>& v, float (&sums)[2]) {
  AITER_UNROLL
  for (int k = 0; k < N; k++) sums[k % 2] = fmaf(v.value(k), v.value(k), sums[k % 2]);
}

// store_scaled writes v * factor * weight.
template <class T, class W, int N> AITER_DEVICE void store_scaled(T* out, const Vec<T, N>& v, float factor, const Vec<W, N>& weight) {
  float y[N];
  AITER_UNROLL
  for (int k = 0; k < N; k++) y[k] = v.value(k) * factor * weight.value(k);
  store_vec<T, N>(out, pack_vec<T, N>(y));
}

// kVectors vectors of each thread stay in registers; with kTwoPasses a row may have any number of vectors.
template <class T, class W, int kVectors, bool kSmallTeam>
__global__ void __launch_bounds__(kMaxBlock) rms_norm_vectorized_kernel(Problem p) {
  if constexpr (AITER_KERNEL_CODE) {
    constexpr int N = kVecElems<T>, kKept = kVectors == kTwoPasses ? 1 : kVectors;
    using Threads = Team<kSmallTeam>;
    const int thread = Threads::thread(), team = Threads::size();
    const W* weight = static_cast<const W*>(p.weight);
    int parity = 0;
    for (int64_t first = Threads::first(); first < p.rows.count; first += Threads::step(), parity ^= 1) {
      const int64_t row = Threads::row(first), vectors = row < p.rows.count ? p.dim / N : 0;
      int64_t begin[2];
      p.rows.locate(row, begin);
      const T* x = static_cast<const T*>(p.x) + begin[0];
      T* out = static_cast<T*>(p.out) + begin[1];
      Vec<T, N> kept[kKept];
      float sums[2] = {};
      if constexpr (kVectors == kTwoPasses) {
        for (int64_t j = thread; j < vectors; j += team) square_sum(load_vec<T, N>(x + j * N), sums);
      } else {
        AITER_UNROLL
        for (int i = 0; i < kKept; i++) {
          const int j = thread + i * team;
          if (j < vectors) kept[i] = load_vec<T, N>(x + j * N);
          else kept[i].clear();
        }
        AITER_UNROLL
        for (int i = 0; i < kKept; i++) square_sum(kept[i], sums);
      }
      const float factor = rsqrtf(Threads::sum(sums[0] + sums[1], parity) * p.inverse_dim + p.eps);
      if constexpr (kVectors == kTwoPasses) {
        for (int64_t j = thread; j < vectors; j += team)
          store_scaled(out + j * N, load_vec<T, N>(x + j * N), factor, load_vec<W, N>(weight + j * N));
      } else {
        AITER_UNROLL
        for (int i = 0; i < kKept; i++)
          if (const int j = thread + i * team; j < vectors) store_scaled(out + j * N, kept[i], factor, load_vec<W, N>(weight + j * N));
      }
    }
  }
}

// Any strides and alignments, element by element.
template <class T, bool kSmallTeam> __global__ void __launch_bounds__(kMaxBlock) rms_norm_kernel(Problem p) {
  if constexpr (AITER_KERNEL_CODE) {
    using Threads = Team<kSmallTeam>;
    int parity = 0;
    for (int64_t first = Threads::first(); first < p.rows.count; first += Threads::step(), parity ^= 1) {
      const int64_t row = Threads::row(first), dim = row < p.rows.count ? p.dim : 0;
      int64_t begin[2];
      p.rows.locate(row, begin);
      const T* x = static_cast<const T*>(p.x) + begin[0];
      T* out = static_cast<T*>(p.out) + begin[1];
      float sum = 0.0f;
      for (int64_t j = Threads::thread(); j < dim; j += Threads::size()) {
        const float v = to_float(x[j * p.x_stride]);
        sum = fmaf(v, v, sum);
      }
      const float factor = rsqrtf(Threads::sum(sum, parity) * p.inverse_dim + p.eps);
      for (int64_t j = Threads::thread(); j < dim; j += Threads::size())
        out[j * p.out_stride] = round_to<T>(to_float(x[j * p.x_stride]) * factor * load(p.weight, p.weight_dtype, j * p.weight_stride));
    }
  }
}

// aligned reports whether all rows begin at 16 bytes.
inline bool aligned(const void* data, const int64_t* strides, const Problem& p, int64_t size) {
  bool all = reinterpret_cast<uintptr_t>(data) % 16 == 0;
  for (int d = 0; d < p.rows.rank; d++) all &= strides[d] * size % 16 == 0;
  return all;
}

// vectorizes reports whether rows and weight are whole vectors.
template <class T> bool vectorizes(const Problem& p) {
  return p.dim % kVecElems<T> == 0 && p.x_stride == 1 && p.out_stride == 1 && p.weight_stride == 1 &&
         reinterpret_cast<uintptr_t>(p.weight) % 16 == 0 && aligned(p.x, p.rows.stride[0], p, sizeof(T)) &&
         aligned(p.out, p.rows.stride[1], p, sizeof(T));
}

inline LaunchConfig small_teams(const Problem& p) { return {grid_for((p.rows.count + kBlock / kLanes - 1) / (kBlock / kLanes)), kBlock}; }

template <class T, class W, int kVectors> Status launch_small_teams(const Problem& p, const OpStream& stream) {
  return launch(stream, rms_norm_vectorized_kernel<T, W, kVectors, true>, small_teams(p), p);
}

template <class T, class W, int kVectors> Status launch_blocks(const Problem& p, const OpStream& stream, int64_t threads) {
  return launch(stream, rms_norm_vectorized_kernel<T, W, kVectors, false>, {grid_for(p.rows.count), unsigned(threads)}, p);
}

// try_launch_team launches teams of `threads` threads, kLanes or whole waves. It takes a row whose vectors they hold in registers.
template <class T, class W> Attempt try_launch_team(const Problem& p, const OpStream& stream, int64_t vectors, int64_t threads) {
  const int64_t each = (vectors + threads - 1) / threads;
  if (threads == kLanes) {
    if (each == 1) return launched(launch_small_teams<T, W, 1>(p, stream));
    if (each == 2) return launched(launch_small_teams<T, W, 2>(p, stream));
    if (each <= 4) return launched(launch_small_teams<T, W, 4>(p, stream));
  } else if (threads >= 64 && threads <= kMaxBlock && threads % 64 == 0) {
    if (each <= 2) return launched(launch_blocks<T, W, 2>(p, stream, threads));
    if (each <= 4) return launched(launch_blocks<T, W, 4>(p, stream, threads));
    if (each <= kMaxVectors) return launched(launch_blocks<T, W, kMaxVectors>(p, stream, threads));
  }
  return {};
}

template <class T, class W> Status launch_vectorized(const Problem& p, const OpStream& stream) {
  const int64_t vectors = p.dim / kVecElems<T>;
  if (const int64_t team = tuned("team", 0))
    if (Attempt made = try_launch_team<T, W>(p, stream, vectors, team)) return *made;
  if (vectors <= kLanes) return launch_small_teams<T, W, 1>(p, stream);
  if (vectors <= kLanes * 2) return launch_small_teams<T, W, 2>(p, stream);
  if (vectors <= kLanes * 4) return launch_small_teams<T, W, 4>(p, stream);
  const auto threads = [&](int64_t each) { return (vectors + each * 64 - 1) / (each * 64) * 64; };  // whole waves
  if (vectors <= kMaxBlock * 2) return launch_blocks<T, W, 2>(p, stream, threads(2));
  if (vectors <= kMaxBlock * 4) return launch_blocks<T, W, 4>(p, stream, threads(4));
  if (vectors <= kMaxBlock * kMaxVectors) return launch_blocks<T, W, kMaxVectors>(p, stream, threads(kMaxVectors));
  return launch_blocks<T, W, kTwoPasses>(p, stream, kMaxBlock);
}

template <class T> Status launch(const Problem& p, const OpStream& stream) {
  if (vectorizes<T>(p)) {
    if (p.weight_dtype == kDType<T>) return launch_vectorized<T, T>(p, stream);
    return launch_vectorized<T, float>(p, stream);
  }
  if (p.dim <= kSmall) return launch(stream, rms_norm_kernel<T, true>, small_teams(p), p);
  return launch(stream, rms_norm_kernel<T, false>, {grid_for(p.rows.count), kMaxBlock}, p);
}

static Status forward(TensorView out, TensorView x, TensorView weight, double eps) {
  Problem p{};
  AITER_TRY(check(out, x, weight, eps, &p));
  if (x.empty()) return Status();
  DeviceGuard guard;
  AITER_TRY(guard.enter(x.device()));
  const OpStream stream = {static_cast<gpu_stream_t>(TVMFFIEnvGetStream(x.device().type, x.device().id)), "rms_norm"};
  return dispatch_float(x, [&](auto zero) { return launch<decltype(zero)>(p, stream); });
}

}  // namespace aiter::rms_norm

AITER_EXPORT(rms_norm, rms_norm::forward, arg("out"), arg("x"), arg("weight"), real("eps", 1e-6))
