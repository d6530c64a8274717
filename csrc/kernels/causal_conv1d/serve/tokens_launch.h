// The choice and the launch of the kernels of few.h and tokens.h.
#pragma once

#include <aiter/dispatch.h>
#include <aiter/tuning.h>

#include "few.h"
#include "tokens.h"

namespace aiter::conv1d::serve {

// TokenKernel is a kernel and the channels of its threads.
struct TokenKernel {
  void (*kernel)(KernelParam<Served>, FastDiv);
  int channels;
};

template <class T, int W, int C, TokenForm kForm, bool kOrdered> TokenKernel token_kernel() {
  return {causal_conv1d_serve_tokens_kernel<T, W, C, kForm, kOrdered>, C};
}

// plain_tokens reports whether p has nothing but tokens, states and indices.
inline bool plain_tokens(const Served& p) { return !p.parents.data && !p.window.data && !p.residual.data; }

// kOrdered: sequences that share a slot run in order. Below 2^19 elements in a position threads of fewer channels fill a GPU earlier.
template <class T, bool kOrdered> TokenKernel token_kernel_of(const Served& p) {
  if constexpr (kHolds4) {
    if (p.width == 4 && packed_filter(p, kDType<T>) && plain_tokens(p)) {
      if constexpr (!kOrdered) {
        constexpr int64_t kMost = kVecElems<T>;
        if (tuned_among("channels", p.batch * p.dim >= 1 << 19 ? kMost : kMost / 2, kMost / 2, kMost) == kMost)
          return token_kernel<T, 4, kVecElems<T>, TokenForm::kMany, kOrdered>();
      }
      return token_kernel<T, 4, kVecElems<T> / 2, TokenForm::kMany, kOrdered>();
    }
    if (!kHolds8 || p.width <= 4) return token_kernel<T, 4, kVecElems<T> / 2, TokenForm::kAny, kOrdered>();
  }
  if constexpr (kHolds8) return token_kernel<T, 8, kVecElems<T> / 2, TokenForm::kAny, kOrdered>();
}

// FewKernel is a kernel of few.h and the channels of its threads.
struct FewKernel {
  void (*kernel)(KernelParam<FewParams>);
  int channels;
};

// few_kernel_of_size selects by the elements of x in a position: threads of fewer channels fill a GPU earlier, with more work for each
// of them up to a larger size. The sizes are those of an H200.
template <class T, FilterKind kKind, class TW, bool kOrdered> FewKernel few_kernel_of_size(const Served& p) {
  const int64_t elements = p.batch * p.dim;
  const bool much = p.seqlen > 2 || (kOrdered && kDType<TW> != kDType<T>);
  int64_t plan = elements < (much ? 3 << 16 : 1 << 17) ? 2 : 4;
  if constexpr (kKind == FilterKind::kPartial && kDType<TW> == kDType<T> && kVecElems<T> > 4) {
    if (p.seqlen <= kFewTokens<kVecElems<T>>) {
      if (elements >= (p.seqlen == 1 ? 1 << 18 : 1 << 19)) plan = kVecElems<T>;
      if (tuned_among("channels", plan, 2, 4, kVecElems<T>) == kVecElems<T>)
        return {causal_conv1d_serve_few_kernel<T, kVecElems<T>, kKind, TW, kOrdered>, kVecElems<T>};
    }
  }
  if (tuned_among("channels", plan, 2, 4) == 2) return {causal_conv1d_serve_few_kernel<T, 2, kKind, TW, kOrdered>, 2};
  return {causal_conv1d_serve_few_kernel<T, 4, kKind, TW, kOrdered>, 4};
}

// few_kernel_of_width selects by the width of a packed filter of type TW.
template <class T, class TW, bool kOrdered> FewKernel few_kernel_of_width(const Served& p) {
  if (p.width < 4) return few_kernel_of_size<T, FilterKind::kPartial, TW, kOrdered>(p);
  return few_kernel_of_size<T, FilterKind::kPacked, TW, kOrdered>(p);
}

// few_kernel_of returns the kernel for p, which takes_few.
template <class T, bool kOrdered> FewKernel few_kernel_of(const Served& p) {
  return packed_filter(p, kDType<T>) ? few_kernel_of_width<T, T, kOrdered>(p) : few_kernel_of_width<T, float, kOrdered>(p);
}

// takes_few reports whether the kernels of few.h take p, of elements of type T, which takes_tokens.
template <class T> bool takes_few(const Served& p) {
  const auto small = [](int64_t stride) { return stride >= 0 && stride <= INT32_MAX / 8; };
  const auto rows = [=](const Array3& a) { return small(a.batch) && small(a.last); };
  bool offsets = rows(p.x) && rows(p.state) && small(p.table.row) && small(p.accepted.row);
  for (int i = 0; i < 3; i++) offsets = offsets && (!p.out[i].data || rows(p.out[i]));
  const bool slots = p.slots <= INT32_MAX && p.batch <= INT32_MAX && (!p.table.data || p.table.columns > 0);
  const bool indices = p.starts.data || p.first.data || p.last.data;
  const bool tokens = p.seqlen >= 1 && p.seqlen <= kFewTokens<4> && p.seqlen <= p.longest && !indices;
  const bool filter = p.width <= 4 && (packed_filter(p, kDType<T>) || packed_filter(p, DType::F32));
  return offsets && slots && tokens && filter && plain_tokens(p) && (p.accepted.data || p.kept == p.width - 1);
}

// takes_tokens reports whether the kernels take p, of elements of type T.
template <class T> bool takes_tokens(const Served& p) {
  constexpr int64_t kVec = kVecElems<T>;
  const auto rows = [](const Array3& a) {
    return a.dim == 1 && a.batch % kVec == 0 && a.last % kVec == 0 && is_aligned(a.data, 16);
  };
  bool vectors = p.dim % kVec == 0 && p.ends[0] % kVec == 0 && p.ends[1] % kVec == 0 && rows(p.x) && rows(p.state);
  for (int i = 0; i < 3; i++) vectors = vectors && (!p.out[i].data || rows(p.out[i]));
  vectors = vectors && (!p.residual.data || rows(p.residual));
  const bool types = p.state.dtype == kDType<T> && (!p.window.data || p.window.dtype == kDType<T>);
  return vectors && types && p.width >= 2 && !is_wide(p.width) && p.batch > 0 && p.dim <= INT32_MAX / 2 && p.seqlen <= INT32_MAX / 2 &&
         p.batch <= kMaxBlocks / ((p.dim + kTokenThreads * 2 - 1) / (kTokenThreads * 2));
}

inline ByteArray byte_array(const Indices& a) { return {a.data, uint32_t(a.row * (a.is_int64 ? 8 : 4))}; }

// few_threads returns the threads of a block. Sizes are those of an H200: blocks of 128 threads start earlier, by up to a sixth of the
// time in 2^19 elements. Above 2^20 elements with slots in order blocks of 64 are up to 5% faster.
inline unsigned few_threads(const Served& p, bool ordered) {
  const bool small = AITER_HIP || (ordered && p.batch * p.dim > 1 << 20);
  return unsigned(tuned_among("block", small ? 64 : kFewThreads, 64, kFewThreads));
}

// kEarlyBlocks is about the blocks of a launch that an H200 holds at once: the others start after the previous kernel has ended.
constexpr uint32_t kEarlyBlocks = 1056;

// few_early_blocks returns the blocks that guess their slots. The limits are measured: above them the instructions behind pdl_wait take
// longer than the loads.
template <class T> uint32_t few_early_blocks(const Served& p) {
  const int64_t most = p.accepted.data ? 1 << 17 : p.weight.dtype != kDType<T> ? 1 << 18 : INT64_MAX;
  return p.batch * p.dim <= most ? kEarlyBlocks : 0;
}

// launch_few launches a kernel for p, whose elements have `size` bytes, with `threads` threads a block.
inline Status launch_few(const FewKernel& few, const Served& p, int64_t size, unsigned threads, uint32_t early, const OpStream& stream) {
  const int64_t each = threads * few.channels, n = (p.dim + each - 1) / each;
  FewParams a{};
  a.x = p.x.data, a.state = p.state.data, a.x_batch = uint32_t(p.x.batch * size), a.x_last = uint32_t(p.x.last * size);
  a.state_batch = uint32_t(p.state.batch * size), a.state_last = uint32_t(p.state.last * size);
  for (int i = 0; i < 3; i++) {
    if (!p.out[i].data) continue;
    a.out[i] = static_cast<char*>(p.out[i].data) - p.begin_of(i) * size;
    a.out_batch[i] = uint32_t(p.out[i].batch * size), a.out_last[i] = uint32_t(p.out[i].last * size);
  }
  a.slots = byte_array(p.table), a.slots_int64 = p.table.is_int64;
  a.accepted = byte_array(p.accepted), a.accepted_int64 = p.accepted.is_int64;
  a.weight = p.weight, a.bias = p.bias;
  a.ends[0] = int32_t(p.ends[0]), a.ends[1] = int32_t(p.ends[1]), a.dim = int32_t(p.dim), a.batch = int32_t(p.batch);
  a.tokens = int32_t(p.seqlen), a.width = int32_t(p.width), a.slot_count = int32_t(p.slots);
  a.pad = p.pad >= 0 && p.pad <= INT32_MAX ? int32_t(p.pad) : -1;
  a.most_accepted = int32_t(min64(p.length - (p.width - 2), INT32_MAX));
  a.silu = p.silu, a.clears = p.clears, a.chunks = make_fastdiv(n), a.early = early;
  void* args[] = {&a};
  return launch_kernel(stream, reinterpret_cast<const void*>(few.kernel), {unsigned(p.batch * n), threads, 0, 1, true}, args);
}

inline Status launch(const TokenKernel& tokens, Served p, const OpStream& stream) {
  const int64_t each = kTokenThreads * tokens.channels, n = (p.dim + each - 1) / each;
  FastDiv chunks = make_fastdiv(n);
  void* args[] = {&p, &chunks};
  return launch_kernel(stream, reinterpret_cast<const void*>(tokens.kernel), {unsigned(p.batch * n), kTokenThreads, 0, 1, true}, args);
}

// launch_tokens launches the kernel of p, which takes_tokens. kOrdered: sequences that share a slot run in order.
template <class T, bool kOrdered> Status launch_tokens(const Served& p, const OpStream& stream) {
  if constexpr (kHolds4) {
    if (takes_few<T>(p) && !(kOrdered && (p.accepted.data || p.table.is_int64)) && tuned("kernel", 2) > 1) {
      const uint32_t early = few_early_blocks<T>(p);
      return launch_few(few_kernel_of<T, kOrdered>(p), p, sizeof(T), few_threads(p, kOrdered), early, stream);
    }
  }
  return launch(token_kernel_of<T, kOrdered>(p), p, stream);
}

}  // namespace aiter::conv1d::serve
