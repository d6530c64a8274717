// The choice and the launch of the kernels of tokens_gpu.h.
#pragma once

#include <aiter/dispatch.h>

#include "../common/any_width.h"
#include "tokens_gpu.h"

namespace aiter::conv1d::serve {

// TokenKernel is a kernel and the channels of its threads.
struct TokenKernel {
  void (*kernel)(KernelParam<Served>, FastDiv);
  int channels;
};

template <class T, int W, int C, TokenForm kForm, bool kOrdered> TokenKernel token_kernel() {
  return {causal_conv1d_serve_tokens_kernel<T, W, C, kForm, kOrdered>, C};
}

// one_token_kernel_of and packed_token_kernel_of select by the elements of x in a position: threads of fewer channels fill a GPU earlier.
template <class T> TokenKernel one_token_kernel_of(const Served& p) {
  constexpr TokenForm kOne = TokenForm::kOne;
  const int64_t n = p.batch * p.dim;
  if (n < 1 << 17) return token_kernel<T, 4, 2, kOne, false>();
  if constexpr (sizeof(T) == 2) {
    if (n < 1 << 20) return token_kernel<T, 4, 4, kOne, false>();
  }
  return token_kernel<T, 4, kVecElems<T>, kOne, false>();
}

template <class T, bool kOrdered> TokenKernel packed_token_kernel_of(const Served& p) {
  constexpr TokenForm kFew = TokenForm::kFew;
  if (p.batch * p.dim < 1 << 19) return token_kernel<T, 4, kVecElems<T> / 2, kFew, kOrdered>();
  return token_kernel<T, 4, kVecElems<T>, kFew, kOrdered>();
}

// kOrdered: sequences that share a slot run in order.
template <class T, bool kOrdered> TokenKernel token_kernel_of(const Served& p) {
  if constexpr (kHolds4) {
    const bool packed = p.packed_weight && p.width == 4 && p.weight.dtype == kDType<T> &&
                        (!p.bias.data || (p.packed_bias && p.bias.dtype == kDType<T>));
    const bool plain = packed && !p.parents.data && !p.window.data && !p.residual.data;
    const bool one = !p.starts.data && p.seqlen == 1 && !p.accepted.data && !p.first.data && !p.last.data;
    if constexpr (!kOrdered) {
      if (plain && one && p.kept == 3) return one_token_kernel_of<T>(p);
    }
    if (plain) return packed_token_kernel_of<T, kOrdered>(p);
    if (!kHolds8 || p.width <= 4) return token_kernel<T, 4, kVecElems<T> / 2, TokenForm::kAny, kOrdered>();
  }
  if constexpr (kHolds8) return token_kernel<T, 8, kVecElems<T> / 2, TokenForm::kAny, kOrdered>();
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
  return vectors && types && p.width >= 2 && p.width <= 8 && p.batch > 0 && p.dim <= INT32_MAX / 2 && p.seqlen <= INT32_MAX / 2 &&
         p.batch <= kMaxBlocks / ((p.dim + kTokenThreads * 2 - 1) / (kTokenThreads * 2));
}

inline Status launch(const TokenKernel& tokens, Served p, const OpStream& stream) {
  const int64_t each = kTokenThreads * tokens.channels, n = (p.dim + each - 1) / each;
  FastDiv chunks = make_fastdiv(n);
  void* args[] = {&p, &chunks};
  return launch_kernel(stream, reinterpret_cast<const void*>(tokens.kernel), {unsigned(p.batch * n), kTokenThreads, 0, 1, true}, args);
}

inline bool packed_weight(const Problem& p) {
  return p.weight.last == 1 && p.weight.first == p.width && (p.width == 4 || p.width == 8) && is_aligned(p.weight.data, 16);
}

inline bool packed_bias(const Problem& p) { return p.bias.first == 1 && is_aligned(p.bias.data, 16); }

}  // namespace aiter::conv1d::serve
