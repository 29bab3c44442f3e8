"""Metadata and tensor shapes of small models, as their files would hold them, without a file.

Owns the names of keys and tensors as converters write them, so that lowering is not tested with its own lists.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

VOCAB_SIZE = 96
_WITH_EXPERTS = (
    "qwen2moe", "qwen3moe", "qwen3vlmoe", "granitemoe", "olmoe", "gpt-oss", "qwen35moe", "qwen3next", "lfm2moe",
    "glm4moe",
)  # fmt: skip
_NORM_BIASES, _ALL_BIASES = ("stablelm", "nemotron", "starcoder2", "phi2"), ("starcoder2", "phi2")
_LAYER_NORM = ("cohere2", "command-r", *_NORM_BIASES)
_SHORT, _DELTA = ("lfm2", "lfm2moe"), ("qwen35", "qwen35moe", "qwen3next")


def small_metadata(architecture: str, **overrides: object) -> dict[str, Any]:
    """Metadata of a model of 7 layers; keys of `overrides` lack the prefix and have __ for a dot; None removes one."""
    numbers: dict[str, object] = {
        "block_count": 7,
        "context_length": 4096,
        "embedding_length": 48,
        "feed_forward_length": 80,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.key_length": 16,
        "attention.value_length": 16,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 1_000_000.0,
    }
    if architecture in ("gemma2", "gemma3", "gpt-oss", "phi3", "exaone4", "cohere2", "starcoder2"):
        numbers["attention.sliding_window"] = 512
    if architecture in _LAYER_NORM:
        numbers["attention.layer_norm_epsilon"] = numbers.pop("attention.layer_norm_rms_epsilon")
    if architecture in _WITH_EXPERTS:
        numbers |= {"expert_count": 6, "expert_used_count": 2, "expert_feed_forward_length": 32}
    if architecture == "gemma4":
        numbers |= {"attention.sliding_window": 512, "attention.sliding_window_pattern": [True, False] * 3 + [True]}
        numbers |= {"attention.key_length_swa": 8, "attention.value_length_swa": 8, "rope.dimension_count_swa": 8}
        numbers |= {"attention.shared_kv_layers": 2, "embedding_length_per_layer_input": 16}
        numbers |= {"feed_forward_length": [80] * 5 + [160] * 2, "attention.head_count_kv": [2, 1] * 3 + [2]}
    if architecture in (*_DELTA[1:], "qwen2moe"):
        numbers |= {"expert_shared_feed_forward_length": 64}
    if architecture == "glm4moe":
        numbers |= {"leading_dense_block_count": 2, "expert_gating_func": 2, "expert_shared_count": 2}
    if architecture == "lfm2moe":
        numbers |= {"leading_dense_block_count": 2, "expert_gating_func": 2}
    if architecture in _SHORT:
        numbers |= {"attention.head_count_kv": [0, 0, 2, 0, 0, 2, 0], "shortconv.l_cache": 3}
    if architecture in _DELTA:
        numbers |= {"full_attention_interval": 3, "rope.dimension_count": 8, "ssm.conv_kernel": 4}
        numbers |= {"ssm.state_size": 16, "ssm.group_count": 2, "ssm.time_step_rank": 4, "ssm.inner_size": 128}
    metadata: dict[str, Any] = {"general.architecture": architecture, "general.type": "model"}
    metadata |= {f"{architecture}.{key}": value for key, value in numbers.items()}
    for name, value in overrides.items():
        key = f"{architecture}.{name.replace('__', '.')}"
        metadata.pop(key, None)
        if value is not None:
            metadata[key] = value
    return metadata


def small_shapes(metadata: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The tensors of a file with this metadata, in the file's order."""
    architecture = metadata["general.architecture"]
    if architecture == "gemma4":
        return _gemma4(metadata)

    def number(key: str) -> int:
        return metadata[f"{architecture}.{key}"]

    width, feed_forward = number("embedding_length"), number("feed_forward_length")
    head_dim = number("attention.key_length")
    q_width = number("attention.head_count") * head_dim
    kv_width = max(_items(number("attention.head_count_kv"))) * head_dim
    output_norm = "token_embd_norm.weight" if architecture in _SHORT else "output_norm.weight"
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (VOCAB_SIZE, width), output_norm: (width,)}
    if architecture == "qwen2":
        shapes["output.weight"] = (VOCAB_SIZE, width)
    for layer_idx in range(number("block_count")):
        block: dict[str, tuple[int, ...]] = {
            "attn_norm.weight": (width,),
            "attn_q.weight": (q_width, width),
            "attn_k.weight": (kv_width, width),
            "attn_v.weight": (kv_width, width),
            "attn_output.weight": (width, q_width),
            "ffn_norm.weight": (width,),
            "ffn_gate.weight": (feed_forward, width),
            "ffn_up.weight": (feed_forward, width),
            "ffn_down.weight": (width, feed_forward),
        }
        block |= _norms_beside(metadata, width, q_width, kv_width)
        if architecture in ("gpt-oss", "seed_oss", "glm4moe", *_DELTA):
            block["post_attention_norm.weight"] = block.pop("ffn_norm.weight")
        block |= {"attn_sinks.weight": (number("attention.head_count"),)} if architecture == "gpt-oss" else {}
        if architecture in ("qwen2", "qwen2moe", "qwen2vl", "seed_oss", "gpt-oss"):
            block |= {"attn_q.bias": (q_width,), "attn_k.bias": (kv_width,), "attn_v.bias": (kv_width,)}
        if architecture in _DELTA:
            block["attn_q.weight"] = (2 * q_width, width)
        if is_recurrent(metadata, layer_idx):
            block = {name: shape for name, shape in block.items() if name not in _ATTENTION}
            block |= _short_convolution(width) if architecture in _SHORT else _delta_net(width, architecture)
        for name in _LACKING.get(architecture, ()):
            del block[name]
        block |= _biases(architecture, block)
        experts = metadata.get(f"{architecture}.expert_count")
        if experts and layer_idx >= metadata.get(f"{architecture}.leading_dense_block_count", 0):
            each = metadata.get(f"{architecture}.expert_feed_forward_length", feed_forward)
            for name in ("ffn_gate", "ffn_up", "ffn_down"):
                del block[f"{name}.weight"]
            block |= {"ffn_gate_inp.weight": (experts, width), "ffn_down_exps.weight": (experts, width, each)}
            block |= {f"ffn_{name}_exps.weight": (experts, each, width) for name in ("gate", "up")}
            block |= {"exp_probs_b.bias": (experts,)} if architecture in ("lfm2moe", "glm4moe") else {}
            block |= _shared_expert(width) if architecture in (*_DELTA, "qwen2moe", "glm4moe") else {}
            if architecture == "glm4moe":
                del block["ffn_gate_inp_shexp.weight"]
        shapes |= {f"blk.{layer_idx}.{name}": shape for name, shape in block.items()}
    return shapes | _biases(architecture, {output_norm: (width,)})


