"""LoRA adapters for tests: files as converters write them, and the weights that a model has once they are merged.

Owns the layout of such a file, and float64 merging.  Does not know how an adapter is applied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from oracle import FileWeights
from tiny_models import Tensor, gguf_bytes

from models.gguf_file import ModelFile

Array = np.ndarray[Any, np.dtype[Any]]
ALPHA = 12.0


def low_rank_pairs(
    file: ModelFile, weights: Sequence[str], *, rank: int, seed: int, size: float = 0.3
) -> dict[str, tuple[Array, Array]]:
    """For each weight a random (A [rank, columns], B [rows, rank]), with a product `size` times as large as weights."""
    rng = np.random.default_rng(seed)
    pairs = {}
    for weight in weights:
        rows, columns = file.tensors[weight].shape
        a = rng.standard_normal((rank, columns)).astype(np.float32) * columns**-0.5
        b = rng.standard_normal((rows, rank)).astype(np.float32) * size * rank**-0.5
        pairs[weight] = (a.astype(np.float16).astype(np.float32), b.astype(np.float16).astype(np.float32))
    return pairs


def write_adapter(
    path: Path,
    architecture: str,
    pairs: Mapping[str, tuple[Array, ...]],
    *,
    alpha: float = ALPHA,
    metadata: Mapping[str, Any] | None = None,
    is_half: bool = True,
) -> Path:
    """Writes an adapter; metadata: keys to add or change, None as a value takes one away."""
    keys: dict[str, Any] = {
        "general.architecture": architecture,
        "general.type": "adapter",
        "adapter.type": "lora",
        "adapter.lora.alpha": float(alpha),
        **(metadata or {}),
    }
    dtype, ggml_id = ("<f2", 1) if is_half else ("<f4", 0)
    tensors = [
        Tensor(name=f"{weight}.{suffix}", ggml_id=ggml_id, shape=matrix.shape, data=matrix.astype(dtype).tobytes())
        for weight, pair in pairs.items()
        for suffix, matrix in zip(("lora_a", "lora_b"), pair, strict=False)  # tests leave a half out
    ]
    path.write_bytes(gguf_bytes({key: value for key, value in keys.items() if value is not None}, tensors))
    return path


@dataclass(frozen=True)
class MergedWeights(FileWeights):
    """A file's weights in float64 with pairs added to them: W + sum of strength * B A."""

    added: Sequence[tuple[Mapping[str, tuple[Array, Array]], float]]

    def whole(self, name: str) -> Array:
        merged = super().whole(name).astype(np.float64)
        for pairs, scale in self.added:
            if name in pairs:
                a, b = (matrix.astype(np.float64) for matrix in pairs[name])
                merged = merged + scale * ALPHA / len(a) * (b @ a)
        return merged
