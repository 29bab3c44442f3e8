"""Makes tests/data/architectures: tiny random models as GGUF files, with what the package transformers makes of them.

    python -m venv /tmp/references && /tmp/references/bin/pip install torch transformers gguf
    /tmp/references/bin/python scripts/make_references.py [NAME ...]

Owns the configurations and the way from a checkpoint's names to a GGUF file's.  It is the independent side of the
comparison: it imports nothing of Tandem.  Weights are rounded to the file's block format before either side sees them.

NAME.npz: `ids` [T], `logits` float32 [T, vocabulary], `source`, what computed them; where a model has one table for
short contexts and one for long, `short_logits` of the first `short_length` positions too.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from gguf import GGMLQuantizationType, GGUFWriter, quants

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "data" / "architectures"
VOCAB_SIZE, NUM_TOKENS = 96, 48
SHAPE: Mapping[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "attn_implementation": "eager",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
NAMES: Mapping[str, str] = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.sinks": "attn_sinks",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "mlp.router": "ffn_gate_inp",
}
FOUR_NORMS: Mapping[str, str] = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


@dataclass(frozen=True, kw_only=True)
class Family:
    """A tiny model.  config: what differs from SHAPE.  keys: metadata beside the usual.  names: differences from NAMES.

    permutes: the converter reorders rows of Q and K so that neighbours turn together.  adds_one: norms hold weight - 1.
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
    short_length: int = 0


def rope(kind: str = "default", **values: Any) -> dict[str, Any]:
    """A checkpoint's rope_parameters."""
    return {"rope_type": kind, "rope_theta": 10000.0, **values}


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

