"""Makes tests/data/architectures: tiny random models as GGUF files, with what the package transformers makes of them.

    python -m venv /tmp/references && /tmp/references/bin/pip install torch transformers gguf
    /tmp/references/bin/python scripts/make_references.py [NAME ...]

Owns the way from a checkpoint to a GGUF file (reference_families.py has the configurations, reference_names.py the
names).  It is the independent side of the comparison: it imports nothing of Tandem.  Weights are rounded to the file's
block format before either side sees them.

NAME.npz: `ids` [T], `logits` float32 [T, vocabulary], `source`, what computed them; where a model has one table for
short contexts and one for long, `short_logits` of the first `short_length` positions too.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
import transformers  # pyright: ignore[reportMissingImports]
from gguf import GGMLQuantizationType, GGUFWriter, quants
from reference_families import FAMILIES
from reference_names import NAMES
from reference_shapes import EPSILON, LONG, NUM_TOKENS, SHAPE, VOCAB_SIZE, Family, rope

# Places whose names in the file are whole.
WHOLE_NAMES = (
    "linear_attn.A_log", "linear_attn.dt_bias", "router.scale", "router.per_expert_scale", "feed_forward.expert_bias",
    "mlp.gate.e_score_correction_bias",
)  # fmt: skip
FOLDER = Path(__file__).resolve().parents[1] / "tests" / "data" / "architectures"


def make_model(family: Family) -> torch.nn.Module:
    """The model with weights as a trained one's might be, rounded to the block format."""
    is_text = family.model in ("Gemma3", "Gemma4", "Qwen3_5", "Qwen3_5Moe")
    config = getattr(transformers, f"{family.model}{'Text' if is_text else ''}Config")(
        **{**SHAPE, "rope_parameters": rope(), **family.config}
    )
    torch.manual_seed(1)
    model = getattr(transformers, f"{family.model}ForCausalLM")(config).eval()
    config._attn_implementation = "eager"
    config.allow_global_per_layer_attribute_access = True
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in weights_of(model):
            noise = torch.randn(parameter.shape, generator=generator)
            if "norm" in name and name.endswith("weight") or name.endswith(("_scalar", "r.scale", "t_scale")):
                level = family.query_level if name.endswith("q_norm.weight") else 1.0
                parameter.copy_((0.0 if adds_one(family, name) else level) + 0.2 * level * noise)
            elif is_matrix(name, parameter):
                spread = 3.0 if "q_proj" in name or is_router(name) else 1.0
                columns = parameter.shape[-2] if parameter.ndim == 3 and family.interleaves else parameter.shape[-1]
                parameter.copy_(noise * (spread / math.sqrt(columns)))
                parameter.copy_(torch.from_numpy(rounded(family, name, parameter.numpy())))
            elif name.endswith("A_log"):
                parameter.copy_(0.5 * noise - 2.0)  # it forgets slowly
            else:
                parameter.copy_(0.5 * noise)
    return model


