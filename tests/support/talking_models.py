"""The tiny models of tests/data/architectures with a vocabulary, so that an engine can load them.

Owns the joining: rows of the embedding are repeated for as many tokens as the vocabulary has.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from references import path_of
from tiny_models import Tensor, byte_pair_vocabulary, gguf_bytes

from models.gguf_file import open_model_file


def write_talking_model(path: Path, name: str, *, context_length: int = 1024) -> Path:
    """Writes the model called `name` with a vocabulary of some hundred tokens; returns the path."""
    with open_model_file(path_of(name)) as file:
        metadata: dict[str, Any] = {
            key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in file.metadata.items()
        }
        metadata[f"{metadata['general.architecture']}.context_length"] = context_length
        metadata |= byte_pair_vocabulary("qwen2")
        count = len(metadata["tokenizer.ggml.tokens"])
        tensors = []
        for tensor in file.tensors.values():
            raw, shape = np.asarray(file.raw(tensor.name)), tensor.shape
            if tensor.name in ("token_embd.weight", "output.weight"):
                shape = (count, *shape[1:])
                raw = np.resize(raw, (count, *raw.shape[1:]))
                if tensor.name == "output.weight":  # of tokens with equal rows the first would always win
                    raw = raw[np.random.default_rng(1).permutation(count)]
            tensors.append(
                Tensor(
                    name=tensor.name,
                    ggml_id=tensor.format.ggml_id,
                    shape=shape,
                    data=np.ascontiguousarray(raw).tobytes(),
                )
            )
    path.write_bytes(gguf_bytes(metadata, tensors))
    return path