FAMILIES: Mapping[str, Family] = {
    "llama": Family(architecture="llama", model="Llama", permutes=True, format="Q4_0"),
    "llama-long": Family(
        architecture="llama", model="Llama", permutes=True,
        config={
            "rope_parameters": rope(
                "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32
            )
        },
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
    "olmo2": Family(architecture="olmo2", model="Olmo2", names=FOUR_NORMS),
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


def make_model(family: Family) -> torch.nn.Module:
    """The model with weights as a trained one's might be, rounded to the block format."""
    config = getattr(transformers, f"{family.model.replace('Gemma3', 'Gemma3Text')}Config")(
        **{**SHAPE, "rope_parameters": rope(), **family.config}
    )
    torch.manual_seed(1)
    model = getattr(transformers, f"{family.model}ForCausalLM")(config).eval()
    config._attn_implementation = "eager"
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if "norm" in name and name.endswith("weight"):
                parameter.copy_((0.0 if family.adds_one else 1.0) + 0.2 * noise)
            elif is_matrix(name, parameter):
                spread = 3.0 if "q_proj" in name or "router" in name or name.endswith("mlp.gate.weight") else 1.0
                columns = parameter.shape[-2] if parameter.ndim == 3 and family.interleaves else parameter.shape[-1]
                parameter.copy_(noise * (spread / math.sqrt(columns)))
                parameter.copy_(torch.from_numpy(rounded(family, name, parameter.numpy())))
            else:
                parameter.copy_(0.5 * noise)
    return model


def is_matrix(name: str, values: Any) -> bool:
    """A weight that the file holds in blocks."""
    return values.ndim >= 2 and not name.endswith("_bias")


def format_of(family: Family, name: str) -> GGMLQuantizationType:
    """Routers stay float32, as converters leave them."""
    if ".router." in name or name.endswith("mlp.gate.weight"):
        return GGMLQuantizationType.F32
    return GGMLQuantizationType[family.expert_format or family.format if ".experts." in name else family.format]


def rounded(family: Family, name: str, values: np.ndarray) -> np.ndarray:
    """What stays of a matrix in the file's format."""
    kind = format_of(family, name)
    if values.ndim == 3 and family.interleaves:
        values = np.ascontiguousarray(values.swapaxes(1, 2))
        return np.ascontiguousarray(quants.dequantize(quants.quantize(values, kind), kind).swapaxes(1, 2))
    return quants.dequantize(quants.quantize(np.ascontiguousarray(values), kind), kind)


def permuted(raw: np.ndarray, num_heads: int) -> np.ndarray:
    """Rows of each head reordered so that the halves of a pair become neighbours."""
    return raw.reshape(num_heads, 2, -1, *raw.shape[1:]).swapaxes(1, 2).reshape(raw.shape)


def tensors_of(family: Family, model: Any) -> Iterator[tuple[str, np.ndarray, GGMLQuantizationType]]:
    """Name, bytes or floats, and format of every tensor of the file."""
    names = {**NAMES, **family.names}
    for name, parameter in model.named_parameters():
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        values = parameter.detach().float().numpy()
        match = re.fullmatch(r"(?:model\.layers\.(\d+)\.)?(.+?)(?:\.(weight|bias))?", name)
        assert match
        layer, place, kind = match.groups()
        block = "" if layer is None else f"blk.{layer}."
        if ".experts." in f".{place}.":
            yield from expert_tensors(family, block, name, values)
            continue
        if "norm" in name and family.adds_one:
            values = values + 1.0
        raw_kind = format_of(family, name) if is_matrix(name, values) else GGMLQuantizationType.F32
        raw = quants.quantize(np.ascontiguousarray(values), raw_kind)
        if family.permutes and place in ("self_attn.q_proj", "self_attn.k_proj"):
            heads = model.config.num_attention_heads if "q_proj" in place else model.config.num_key_value_heads
            raw = permuted(raw, heads)
        yield f"{block}{names[place]}.{kind or 'weight'}", raw, raw_kind
    if (factors := frequency_factors(family, model)) is not None:
        yield "rope_freqs.weight", factors, GGMLQuantizationType.F32
    if family.short_length:
        for length in ("short", "long"):
            factors = np.asarray(LONG[f"{length}_factor"], np.float32)
            yield f"rope_factors_{length}.weight", factors, GGMLQuantizationType.F32


def expert_tensors(
    family: Family, block: str, name: str, values: np.ndarray
) -> Iterator[tuple[str, np.ndarray, GGMLQuantizationType]]:
    """Matrices [experts, rows, columns] and biases [experts, rows] of gate, up and down."""
    is_bias = name.endswith("_bias")
    kind = GGMLQuantizationType.F32 if is_bias else format_of(family, name)
    if family.interleaves and not is_bias:
        values = values.swapaxes(1, 2)
    if "gate_up" not in name:
        parts = {"ffn_down_exps": values}
    elif family.interleaves:
        parts = {"ffn_gate_exps": values[:, ::2], "ffn_up_exps": values[:, 1::2]}
    else:
        half = values.shape[1] // 2
        parts = {"ffn_gate_exps": values[:, :half], "ffn_up_exps": values[:, half:]}
    for part, piece in parts.items():
        yield (
            f"{block}{part}.{'bias' if is_bias else 'weight'}",
            quants.quantize(np.ascontiguousarray(piece), kind),
            kind,
        )


def frequency_factors(family: Family, model: Any) -> np.ndarray | None:
    """By what the plain frequencies are divided, where a converter writes that down."""
    parameters = model.config.rope_parameters
    if parameters.get("rope_type") != "llama3":
        return None
    found = model.model.rotary_emb.inv_freq.double().numpy()
    plain = parameters["rope_theta"] ** (-np.arange(len(found)) / len(found))
    return (plain / found).astype(np.float32)


def write_file(path: Path, family: Family, model: Any) -> None:
    """The model as a converter writes it."""
    config, writer = model.config, GGUFWriter(path, family.architecture)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    keys: dict[str, Any] = {
        "context_length": 128,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "rope.freq_base": 10000.0,
        "rope.dimension_count": head_dim,
    } | dict(family.keys)
    for key, value in keys.items():
        add = {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32}[type(value)]
        add(f"{family.architecture}.{key}", value)
    for name, raw, kind in tensors_of(family, model):
        writer.add_tensor(name, raw, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def logits_of(model: Any, ids: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return model(torch.from_numpy(ids)[None], use_cache=False).logits[0].float().numpy()


def make(name: str) -> None:
    """Writes NAME.gguf and NAME.npz."""
    family = FAMILIES[name]
    model = make_model(family)
    ids = np.random.default_rng(3).integers(0, VOCAB_SIZE, NUM_TOKENS)
    source = f"transformers {transformers.__version__}, {type(model).__name__}"
    arrays = {"ids": ids.astype(np.int32), "logits": logits_of(model, ids), "source": np.array(source)}
    if family.short_length:
        arrays |= {"short_length": np.array(family.short_length)}
        arrays |= {"short_logits": logits_of(model, ids[: family.short_length])}
    write_file(FOLDER / f"{name}.gguf", family, model)
    np.savez_compressed(FOLDER / f"{name}.npz", **arrays)
    spread = float(arrays["logits"].std())
    print(f"{name}: {(FOLDER / f'{name}.gguf').stat().st_size / 1000:.0f} kB, logits' standard deviation {spread:.3f}")


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for chosen in sys.argv[1:] or FAMILIES:
        make(chosen)