def _biases(architecture: str, weights: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Of norms, and of products where the family has them; norms of each head have none."""
    chosen = {"attn_norm.weight", "ffn_norm.weight", "output_norm.weight"} if architecture in _NORM_BIASES else set()
    chosen |= set(weights) if architecture in _ALL_BIASES else set()
    return {name.replace(".weight", ".bias"): shape[:1] for name, shape in weights.items() if name in chosen}


_LACKING: Mapping[str, tuple[str, ...]] = {
    "olmo2": ("attn_norm.weight", "ffn_norm.weight"),
    "exaone4": ("attn_norm.weight", "ffn_norm.weight"),
    "cohere2": ("ffn_norm.weight",),
    "command-r": ("ffn_norm.weight",),
    "starcoder2": ("ffn_gate.weight",),
    "nemotron": ("ffn_gate.weight",),
    "arcee": ("ffn_gate.weight",),
    "phi2": ("ffn_gate.weight", "ffn_norm.weight"),
}
_HEAD_NORMS = (
    "gemma3",
    "qwen3",
    "qwen3moe",
    "qwen3vl",
    "qwen3vlmoe",
    "exaone4",
    "hunyuan-dense",
    "glm4moe",
    *_SHORT,
    *_DELTA,
)


def _norms_beside(metadata: Mapping[str, Any], width: int, q_width: int, kv_width: int) -> dict[str, tuple[int, ...]]:
    """Norms that only some families have: of queries and keys, and behind a branch."""
    architecture = metadata["general.architecture"]
    head_dim = metadata[f"{architecture}.attention.key_length"]
    block: dict[str, tuple[int, ...]] = {}
    if architecture in _HEAD_NORMS:
        block |= {"attn_q_norm.weight": (head_dim,), "attn_k_norm.weight": (head_dim,)}
    if architecture in ("command-r", "stablelm"):
        block["attn_q_norm.weight"] = (q_width // head_dim, head_dim)
        block["attn_k_norm.weight"] = (kv_width // head_dim, head_dim)
    if architecture in ("olmo2", "olmoe"):
        block |= {"attn_q_norm.weight": (q_width,), "attn_k_norm.weight": (kv_width,)}
    if architecture in ("gemma2", "gemma3", "olmo2", "exaone4", "glm4"):
        block |= {"post_attention_norm.weight": (width,), "post_ffw_norm.weight": (width,)}
    return block


def _gemma4(metadata: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (VOCAB_SIZE, 48), "output_norm.weight": (48,)}
    shapes |= {"per_layer_token_embd.weight": (VOCAB_SIZE, 112), "per_layer_proj_norm.weight": (16,)}
    shapes |= {"per_layer_model_proj.weight": (112, 48)}
    for layer_idx in range(7):
        block = _gemma4_block(metadata, layer_idx)
        shapes |= {f"blk.{layer_idx}.{name}": shape for name, shape in block.items()}
    return shapes


def _gemma4_block(metadata: Mapping[str, Any], layer_idx: int) -> dict[str, tuple[int, ...]]:
    """Layers with a window have heads of 8 values; global ones have no values; the last two have no keys either."""
    kv_heads, feed_forward = (
        metadata[f"gemma4.{key}"][layer_idx] for key in ("attention.head_count_kv", "feed_forward_length")
    )
    width, each, is_local = 48, 16, layer_idx % 2 == 0
    head_dim = 8 if is_local else 16
    block: dict[str, tuple[int, ...]] = {
        "attn_q.weight": (4 * head_dim, width),
        "attn_output.weight": (width, 4 * head_dim),
        "attn_q_norm.weight": (head_dim,),
        "ffn_gate.weight": (feed_forward, width),
        "ffn_up.weight": (feed_forward, width),
        "ffn_down.weight": (width, feed_forward),
        "inp_gate.weight": (each, width),
        "proj.weight": (width, each),
        "layer_output_scale.weight": (1,),
    }
    norms = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm", "post_norm")
    block |= {f"{name}.weight": (width,) for name in norms}
    if layer_idx < 5:
        block |= {"attn_k.weight": (kv_heads * head_dim, width), "attn_k_norm.weight": (head_dim,)}
        block |= {"attn_v.weight": (kv_heads * head_dim, width)} if is_local else {}
    return block


def _items(value: Any) -> list[int]:
    return value if isinstance(value, list) else [value]


_ATTENTION = {f"attn_{name}.weight" for name in ("q", "k", "v", "output", "q_norm", "k_norm")}


def is_recurrent(metadata: Mapping[str, Any], layer_idx: int) -> bool:
    """Whether a layer of such a model has no attention."""
    architecture = metadata["general.architecture"]
    if architecture in _SHORT:
        return metadata[f"{architecture}.attention.head_count_kv"][layer_idx] == 0
    return architecture in _DELTA and (layer_idx + 1) % metadata[f"{architecture}.full_attention_interval"] != 0


def _short_convolution(width: int) -> dict[str, tuple[int, ...]]:
    """in_proj is one tensor in a file; its parts are what is read."""
    parts: dict[str, tuple[int, ...]] = {f"shortconv.in_{name}.weight": (width, width) for name in "bcx"}
    return parts | {"shortconv.conv.weight": (width, 3), "shortconv.out_proj.weight": (width, width)}


def _shared_expert(width: int) -> dict[str, tuple[int, ...]]:
    parts: dict[str, tuple[int, ...]] = {f"ffn_{name}_shexp.weight": (64, width) for name in ("gate", "up")}
    return parts | {"ffn_down_shexp.weight": (width, 64), "ffn_gate_inp_shexp.weight": (width,)}


def _delta_net(width: int, architecture: str) -> dict[str, tuple[int, ...]]:
    """2 heads of keys and 4 of values: of 16 and 32 values."""
    gates: dict[str, tuple[int, ...]] = {"ssm_alpha.weight": (4, width), "ssm_beta.weight": (4, width)}
    if architecture == "qwen3next":
        gates = {"ssm_ba.weight": (8, width)}
    return gates | {
        "attn_qkv.weight": (192, width),
        "attn_gate.weight": (128, width),
        "ssm_conv1d.weight": (192, 4),
        "ssm_a": (4,),
        "ssm_dt.bias": (4,),
        "ssm_norm.weight": (32,),
        "ssm_out.weight": (width, 128),
    }
