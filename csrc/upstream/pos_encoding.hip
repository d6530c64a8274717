// module_pos_encoding of AIter: rotary position embedding, in place.
#include <aiter/upstream.h>

#include "kernels/pos_encoding_kernels.cu"

namespace aiter::upstream {

static void check_rows(const char* name, const aiter_tensor_t& t, int64_t tokens, AiterDtype type, int64_t head_size) {
  AITER_CHECK(t.dim() == 2 && t.size(0) == tokens, name, ": expected shape (", tokens, ", heads * head_size)");
  AITER_CHECK(t.dtype() == type, name, ": expected the element type of query");
  AITER_CHECK(t.size(1) % head_size == 0, name, ": expected rows of whole heads of ", head_size, " elements, got ", t.size(1));
  AITER_CHECK(t.size(1) <= 1 || t.stride(1) == 1, name, ": expected adjacent elements in a row");
}

// check makes the checks that AIter leaves to its callers.
static void check(aiter_tensor_t& positions, aiter_tensor_t& query, aiter_tensor_t& key, int64_t head_size, aiter_tensor_t& cos_cache,
                  aiter_tensor_t& sin_cache, int64_t rot_dim) {
  AITER_CHECK(positions.dim() == 1 && positions.dtype() == AITER_DTYPE_i64 && packed(positions),
              "positions: expected int64 (tokens,), elements adjacent");
  AITER_CHECK(query.dtype() == AITER_DTYPE_fp16 || query.dtype() == AITER_DTYPE_bf16 || query.dtype() == AITER_DTYPE_fp32,
              "query: expected float16, bfloat16 or float32");
  AITER_CHECK(head_size > 0, "head_size: expected a positive number, got ", head_size);
  check_rows("query", query, positions.size(0), query.dtype(), head_size);
  check_rows("key", key, positions.size(0), query.dtype(), head_size);
  AITER_CHECK(cos_cache.dim() == 2 && sin_cache.dim() == 2 && cos_cache.size(0) == sin_cache.size(0) &&
                  cos_cache.size(1) == sin_cache.size(1) && packed(cos_cache) && packed(sin_cache),
              "cos_cache and sin_cache: expected the same shape (positions, rot_dim / 2), row-major");
  AITER_CHECK(cos_cache.dtype() == query.dtype() && sin_cache.dtype() == query.dtype(),
              "cos_cache and sin_cache: expected the element type of query");
  const int64_t rotated = 2 * cos_cache.size(1);
  AITER_CHECK(rotated > 0 && rotated <= head_size, "cos_cache and head_size: expected rows of 1 to head_size / 2 elements");
  AITER_CHECK(rot_dim == rotated, "rot_dim: expected ", rotated, ", two for each element of a row of cos_cache");
  AITER_CHECK(query.numel() > 0 || key.numel() == 0, "query: expected one head or more, as key has");
}

static void forward(aiter_tensor_t& positions, aiter_tensor_t& query, aiter_tensor_t& key, int64_t head_size, aiter_tensor_t& cos_cache,
                    aiter_tensor_t& sin_cache, bool is_neox, bool is_nope_first) {
  AITER_CHECK(cos_cache.dim() == 2, "cos_cache: expected shape (positions, rot_dim / 2)");
  check(positions, query, key, head_size, cos_cache, sin_cache, 2 * cos_cache.size(1));
  if (query.numel() == 0) return;
  ::rotary_embedding(positions, query, key, head_size, cos_cache, sin_cache, is_neox, is_nope_first);
  HIP_CALL(hipGetLastError());
}

static void batched(aiter_tensor_t& positions, aiter_tensor_t& query, aiter_tensor_t& key, int64_t head_size, aiter_tensor_t& cos_cache,
                    aiter_tensor_t& sin_cache, bool is_neox, bool is_nope_first, int64_t rot_dim, aiter_tensor_t& cos_sin_cache_offsets) {
  check(positions, query, key, head_size, cos_cache, sin_cache, rot_dim);
  AITER_CHECK(cos_sin_cache_offsets.dim() == 1 && cos_sin_cache_offsets.size(0) == positions.size(0) &&
                  cos_sin_cache_offsets.dtype() == AITER_DTYPE_i64 && packed(cos_sin_cache_offsets),
              "cos_sin_cache_offsets: expected int64 (tokens,), elements adjacent");
  if (query.numel() == 0) return;
  ::batched_rotary_embedding(positions, query, key, head_size, cos_cache, sin_cache, is_neox, is_nope_first, rot_dim,
                             cos_sin_cache_offsets);
  HIP_CALL(hipGetLastError());
}

}  // namespace aiter::upstream

AITER_UPSTREAM(aiter_rotary_embedding_fwd, aiter::upstream::forward, arg("positions"), arg("query"), arg("key"), arg("head_size"),
               arg("cos_cache"), arg("sin_cache"), arg("is_neox"), arg("is_nope_first"))
AITER_UPSTREAM(aiter_batched_rotary_embedding, aiter::upstream::batched, arg("positions"), arg("query"), arg("key"), arg("head_size"),
               arg("cos_cache"), arg("sin_cache"), arg("is_neox"), arg("is_nope_first"), arg("rot_dim"), arg("cos_sin_cache_offsets"))
