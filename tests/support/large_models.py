"""Files of models too large for tests: real headers, and holes where the weights would be.

Owns the writing.  A hole takes no room on the disk; what is read of it is zeros.  Good for everything that looks at a
header alone.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from tiny_models import TinyShape, byte_pair_vocabulary, gguf_bytes, random_rows, tiny_metadata

from models.formats import FORMATS
from models.gguf_file import open_model_file

EIGHT_BILLION = TinyShape(
    num_layers=32,
    width=4096,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    feed_forward_width=14336,
    context_length=131_072,
)
"""Llama 3.1 8B's numbers."""
ONE_BILLION = TinyShape(
    num_layers=16,
    width=2048,
    num_heads=32,
    num_kv_heads=8,
    head_dim=64,
    feed_forward_width=8192,
    context_length=131_072,
)
"""Llama 3.2 1B's numbers."""


@dataclass(frozen=True, kw_only=True)
class Experts:
    """Numbers of a mixture; width: rows of an expert's gate and up."""

    num_experts: int
    num_used: int
    width: int


THIRTY_BILLION = TinyShape(
    num_layers=48,
    width=2048,
    num_heads=32,
    num_kv_heads=4,
    head_dim=128,
    feed_forward_width=6144,
    context_length=40_960,
)
THIRTY_BILLION_EXPERTS = Experts(num_experts=128, num_used=8, width=768)
"""Qwen3 30B A3B's numbers."""

_ALIGNMENT = 32
_ROWS = 64  # different ones of a matrix that is filled


def write_large_model(
    path: Path, shape: TinyShape, *, format: str = "Q4_K", vocab_size: int = 128_256, is_tied: bool = False
) -> Path:
    """Writes the header of a llama-architecture model and a hole, and returns the path."""
    q_width, kv_width = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    matrices = {"token_embd.weight": (vocab_size, shape.width)}
    vectors = {"output_norm.weight": shape.width}
    for layer_idx in range(shape.num_layers):
        block = f"blk.{layer_idx}"
        vectors |= {f"{block}.attn_norm.weight": shape.width, f"{block}.ffn_norm.weight": shape.width}
        matrices |= {
            f"{block}.attn_q.weight": (q_width, shape.width),
            f"{block}.attn_k.weight": (kv_width, shape.width),
            f"{block}.attn_v.weight": (kv_width, shape.width),
            f"{block}.attn_output.weight": (shape.width, q_width),
            f"{block}.ffn_gate.weight": (shape.feed_forward_width, shape.width),
            f"{block}.ffn_up.weight": (shape.feed_forward_width, shape.width),
            f"{block}.ffn_down.weight": (shape.width, shape.feed_forward_width),
        }
    if not is_tied:
        matrices["output.weight"] = (vocab_size, shape.width)
    sizes = {name: (size,) for name, size in vectors.items()} | matrices
    _write(path, tiny_metadata("llama", shape), {name: (kind_of(name, format), size) for name, size in sizes.items()})
    return path


def write_large_mixture(
    path: Path, shape: TinyShape, experts: Experts, *, format: str = "Q4_K", vocab_size: int = 151_936
) -> Path:
    """The same of a qwen3moe-architecture model."""
    q_width, kv_width = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    gate, down = (experts.num_experts, experts.width, shape.width), (experts.num_experts, shape.width, experts.width)
    sizes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (vocab_size, shape.width),
        "output.weight": (vocab_size, shape.width),
        "output_norm.weight": (shape.width,),
    }
    for layer_idx in range(shape.num_layers):
        block = f"blk.{layer_idx}"
        sizes |= {f"{block}.{name}.weight": (shape.width,) for name in ("attn_norm", "ffn_norm")}
        sizes |= {f"{block}.{name}.weight": (shape.head_dim,) for name in ("attn_q_norm", "attn_k_norm")}
        sizes |= {
            f"{block}.attn_q.weight": (q_width, shape.width),
            f"{block}.attn_k.weight": (kv_width, shape.width),
            f"{block}.attn_v.weight": (kv_width, shape.width),
            f"{block}.attn_output.weight": (shape.width, q_width),
            f"{block}.ffn_gate_inp.weight": (experts.num_experts, shape.width),
            f"{block}.ffn_gate_exps.weight": gate,
            f"{block}.ffn_up_exps.weight": gate,
            f"{block}.ffn_down_exps.weight": down,
        }
    metadata = tiny_metadata("qwen3moe", shape) | {
        "qwen3moe.expert_count": experts.num_experts,
        "qwen3moe.expert_used_count": experts.num_used,
        "qwen3moe.expert_feed_forward_length": experts.width,
    }
    _write(path, metadata, {name: (kind_of(name, format), size) for name, size in sizes.items()})
    return path


def fill(path: Path) -> Path:
    """Puts random weights into the holes of a file, the same few rows again and again; returns the path.

    Good for speed: what such a model says is noise.
    """
    rng = np.random.default_rng(1)
    with open_model_file(path) as file:
        places = [(tensor.format.name, tensor.shape, tensor.offset_bytes) for tensor in file.tensors.values()]
    rows: dict[tuple[str, int], bytes] = {}
    with open(path, "r+b") as file:
        for format_name, shape, offset in places:
            key = (format_name, shape[-1])
            if key not in rows:
                std = 1.0 if len(shape) == 1 else shape[-1] ** -0.5
                rows[key] = random_rows(format_name, (_ROWS, shape[-1]), rng, std=std).tobytes()
            file.seek(offset)
            left = prod(shape[:-1]) * FORMATS[format_name].row_bytes(shape[-1])
            while left > 0:
                left -= file.write(rows[key][:left])
    return path


def kind_of(name: str, format: str) -> str:
    """Vectors, and what chooses experts, are F32."""
    return "F32" if "norm" in name or "gate_inp" in name else format


def _write(path: Path, metadata: dict[str, Any], tensors: dict[str, tuple[str, tuple[int, ...]]]) -> None:
    header = gguf_bytes(metadata | byte_pair_vocabulary(), [], alignment=1)
    out = bytearray(header)
    struct.pack_into("<Q", out, 8, len(tensors))
    offset = 0
    for name, (format_name, size) in tensors.items():
        text = name.encode()
        out += struct.pack("<Q", len(text)) + text + struct.pack("<I", len(size))
        out += struct.pack(f"<{len(size)}QIQ", *size[::-1], FORMATS[format_name].ggml_id, offset)
        size_bytes = prod(size[:-1]) * FORMATS[format_name].row_bytes(size[-1])
        offset += -(-size_bytes // _ALIGNMENT) * _ALIGNMENT
    out += bytes(-len(out) % _ALIGNMENT)
    with open(path, "wb") as file:
        file.write(out)
        file.truncate(len(out) + offset)
