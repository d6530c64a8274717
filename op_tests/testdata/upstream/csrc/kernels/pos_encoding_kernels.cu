// Rotary position embedding with the signatures of AIter's operators. One thread computes each pair of elements.
#include <hip/hip_bf16.h>
#include <hip/hip_fp16.h>

#include "aiter_stream.h"
#include "aiter_tensor.h"

template <class T>
__global__ void rotate(const int64_t* positions, const int64_t* offsets, T* x, int64_t row, int width, int head, const T* cosines,
                       const T* sines, int half, bool neox, bool last) {
  const int64_t token = blockIdx.x, p = positions[token] + (offsets ? offsets[token] : 0);
  for (int i = threadIdx.x; i < width / head * half; i += blockDim.x) {
    const int pair = i % half;
    T* at = x + token * row + i / half * head + (last ? head - 2 * half : 0);
    T &a = at[neox ? pair : 2 * pair], &b = at[neox ? pair + half : 2 * pair + 1];
    const float c = float(cosines[p * half + pair]), s = float(sines[p * half + pair]), u = float(a), v = float(b);
    a = T(u * c - v * s), b = T(v * c + u * s);
  }
}

template <class T>
void rotate_both(aiter_tensor_t& positions, aiter_tensor_t* offsets, aiter_tensor_t& query, aiter_tensor_t& key, int64_t head_size,
                 aiter_tensor_t& cos_cache, aiter_tensor_t& sin_cache, bool neox, bool last) {
  for (aiter_tensor_t* t : {&query, &key})
    rotate<T><<<dim3(t->size(0)), dim3(64), 0, aiter::getCurrentHIPStream()>>>(
        static_cast<int64_t*>(positions.ptr), offsets ? static_cast<int64_t*>(offsets->ptr) : nullptr, static_cast<T*>(t->ptr),
        t->stride(0), int(t->size(1)), int(head_size), static_cast<T*>(cos_cache.ptr), static_cast<T*>(sin_cache.ptr),
        int(cos_cache.size(1)), neox, last);
  HIP_CALL_LAUNCH(hipGetLastError());
}

void rotary(aiter_tensor_t& positions, aiter_tensor_t* offsets, aiter_tensor_t& query, aiter_tensor_t& key, int64_t head_size,
            aiter_tensor_t& cos_cache, aiter_tensor_t& sin_cache, bool neox, bool last) {
  switch (query.dtype()) {
    case AITER_DTYPE_fp32:
      return rotate_both<float>(positions, offsets, query, key, head_size, cos_cache, sin_cache, neox, last);
    case AITER_DTYPE_fp16:
      return rotate_both<__half>(positions, offsets, query, key, head_size, cos_cache, sin_cache, neox, last);
    case AITER_DTYPE_bf16:
      return rotate_both<__hip_bfloat16>(positions, offsets, query, key, head_size, cos_cache, sin_cache, neox, last);
    default: AITER_CHECK(false, "expected float32, float16 or bfloat16");
  }
}

void rotary_embedding(aiter_tensor_t& positions, aiter_tensor_t& query, aiter_tensor_t& key, int64_t head_size, aiter_tensor_t& cos_cache,
                      aiter_tensor_t& sin_cache, bool is_neox, bool is_nope_first) {
  rotary(positions, nullptr, query, key, head_size, cos_cache, sin_cache, is_neox, is_nope_first);
}

void batched_rotary_embedding(aiter_tensor_t& positions, aiter_tensor_t& query, aiter_tensor_t& key, int64_t head_size,
                              aiter_tensor_t& cos_cache, aiter_tensor_t& sin_cache, bool is_neox, bool is_nope_first, int64_t rot_dim,
                              aiter_tensor_t& cos_sin_cache_offsets) {
  AITER_CHECK(rot_dim == 2 * cos_cache.size(1), "rot_dim");
  rotary(positions, &cos_sin_cache_offsets, query, key, head_size, cos_cache, sin_cache, is_neox, is_nope_first);
}