def weights_of(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters, and the numbers that a checkpoint has beside them."""
    yield from model.named_parameters()
    yield from (
        (name, values)
        for name, values in model.named_buffers()
        if name.endswith(("_scalar", "expert_bias", "correction_bias"))
    )


def with_norms_together(weights: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
    """Norms of each head, which some checkpoints keep one by one, as one tensor."""
    found: dict[str, list[torch.Tensor]] = {}
    for name, values in weights:
        if match := re.fullmatch(r"(.+)\.norms\.\d+\.weight", name):
            found.setdefault(f"{match[1]}.weight", []).append(values)
        else:
            yield name, values
    yield from ((name, torch.stack(norms)) for name, norms in found.items())


def adds_one(family: Family, name: str) -> bool:
    """Whether a norm's weights are kept less one."""
    return family.adds_one and "linear_attn." not in name


def is_matrix(name: str, values: Any) -> bool:
    """A weight that the file holds in blocks."""
    return values.ndim >= 2 and not name.endswith(("_bias", "norm.weight", "conv.conv.weight", "conv1d.weight"))


def is_router(name: str) -> bool:
    """Whether a matrix gives the scores by which experts are chosen or weighed."""
    routers = ("mlp.gate.weight", "feed_forward.gate.weight", "shared_expert_gate.weight")
    return ".router." in name or name.endswith(routers)


def format_of(family: Family, name: str) -> GGMLQuantizationType:
    """Routers stay float32, as converters leave them."""
    if is_router(name):
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
    for name, parameter in with_norms_together(weights_of(model)):
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        values = parameter.detach().float().numpy()
        match = re.fullmatch(r"(?:model\.layers\.(\d+)\.)?(.+?)(?:\.(weight|bias))?", name)
        assert match
        layer, place, kind = match.groups()
        block = "" if layer is None else f"blk.{layer}."
        if ".experts." in f".{place}." or place.endswith(("put_linear",)) and values.ndim == 3:
            yield from expert_tensors(family, block, name, values)
            continue
        if "norm" in name and kind == "weight" and adds_one(family, name):
            values = values + 1.0
        if place.endswith("A_log"):
            values = -np.exp(values)
        if place.startswith("linear_attn.") and family.tiles:
            values = tiled(model.config, place, values)
        if "conv" in place and values.ndim == 3 and values.shape[1] == 1:
            values = values[:, 0]
        if place.endswith("in_proj_qkvz"):
            yield from grouped_tensors(model.config, f"{block}attn_", rows_of(values, format_of(family, name)))
            continue
        if place.endswith("shared_expert_gate"):
            values = values[0]
        raw_kind = format_of(family, name) if is_matrix(name, values) else GGMLQuantizationType.F32
        raw = quants.quantize(np.ascontiguousarray(values), raw_kind)
        if family.permutes and place in ("self_attn.q_proj", "self_attn.k_proj"):
            heads = model.config.num_attention_heads if "q_proj" in place else model.config.num_key_value_heads
            raw = permuted(raw, heads)
        suffix = "" if place in WHOLE_NAMES else f".{kind or 'weight'}"
        yield f"{block}{names[place]}{suffix}", raw, raw_kind
    if (factors := frequency_factors(family, model)) is not None:
        yield "rope_freqs.weight", factors, GGMLQuantizationType.F32
    if family.short_length:
        for length in ("short", "long"):
            factors = np.asarray(LONG[f"{length}_factor"], np.float32)
            yield f"rope_factors_{length}.weight", factors, GGMLQuantizationType.F32


def rows_of(values: np.ndarray, kind: GGMLQuantizationType) -> tuple[np.ndarray, GGMLQuantizationType]:
    return quants.quantize(np.ascontiguousarray(values), kind), kind


def grouped_tensors(
    config: Any, prefix: str, rows: tuple[np.ndarray, GGMLQuantizationType]
) -> Iterator[tuple[str, np.ndarray, GGMLQuantizationType]]:
    """Rows of q, k, v and z stand key head by key head in the checkpoint, one after another in the file."""
    raw, kind = rows
    groups, key = config.linear_num_key_heads, config.linear_key_head_dim
    value = config.linear_num_value_heads // groups * config.linear_value_head_dim
    parts = np.split(raw.reshape(groups, 2 * key + 2 * value, -1), np.cumsum([key, key, value]), axis=1)
    q, k, v, z = (np.ascontiguousarray(part.reshape(-1, raw.shape[-1])) for part in parts)
    yield f"{prefix}qkv.weight", np.concatenate([q, k, v]), kind
    yield f"{prefix}gate.weight", z, kind


def tiled(config: Any, place: str, values: np.ndarray) -> np.ndarray:
    """Heads of values, which stand by the key heads that they share, dealt out to the key heads in turn."""
    groups, heads, size = config.linear_num_key_heads, config.linear_num_value_heads, config.linear_value_head_dim

    def dealt(rows: np.ndarray) -> np.ndarray:
        shape = (groups, heads // groups, len(rows) // heads, *rows.shape[1:])
        return rows.reshape(shape).swapaxes(0, 1).reshape(rows.shape)

    if place.endswith(("in_proj_qkv", "conv1d")):
        keys = len(values) - heads * size
        return np.concatenate([values[:keys], dealt(values[keys:])])
    if place.endswith("out_proj"):
        return np.ascontiguousarray(dealt(values.T).T)
    return values if place.endswith(".norm") else dealt(values)


def expert_tensors(
    family: Family, block: str, name: str, values: np.ndarray
) -> Iterator[tuple[str, np.ndarray, GGMLQuantizationType]]:
    """Matrices [experts, rows, columns] and biases [experts, rows] of gate, up and down."""
    is_bias = name.endswith("_bias")
    kind = GGMLQuantizationType.F32 if is_bias else format_of(family, name)
    if family.interleaves and not is_bias:
        values = values.swapaxes(1, 2)
    if "gate_up" not in name and "input_linear" not in name:
        parts = {"ffn_down_exps": values}
    elif family.fuses_experts:
        parts = {"ffn_gate_up_exps": values}
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
    if parameters.get("full_attention", {}).get("rope_type") == "proportional":
        found = model.model.rotary_emb.full_attention_inv_freq.double().numpy()
        plain = parameters["full_attention"]["rope_theta"] ** (-np.arange(len(found)) / len(found))
        return np.where(found == 0.0, 1e30, plain / np.where(found == 0.0, 1.0, found)).astype(np.float32)
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
        f"attention.layer_norm_{'' if family.has_layer_norm else 'rms_'}epsilon": EPSILON,
        "rope.freq_base": 10000.0,
        "rope.dimension_count": head_dim,
    } | dict(family.keys)
    for key, value in keys.items():
        adders = {bool: writer.add_bool, str: writer.add_string, int: writer.add_uint32, float: writer.add_float32}
        adders.get(type(value), writer.add_array)(f"{family.architecture}.{key}", value)
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
