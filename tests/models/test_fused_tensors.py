"""Fused tensors as files hold them: parts by name, whole rows each, and nothing cut that doesn't fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from tiny_models import Tensor, gguf_bytes

from models.gguf_file import open_model_file

KEYS: dict[str, Any] = {
    "general.architecture": "phi3",
    "phi3.embedding_length": 4,
    "phi3.feed_forward_length": 3,
    "phi3.attention.head_count": 2,
    "phi3.attention.head_count_kv": 1,
}


def matrix(name: str, rows: int) -> Tensor:
    return Tensor(name=name, ggml_id=0, shape=(rows, 4), data=np.arange(4 * rows, dtype="<f4").tobytes())


def shapes(path: Path, keys: dict[str, Any], *tensors: Tensor) -> dict[str, tuple[int, ...]]:
    path.write_bytes(gguf_bytes(keys, tensors))
    with open_model_file(path) as file:
        return {name: tensor.shape for name, tensor in file.tensors.items()}


def test_parts_are_runs_of_rows(tmp_path: Path) -> None:
    path = tmp_path / "fused.gguf"
    tensors = (
        matrix("blk.0.attn_qkv.weight", 8),
        Tensor(name="blk.0.attn_qkv.bias", ggml_id=0, shape=(8,), data=np.arange(8, dtype="<f4").tobytes()),
        matrix("blk.0.ffn_up.weight", 6),
    )
    assert shapes(path, KEYS, *tensors) == {
        "blk.0.attn_q.weight": (4, 4), "blk.0.attn_k.weight": (2, 4), "blk.0.attn_v.weight": (2, 4),
        "blk.0.attn_q.bias": (4,), "blk.0.attn_k.bias": (2,), "blk.0.attn_v.bias": (2,),
        "blk.0.ffn_gate.weight": (3, 4), "blk.0.ffn_up.weight": (3, 4),
    }  # fmt: skip
    with open_model_file(path) as file:
        assert file.floats("blk.0.attn_k.weight").tolist() == np.arange(16, 24).reshape(2, 4).tolist()
        assert file.floats("blk.0.attn_v.bias").tolist() == [6, 7]
        assert file.floats("blk.0.ffn_up.weight").tolist() == np.arange(12, 24).reshape(3, 4).tolist()
        assert file.raw("blk.0.attn_v.weight").shape == (2, 16)


def test_what_does_not_fit_stays_whole(tmp_path: Path) -> None:
    path = tmp_path / "whole.gguf"
    odd = {"blk.0.attn_qkv.weight": (7, 4), "blk.0.ffn_up.weight": (3, 4)}
    assert shapes(path, KEYS, *(matrix(name, shape[0]) for name, shape in odd.items())) == odd
    gated = {"blk.0.ffn_up.weight": (6, 4), "blk.0.ffn_gate.weight": (3, 4)}
    assert shapes(path, KEYS, *(matrix(name, shape[0]) for name, shape in gated.items())) == gated
    silent = {"blk.0.attn_qkv.weight": (8, 4)}
    for keys in ({"general.architecture": "phi3"}, KEYS | {"phi3.attention.head_count": "many"}):
        assert shapes(path, keys, matrix("blk.0.attn_qkv.weight", 8)) == silent
