#pragma once
#include "aiter_tensor.h"

void rotary_embedding(aiter_tensor_t& positions, aiter_tensor_t& query, aiter_tensor_t& key, int64_t head_size, aiter_tensor_t& cos_cache,
                      aiter_tensor_t& sin_cache, bool is_neox, bool is_nope_first);
void batched_rotary_embedding(aiter_tensor_t& positions, aiter_tensor_t& query, aiter_tensor_t& key, int64_t head_size,
                              aiter_tensor_t& cos_cache, aiter_tensor_t& sin_cache, bool is_neox, bool is_nope_first, int64_t rot_dim,
                              aiter_tensor_t& cos_sin_cache_offsets);
