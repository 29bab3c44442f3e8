"""What the tiny models of tests/data/architectures have in common: their shape, and pieces of configurations.

Owns the form of a family's entry, and these pieces.  Does not know the families (reference_families.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

VOCAB_SIZE, NUM_TOKENS, EPSILON = 96, 48, 1e-5
SHAPE: Mapping[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": EPSILON,
    "tie_word_embeddings": False,
    "attn_implementation": "eager",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


@dataclass(frozen=True, kw_only=True)
class Family:
    """A tiny model.  config: what differs from SHAPE.  keys: metadata beside the usual.  names: differences from
    NAMES (reference_names.py).

    permutes: the converter reorders rows of Q and K so that neighbours turn together.  adds_one: norms hold weight - 1.
    fuses_experts: gate and up of experts are one tensor.  tiles: heads of a delta rule's values are dealt out to those
    of its keys in turn.
    query_level: about what the weights of norms of queries are (small where nothing else makes scores small).
    has_layer_norm: the norms are LayerNorms, whose epsilon has another key.
    interleaves: rows of gate and up alternate in the checkpoint, and matrices of experts stand on their side.
    """

    architecture: str
    model: str
    config: Mapping[str, Any] = field(default_factory=dict)
    keys: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    format: str = "Q8_0"
    expert_format: str | None = None
    permutes: bool = False
    adds_one: bool = False
    interleaves: bool = False
    query_level: float = 1.0
    fuses_experts: bool = False
    has_layer_norm: bool = False
    tiles: bool = True
    short_length: int = 0


def rope(kind: str = "default", **values: Any) -> dict[str, Any]:
    """A checkpoint's rope_parameters."""
    return {"rope_type": kind, "rope_theta": 10000.0, **values}


LLAMA3 = rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
SMALLEST: Mapping[str, Any] = {
    "hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1,
}  # fmt: skip
YARN = {"factor": 8.0, "original_max_position_embeddings": 16, "beta_fast": 4.0, "beta_slow": 1.0}
YARN_KEYS = {
    "rope.scaling.type": "yarn", "rope.scaling.factor": 8.0, "rope.scaling.original_context_length": 16,
    "rope.scaling.yarn_beta_fast": 4.0, "rope.scaling.yarn_beta_slow": 1.0,
}  # fmt: skip
LONG = {
    "original_max_position_embeddings": 32,
    "short_factor": [1.0 + 0.01 * i for i in range(8)],
    "long_factor": [1.0 + 0.5 * i for i in range(8)],
}

DELTA_CONFIG: Mapping[str, Any] = {
    "head_dim": 32, "num_hidden_layers": 4, "full_attention_interval": 2, "linear_conv_kernel_dim": 4,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 32, "linear_value_head_dim": 32,
}  # fmt: skip
DELTA_KEYS: Mapping[str, Any] = {
    "full_attention_interval": 2, "rope.dimension_count": 8, "ssm.conv_kernel": 4, "ssm.state_size": 32,
    "ssm.group_count": 2, "ssm.time_step_rank": 4, "ssm.inner_size": 128,
}  # fmt: skip
MANY_EXPERTS: Mapping[str, Any] = {
    "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 64,
}  # fmt: skip
MANY_EXPERTS_KEYS: Mapping[str, Any] = {
    "expert_count": 6, "expert_used_count": 2, "expert_feed_forward_length": 32,
    "expert_shared_feed_forward_length": 64,
}  # fmt: skip
TWO_ROPES = {
    "sliding_attention": rope(),
    "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0},
}
