"""Matrices that some converters write as one tensor, taken apart: Q, K and V, gate and up, a convolution's inputs.

Owns the names and the order of rows.  The parts are runs of whole rows, so each is a tensor of the file in its own
right and nothing is copied.  Does not know what the parts are used for.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any

from models.gguf_parser import TensorInfo

_QKV = re.compile(r"(?P<block>blk\.\d+)\.attn_qkv\.(?P<kind>weight|bias)")
_CONVOLUTION = re.compile(r"(?P<block>blk\.\d+\.shortconv)\.in_proj\.(?P<kind>weight|bias)")
_UP_EXPERTS = re.compile(r"(?P<block>blk\.\d+)\.ffn_gate_up_exps\.weight")
_UP = re.compile(r"(?P<block>blk\.\d+)\.ffn_up\.(?P<kind>weight|bias)")


def split_fused(metadata: Mapping[str, Any], tensors: Mapping[str, TensorInfo]) -> dict[str, TensorInfo]:
    """The tensors by name, in order, with the parts of fused ones in their place.

    attn_qkv: rows of Q, then K, then V.  ffn_up: rows of the gate, then of up, where the file has no gate and the
    tensor twice the rows of the feed-forward width.  shortconv.in_proj: rows of b, c and x (models/mixers.py), as many
    of each.  ffn_gate_up_exps: of every expert the rows of the gate, then of up.  What doesn't fit the metadata stays
    whole.
    """
    found: dict[str, TensorInfo] = {}
    for name, tensor in tensors.items():
        if (match := _UP_EXPERTS.fullmatch(name)) and len(tensor.shape) == 3 and tensor.shape[1] % 2 == 0:
            found |= {part.name: part for part in _halved(tensor, match["block"])}
            continue
        parts = dict(_parts(metadata, tensors, tensor)) or {name: tensor.shape[0]}
        if sum(parts.values()) == tensor.shape[0] and not (parts.keys() - {name}) & tensors.keys():
            found |= {part.name: part for part in _cut(tensor, parts)}
        else:
            found[name] = tensor
    return found


def _parts(
    metadata: Mapping[str, Any], tensors: Mapping[str, TensorInfo], tensor: TensorInfo
) -> Iterator[tuple[str, int]]:
    """Name and rows of each part; nothing where a tensor is not fused."""
    if match := _QKV.fullmatch(tensor.name):
        for part, rows in zip("qkv", _head_rows(metadata), strict=False):
            yield f"{match['block']}.attn_{part}.{match['kind']}", rows
    elif match := _CONVOLUTION.fullmatch(tensor.name):
        for part in "bcx":
            yield f"{match['block']}.in_{part}.{match['kind']}", tensor.shape[0] // 3
    elif match := _UP.fullmatch(tensor.name):
        width = _number(metadata, "feed_forward_length")
        gate = f"{match['block']}.ffn_gate.{match['kind']}"
        if width is not None and tensor.shape[0] == 2 * width and gate not in tensors:
            yield gate, width
            yield tensor.name, width


def _halved(tensor: TensorInfo, block: str) -> Iterator[TensorInfo]:
    """Gate and up of experts that stand together: matrices with gaps between them."""
    experts, rows, columns = tensor.shape
    matrix_bytes = tensor.size_bytes // experts
    for idx, name in enumerate(("gate", "up")):
        yield dataclasses.replace(
            tensor, name=f"{block}.ffn_{name}_exps.weight", shape=(experts, rows // 2, columns),
            offset_bytes=tensor.offset_bytes + idx * matrix_bytes // 2, size_bytes=tensor.size_bytes // 2,
            gap_bytes=matrix_bytes // 2,
        )  # fmt: skip


def _head_rows(metadata: Mapping[str, Any]) -> tuple[int, ...]:
    """Rows of Q, K and V; empty where the metadata don't say."""
    if _number(metadata, "ssm.inner_size"):
        return ()  # layers with a delta rule have a tensor of that name, of other rows
    heads, width = _number(metadata, "attention.head_count"), _number(metadata, "embedding_length")
    kv_heads = _number(metadata, "attention.head_count_kv") or heads
    if not heads or not kv_heads or not width:
        return ()
    head_dim = _number(metadata, "attention.key_length") or width // heads
    return heads * head_dim, kv_heads * head_dim, kv_heads * head_dim


def _number(metadata: Mapping[str, Any], key: str) -> int | None:
    value = metadata.get(f"{metadata.get('general.architecture')}.{key}")
    return value if isinstance(value, int) and value > 0 else None


def _cut(tensor: TensorInfo, parts: Mapping[str, int]) -> Iterator[TensorInfo]:
    row_bytes = tensor.size_bytes // tensor.shape[0]
    offset = tensor.offset_bytes
    for name, rows in parts.items():
        yield dataclasses.replace(
            tensor, name=name, shape=(rows, *tensor.shape[1:]), offset_bytes=offset, size_bytes=rows * row_bytes
        )
        offset += rows * row_bytes
