// A choice of experts with the signature of AIter's operator. One thread computes each token.
#include <hip/hip_bf16.h>
#include <hip/hip_fp16.h>

#include <string>

#include "aiter_stream.h"
#include "aiter_tensor.h"

enum Score { kSqrtSoftplus, kSigmoid, kSoftmax };

template <class T, class B>
__global__ void choose(const T* gating, const B* bias, float* weights, int32_t* ids, int experts, int topk, Score score, bool renorm,
                       float scale) {
  const int64_t token = blockIdx.x;
  gating += token * experts, weights += token * topk, ids += token * topk;
  float most = -INFINITY, all = 0, sum = 0;
  for (int e = 0; e < experts; e++) most = fmaxf(most, float(gating[e]));
  for (int e = 0; e < experts; e++) all += expf(float(gating[e]) - most);
  for (int k = 0; k < topk; k++) {
    float best = -INFINITY;
    for (int e = 0; e < experts; e++) {
      bool taken = false;
      for (int i = 0; i < k; i++) taken |= ids[i] == e;
      if (taken) continue;
      const float x = float(gating[e]);
      const float s = score == kSigmoid ? 1 / (1 + expf(-x)) : score == kSoftmax ? expf(x - most) / all : sqrtf(log1pf(expf(x)));
      if (const float rank = s + (bias ? float(bias[e]) : 0); rank > best) best = rank, ids[k] = e, weights[k] = s;
    }
    sum += weights[k];
  }
  for (int k = 0; k < topk; k++) weights[k] *= scale / (renorm ? sum : 1);
}

namespace aiter {

template <class T, class B>
void choose_of(aiter_tensor_t& weights, aiter_tensor_t& ids, aiter_tensor_t& gating, aiter_tensor_t& bias, Score score, bool renorm,
               float scale) {
  choose<T, B><<<dim3(gating.size(0)), dim3(1), 0, getCurrentHIPStream()>>>(
      static_cast<T*>(gating.ptr), static_cast<B*>(bias.ptr), static_cast<float*>(weights.ptr), static_cast<int32_t*>(ids.ptr),
      int(gating.size(1)), int(ids.size(1)), score, renorm, scale);
}

void topk_gating(aiter_tensor_t& topk_weights, aiter_tensor_t& topk_indices, aiter_tensor_t& gating_output, aiter_tensor_t& correction_bias,
                 bool need_renorm, float routed_scaling_factor, const std::string& score_func) {
  AITER_CHECK(score_func == "softmax" || score_func == "sigmoid" || score_func == "sqrtsoftplus", "unknown score_func ", score_func);
  AITER_CHECK(topk_indices.size(1) <= gating_output.size(1), "more results than experts");
  const Score score = score_func == "softmax" ? kSoftmax : score_func == "sigmoid" ? kSigmoid : kSqrtSoftplus;
  const auto go = [&](auto f) { f(topk_weights, topk_indices, gating_output, correction_bias, score, need_renorm, routed_scaling_factor); };
  const bool small = correction_bias.dtype() == AITER_DTYPE_bf16;
  switch (gating_output.dtype()) {
    case AITER_DTYPE_fp32: return small ? go(choose_of<float, __hip_bfloat16>) : go(choose_of<float, float>);
    case AITER_DTYPE_bf16: return small ? go(choose_of<__hip_bfloat16, __hip_bfloat16>) : go(choose_of<__hip_bfloat16, float>);
    default: return go(choose_of<__half, float>);
  }
}

}  // namespace aiter
