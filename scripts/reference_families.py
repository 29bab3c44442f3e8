"""The tiny models of tests/data/architectures: configurations for the package transformers, and metadata.

Owns these values.  Does not know how a model is made or written (make_references.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from reference_names import DELTA_NET, FOUR_NORMS, LAYER_EMBEDDINGS, SHARED_EXPERT, SHORT_CONVOLUTION
from reference_shapes import (
    DELTA_CONFIG,
    DELTA_KEYS,
    EPSILON,
    LLAMA3,
    LONG,
    MANY_EXPERTS,
    MANY_EXPERTS_KEYS,
    SMALLEST,
    TWO_ROPES,
    VOCAB_SIZE,
    YARN,
    YARN_KEYS,
    Family,
    rope,
)

FAMILIES: Mapping[str, Family] = {
    "llama": Family(architecture="llama", model="Llama", permutes=True, format="Q4_0"),
    "llama-long": Family(
        architecture="llama", model="Llama", permutes=True,
        config={"rope_parameters": LLAMA3},
    ),
    "mistral": Family(
        architecture="llama", model="Mistral", permutes=True, config={"head_dim": 32, "sliding_window": None},
    ),
    "qwen2": Family(architecture="qwen2", model="Qwen2", format="F16"),
    "mistral3": Family(
        architecture="mistral3", model="Ministral3", permutes=True, keys={
            **YARN_KEYS, "rope.scaling.yarn_log_multiplier": 1.0, "attention.temperature_scale": 0.1,
        },
        config={
            "head_dim": 32,
            "rope_parameters": rope("yarn", **YARN, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1),
        },
    ),
    "qwen3": Family(architecture="qwen3", model="Qwen3", config={"head_dim": 32}, format="Q5_1"),
    "phi3": Family(
        architecture="phi3", model="Phi3", short_length=32, config={
            "rope_parameters": rope("longrope", **LONG, partial_rotary_factor=1.0),
            "original_max_position_embeddings": 32, "sliding_window": 24,
        },
        keys={
            "rope.scaling.attn_factor": math.sqrt(1 + math.log(128 / 32) / math.log(32)),
            "rope.scaling.original_context_length": 32, "attention.sliding_window": 24,
        },
    ),
    "qwen3moe": Family(
        architecture="qwen3moe", model="Qwen3Moe", expert_format="Q4_0",
        config={
            "head_dim": 32, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
            "norm_topk_prob": True, "decoder_sparse_step": 1,
        },
        keys={"expert_count": 6, "expert_used_count": 2, "expert_feed_forward_length": 32},
    ),
    "gpt-oss": Family(
        architecture="gpt-oss", model="GptOss", format="F16", expert_format="MXFP4", interleaves=True,
        names={"post_attention_layernorm": "post_attention_norm"},
        config={
            "head_dim": 32, "num_local_experts": 5, "num_experts_per_tok": 3, "intermediate_size": 64,
            "sliding_window": 20, "layer_types": ["sliding_attention", "full_attention"],
            "rope_parameters": rope("yarn", **YARN, truncate=False),
        },
        keys={
            **YARN_KEYS, "expert_count": 5, "expert_used_count": 3, "expert_feed_forward_length": 64,
            "attention.sliding_window": 20,
        },
    ),
    "smollm3": Family(
        architecture="smollm3", model="SmolLM3", permutes=True,
        config={"num_hidden_layers": 4, "tie_word_embeddings": True},
    ),
    "granite": Family(
        architecture="granite", model="Granite", permutes=True,
        config={
            "embedding_multiplier": 12.0, "residual_multiplier": 0.22, "logits_scaling": 8.0,
            "attention_multiplier": 0.0625,
        },
        keys={"embedding_scale": 12.0, "residual_scale": 0.22, "logit_scale": 8.0, "attention.scale": 0.0625},
    ),
    "lfm2": Family(
        architecture="lfm2", model="Lfm2", names=SHORT_CONVOLUTION,
        config={
            "norm_eps": 1e-5, "num_hidden_layers": 4, "block_auto_adjust_ff_dim": False, "conv_L_cache": 3,
            "layer_types": ["conv", "full_attention", "conv", "full_attention"], "tie_word_embeddings": True,
        },
        keys={"attention.head_count_kv": [0, 2, 0, 2], "shortconv.l_cache": 3},
    ),
    "qwen35": Family(
        architecture="qwen35", model="Qwen3_5", names=DELTA_NET, adds_one=True,
        config={**DELTA_CONFIG, "rope_parameters": rope(partial_rotary_factor=0.25, mrope_section=[2, 1, 1])},
        keys={**DELTA_KEYS, "rope.dimension_sections": [2, 1, 1, 0]},
    ),
    "olmo2": Family(architecture="olmo2", model="Olmo2", names=FOUR_NORMS),
    "olmo3": Family(
        architecture="olmo2", model="Olmo3", names=FOUR_NORMS,
        config={
            "num_hidden_layers": 4, "sliding_window": 20, "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
            "rope_parameters": {"sliding_attention": rope(), "full_attention": rope("yarn", **YARN)},
        },
        keys={
            **YARN_KEYS, "attention.sliding_window": 20,
            "attention.sliding_window_pattern": [True, True, True, False],
        },
    ),
    "exaone4": Family(
        architecture="exaone4", model="Exaone4", names=FOUR_NORMS,
        config={
            "sliding_window": None, "layer_types": ["full_attention"] * 2, "tie_word_embeddings": True,
            "rope_parameters": LLAMA3,
        },
    ),
    "exaone4-long": Family(
        architecture="exaone4", model="Exaone4", names=FOUR_NORMS, format="Q4_0",
        config={
            **SMALLEST, "num_hidden_layers": 64, "sliding_window": 20, "rope_parameters": LLAMA3,
            "layer_types": (["sliding_attention"] * 3 + ["full_attention"]) * 16,
        },
        keys={
            "attention.sliding_window": 20, "attention.sliding_window_pattern": ([True] * 3 + [False]) * 16,
        },
    ),
    "cohere2": Family(
        architecture="cohere2", model="Cohere2", has_layer_norm=True,
        config={
            "num_hidden_layers": 4, "layer_norm_eps": EPSILON, "logit_scale": 0.25, "tie_word_embeddings": True,
            "sliding_window": 20, "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
        },
        keys={"logit_scale": 0.25, "attention.sliding_window": 20, "rope.scaling.type": "none"},
    ),
    "command-r": Family(
        architecture="command-r", model="Cohere", has_layer_norm=True,
        config={"layer_norm_eps": EPSILON, "logit_scale": 0.25, "tie_word_embeddings": True},
        keys={"logit_scale": 0.25, "rope.scaling.type": "none"},
    ),
    "command-r-plus": Family(
        architecture="command-r", model="Cohere", has_layer_norm=True, format="Q4_0",
        config={
            **SMALLEST, "num_hidden_layers": 64, "layer_norm_eps": EPSILON, "logit_scale": 0.25, "use_qk_norm": True,
            "tie_word_embeddings": True,
        },
        keys={"logit_scale": 0.25, "rope.scaling.type": "none"},
    ),
    "hunyuan-dense": Family(
        architecture="hunyuan-dense", model="HunYuanDenseV1",
        names={"self_attn.query_layernorm": "attn_q_norm", "self_attn.key_layernorm": "attn_k_norm"},
        config={
            "head_dim": 32, "tie_word_embeddings": True, "rope_parameters": rope("dynamic", alpha=50.0, factor=1.0),
        },
        keys={"rope.freq_base": 10000.0 * 50.0 ** (32 / 30), "rope.scaling.type": "none"},
    ),
    "starcoder2": Family(
        architecture="starcoder2", model="Starcoder2", has_layer_norm=True,
        names={"mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"},
        config={"norm_epsilon": EPSILON, "sliding_window": 20, "tie_word_embeddings": True},
        keys={"attention.sliding_window": 20},
    ),
    "stablelm": Family(
        architecture="stablelm", model="StableLm", has_layer_norm=True,
        config={
            "layer_norm_eps": EPSILON, "use_qkv_bias": True, "rope_parameters": rope(partial_rotary_factor=0.25),
        },
        keys={"rope.dimension_count": 4, "use_parallel_residual": False},
    ),
    "stablelm-12b": Family(
        architecture="stablelm", model="StableLm", has_layer_norm=True,
        names={"self_attn.q_layernorm": "attn_q_norm", "self_attn.k_layernorm": "attn_k_norm"},
        config={
            "layer_norm_eps": EPSILON, "qk_layernorm": True, "use_parallel_residual": True,
            "rope_parameters": rope(partial_rotary_factor=0.25),
        },
        keys={"rope.dimension_count": 4, "use_parallel_residual": True},
    ),
    "nemotron": Family(
        architecture="nemotron", model="Nemotron", has_layer_norm=True, adds_one=True,
        config={"norm_eps": EPSILON, "rope_parameters": rope(partial_rotary_factor=0.5)},
        keys={"rope.dimension_count": 8, "rope.scaling.type": "none"},
    ),
    "arcee": Family(
        architecture="arcee", model="Arcee", permutes=True, config={"rope_parameters": rope("yarn", **YARN)},
        keys=YARN_KEYS,
    ),
    "phi2": Family(
        architecture="phi2", model="Phi", has_layer_norm=True,
        names={
            "self_attn.dense": "attn_output", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down",
            "model.final_layernorm": "output_norm",
        },
        config={
            "layer_norm_eps": EPSILON, "num_key_value_heads": 4, "intermediate_size": 256,
            "rope_parameters": rope(partial_rotary_factor=0.5),
        },
        keys={"rope.dimension_count": 8},
    ),
    "gemma": Family(
        architecture="gemma", model="Gemma", adds_one=True,
        config={"head_dim": 32, "tie_word_embeddings": True, "hidden_activation": "gelu_pytorch_tanh"},
    ),
    "qwen2vl": Family(architecture="qwen2vl", model="Qwen2", keys={"rope.dimension_sections": [2, 3, 3, 0]}),
    "exaone": Family(architecture="exaone", model="Llama", config={"rope_parameters": LLAMA3}),
    "gemma2": Family(
        architecture="gemma2", model="Gemma2", names=FOUR_NORMS, adds_one=True,
        config={
            "head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 20, "attn_logit_softcapping": 5.0,
            "final_logit_softcapping": 3.0, "tie_word_embeddings": True,
        },
        keys={
            "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0, "attention.sliding_window": 20,
        },
    ),
    "qwen2moe": Family(
        architecture="qwen2moe", model="Qwen2Moe", names=SHARED_EXPERT, expert_format="Q5_0",
        config={**MANY_EXPERTS, "norm_topk_prob": False, "decoder_sparse_step": 1, "mlp_only_layers": []},
        keys=MANY_EXPERTS_KEYS,
    ),
    "qwen3vl": Family(
        architecture="qwen3vl", model="Qwen3", config={"head_dim": 32},
        keys={"rope.dimension_sections": [6, 5, 5, 0], "n_deepstack_layers": 1},
    ),
    "qwen3vlmoe": Family(
        architecture="qwen3vlmoe", model="Qwen3Moe",
        config={
            "head_dim": 32, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
            "norm_topk_prob": True, "decoder_sparse_step": 1,
        },
        keys={
            "expert_count": 6, "expert_used_count": 2, "expert_feed_forward_length": 32,
            "rope.dimension_sections": [6, 5, 5, 0], "n_deepstack_layers": 1,
        },
    ),
    "granitemoe": Family(
        architecture="granitemoe", model="GraniteMoe", permutes=True,
        names={
            "block_sparse_moe.router": "ffn_gate_inp", "block_sparse_moe.input_linear": "ffn_gate_up_exps",
            "block_sparse_moe.output_linear": "ffn_down_exps",
        },
        config={
            "embedding_multiplier": 12.0, "residual_multiplier": 0.22, "logits_scaling": 8.0,
            "attention_multiplier": 0.0625, "num_local_experts": 6, "num_experts_per_tok": 2,
        },
        keys={
            "embedding_scale": 12.0, "residual_scale": 0.22, "logit_scale": 8.0, "attention.scale": 0.0625,
            "expert_count": 6, "expert_used_count": 2,
        },
    ),
    "olmoe": Family(
        architecture="olmoe", model="Olmoe",
        config={"num_experts": 6, "num_experts_per_tok": 2},
        keys={"expert_count": 6, "expert_used_count": 2},
    ),
    "glm4": Family(
        architecture="glm4", model="Glm4",
        names={
            "post_attention_layernorm": "ffn_norm", "post_self_attn_layernorm": "post_attention_norm",
            "post_mlp_layernorm": "post_ffw_norm",
        },
        config={"head_dim": 32, "attention_bias": True, "rope_parameters": rope(partial_rotary_factor=0.5)},
        keys={"rope.dimension_count": 16},
    ),
    "glm4moe": Family(
        architecture="glm4moe", model="Glm4Moe", expert_format="Q4_0",
        names={
            "post_attention_layernorm": "post_attention_norm", "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
            **{f"mlp.shared_experts.{part}_proj": f"ffn_{part}_shexp" for part in ("gate", "up", "down")},
        },
        config={
            "head_dim": 32, "attention_bias": True, "rope_parameters": rope(partial_rotary_factor=0.5),
            "use_qk_norm": True, "n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
            "n_shared_experts": 2, "routed_scaling_factor": 2.5, "first_k_dense_replace": 1, "norm_topk_prob": True,
            "n_group": 1, "topk_group": 1,
        },
        keys={
            "rope.dimension_count": 16, "expert_count": 6, "expert_used_count": 2, "expert_feed_forward_length": 32,
            "expert_shared_count": 2, "leading_dense_block_count": 1, "expert_gating_func": 2,
            "expert_weights_scale": 2.5, "expert_weights_norm": True, "expert_group_count": 1,
        },
    ),
    "seed-oss": Family(
        architecture="seed_oss", model="SeedOss", names={"post_attention_layernorm": "post_attention_norm"},
        config={"head_dim": 32, "attention_bias": True, "attention_out_bias": False, "residual_dropout": 0.0},
    ),
    "ernie4.5": Family(
        architecture="ernie4_5", model="Ernie4_5", config={"head_dim": 32, "tie_word_embeddings": True},
    ),
    "lfm2moe": Family(
        architecture="lfm2moe", model="Lfm2Moe", expert_format="Q4_0",
        names={
            **SHORT_CONVOLUTION, "feed_forward.gate": "ffn_gate_inp", "feed_forward.expert_bias": "exp_probs_b.bias",
        },
        config={
            "norm_eps": 1e-5, "num_hidden_layers": 4, "conv_L_cache": 3, "num_dense_layers": 1, "num_experts": 6,
            "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": True, "use_expert_bias": True,
            "layer_types": ["conv", "full_attention", "conv", "full_attention"], "tie_word_embeddings": True,
        },
        keys={
            "attention.head_count_kv": [0, 2, 0, 2], "shortconv.l_cache": 3, "expert_count": 6,
            "expert_used_count": 2, "expert_feed_forward_length": 32, "leading_dense_block_count": 1,
            "expert_gating_func": 2,
        },
    ),
    "qwen35moe": Family(
        architecture="qwen35moe", model="Qwen3_5Moe", names={**DELTA_NET, **SHARED_EXPERT}, adds_one=True,
        config={
            **DELTA_CONFIG, **MANY_EXPERTS,
            "rope_parameters": rope(partial_rotary_factor=0.25, mrope_section=[2, 1, 1]),
        },
        keys={**DELTA_KEYS, **MANY_EXPERTS_KEYS, "rope.dimension_sections": [2, 1, 1, 0]},
    ),
    "qwen3next": Family(
        architecture="qwen3next", model="Qwen3Next", adds_one=True, tiles=False,
        names={**DELTA_NET, **SHARED_EXPERT, "linear_attn.in_proj_ba": "ssm_ba"},
        config={
            **DELTA_CONFIG, **MANY_EXPERTS, "norm_topk_prob": True, "rope_parameters": rope(partial_rotary_factor=0.25),
            "layer_types": ["linear_attention", "full_attention"] * 2, "decoder_sparse_step": 1,
        },
        keys={**DELTA_KEYS, **MANY_EXPERTS_KEYS},
    ),
    "gemma4-moe": Family(
        architecture="gemma4", model="Gemma4", query_level=0.2, fuses_experts=True, expert_format="Q4_0",
        names={
            **LAYER_EMBEDDINGS, "router.scale": "ffn_gate_inp.scale", "router.proj": "ffn_gate_inp",
            "router.per_expert_scale": "ffn_down_exps.scale", "post_feedforward_layernorm_1": "post_ffw_norm_1",
            "post_feedforward_layernorm_2": "post_ffw_norm_2", "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
        },
        config={
            "num_hidden_layers": 4, "head_dim": 32, "global_head_dim": 64, "sliding_window": 20,
            "layer_types": ["sliding_attention", "full_attention"] * 2, "num_kv_shared_layers": 0,
            "hidden_size_per_layer_input": 0, "attention_k_eq_v": True, "num_global_key_value_heads": 1,
            "enable_moe_block": True, "num_experts": 6, "top_k_experts": 2, "moe_intermediate_size": 32,
            "final_logit_softcapping": 3.0, "tie_word_embeddings": True, "rope_parameters": TWO_ROPES,
        },
        keys={
            "attention.head_count_kv": [2, 1] * 2, "attention.key_length": 64, "attention.value_length": 64,
            "attention.key_length_swa": 32, "attention.value_length_swa": 32, "rope.dimension_count": 64,
            "rope.dimension_count_swa": 32, "rope.freq_base": 1000000.0, "rope.freq_base_swa": 10000.0,
            "attention.sliding_window": 20, "attention.sliding_window_pattern": [True, False] * 2,
            "attention.shared_kv_layers": 0, "embedding_length_per_layer_input": 0, "final_logit_softcapping": 3.0,
            "expert_count": 6, "expert_used_count": 2, "expert_feed_forward_length": 32,
        },
    ),
    "gemma4": Family(
        architecture="gemma4", model="Gemma4", names=LAYER_EMBEDDINGS, query_level=0.2,
        config={
            "num_hidden_layers": 6, "head_dim": 32, "global_head_dim": 64, "sliding_window": 20,
            "layer_types": ["sliding_attention", "full_attention"] * 3, "num_kv_shared_layers": 2,
            "hidden_size_per_layer_input": 32, "vocab_size_per_layer_input": VOCAB_SIZE, "use_double_wide_mlp": True,
            "final_logit_softcapping": 3.0, "tie_word_embeddings": True, "rope_parameters": TWO_ROPES,
        },
        keys={
            "attention.key_length": 64, "attention.value_length": 64, "attention.key_length_swa": 32,
            "attention.value_length_swa": 32, "rope.dimension_count": 64, "rope.dimension_count_swa": 32,
            "rope.freq_base": 1000000.0, "rope.freq_base_swa": 10000.0, "attention.sliding_window": 20,
            "attention.sliding_window_pattern": [True, False] * 3, "attention.shared_kv_layers": 2,
            "embedding_length_per_layer_input": 32, "feed_forward_length": [96] * 4 + [192] * 2,
            "final_logit_softcapping": 3.0,
        },
    ),
    "gemma3": Family(
        architecture="gemma3", model="Gemma3", names=FOUR_NORMS, adds_one=True,
        config={
            "head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 20, "num_hidden_layers": 6,
            "layer_types": ["sliding_attention"] * 5 + ["full_attention"], "tie_word_embeddings": True,
            "rope_parameters": {
                "sliding_attention": rope(), "full_attention": {"rope_type": "default", "rope_theta": 1000000.0},
            },
        },
        keys={"attention.sliding_window": 20, "rope.freq_base": 1000000.0},
    ),
}  # fmt: skip
