"""Files of models too large for tests: real headers, and holes where the weights would be.

Owns the writing.  A hole takes no room on the disk; what is read of it is zeros.  Good for everything that looks at a
header alone.
"""

from __future__ import annotations

import struct
from math import prod
from pathlib import Path

from tiny_models import TinyShape, byte_pair_vocabulary, gguf_bytes, tiny_metadata

from models.formats import FORMATS

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

_ALIGNMENT = 32


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
    _write(path, shape, {name: (kind_of(name, format), size) for name, size in sizes.items()})
    return path


def kind_of(name: str, format: str) -> str:
    """Vectors are F32."""
    return "F32" if "norm" in name else format


def _write(path: Path, shape: TinyShape, tensors: dict[str, tuple[str, tuple[int, ...]]]) -> None:
    header = gguf_bytes(tiny_metadata("llama", shape) | byte_pair_vocabulary(), [], alignment=1)
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
