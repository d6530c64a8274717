package main

import "strings"

// need is an operator of AIter that a service calls.
type need struct {
	service  string // "Qwen3-Next", "DeepSeek" or "both"
	what     string
	function string // in AIter's Python
	operator string // in the registry; "": the function's name with the prefix aiter_
}

func (n need) name() string {
	if n.operator != "" {
		return n.operator
	}
	return "aiter_" + strings.TrimPrefix(n.function, "_")
}

const (
	qwen     = "Qwen3-Next"
	deepseek = "DeepSeek"
	both     = "both"
)

// needs is the union of what two services need: one for a model like Qwen3-Next, with gated delta rule layers, gated attention and
// experts, and one for a model like DeepSeek, with latent attention, grouped experts and 8-bit weights.
func needs() []need {
	return []need{
		{both, "RMSNorm", "_rms_norm_opus_raw", "aiter_rms_norm"},
		{both, "RMSNorm of the sum with the residual", "_fused_add_rms_norm_opus_raw", "aiter_fused_add_rms_norm"},
		{both, "SiLU and product with the gate", "silu_and_mul", ""},
		{both, "quantization per tensor, scale of the checkpoint", "static_per_tensor_quant", ""},
		{both, "quantization per token", "dynamic_per_token_scaled_quant", ""},
		{both, "experts: tokens in the order of experts", "moe_align_block_size", ""},
		{both, "experts: order and weights for the fused kernel", "moe_sorting_fwd", ""},
		{both, "experts: order and weights, without Composable Kernel", "moe_sorting_opus_fwd", ""},
		{both, "experts: sum over the chosen ones", "_moe_sum", ""},
		{both, "experts: fused matrix products", "ck_moe_stage1", ""},
		{both, "matrix product in bfloat16", "_gemm_a16w16_asm", ""},
		{both, "sum over GPUs", "all_reduce", ""},
		{both, "sampling", "_mixed_sample", ""},

		{qwen, "rotary embedding of a part of the head", "rope_cached_positions_2c_fwd_impl", ""},
		{qwen, "experts: top-k of softmax", "_topk_softmax", ""},
		{qwen, "causal convolution, decoding", "causal_conv1d_update", ""},
		{qwen, "causal convolution, prefill", "causal_conv1d_fwd_split_qkv_hip", ""},
		{qwen, "gated delta rule, decoding", "_gdr_decode_packed_bf16", ""},
		{qwen, "gated delta rule, prefill", "chunk_gated_delta_rule_fwd_h_hip", ""},
		{qwen, "gated RMSNorm with quantization", "gated_rmsnorm_fp8_group_quant", ""},
		{qwen, "write to the KV cache", "reshape_and_cache_flash", ""},
		{qwen, "paged attention, decoding", "_pa_fwd_asm", "aiter_pa_fwd"},

		{deepseek, "rotary embedding", "rotary_embedding_fwd", ""},
		{deepseek, "experts: grouped top-k", "grouped_topk", ""},
		{deepseek, "experts: grouped top-k with a bias", "biased_grouped_topk_hip", "aiter_biased_grouped_topk"},
		{deepseek, "experts: top-k of other scores", "topk_gating_fwd", "aiter_topk_gating"},
		{deepseek, "quantization per group of 128", "dynamic_per_group_scaled_quant", ""},
		{deepseek, "write to the latent KV cache", "concat_and_cache_mla", ""},
		{deepseek, "rotation and write to the latent KV cache", "fused_qk_rope_concat_and_cache_mla", ""},
		{deepseek, "latent attention, decoding", "mla_decode_stage1_asm_fwd", ""},
		{deepseek, "latent attention, reduction", "mla_reduce_v1", ""},
		{deepseek, "indexer: quantized keys", "indexer_k_quant_and_cache", ""},
		{deepseek, "indexer: rotated and quantized queries and keys", "indexer_qk_rope_quant_and_cache", ""},
		{deepseek, "indexer: keys of sequences", "cp_gather_indexer_k_quant_cache", ""},
		{deepseek, "indexer: top-k of a row", "_top_k_per_row_decode", ""},
		{deepseek, "matrix product with scales per block", "gemm_a8w8_blockscale_ck", ""},
		{deepseek, "experts: fused, with scales per block", "fmoe_fp8_blockscale_g1u1", ""},
	}
}
