"""A random LoRA adapter for a real model, the same bytes wherever it is made.

Owns its numbers.  Imports nothing of Tandem: scripts/make_peer_logits.py gives such a file to llama.cpp.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter

RANK, ALPHA, SCALE = 4, 8.0, 0.75
_SIZE, _SEED = 0.05, 11
_PARTS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


def write_random_adapter(base: Path, path: Path) -> Path:
    """For every product of every layer of a model a pair of rank 4, some per cent as large as the weights."""
    reader = GGUFReader(base)
    architecture: Any = reader.fields["general.architecture"].contents()
    rng = np.random.default_rng(_SEED)
    writer = GGUFWriter(path, str(architecture))
    writer.add_string("general.type", "adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", ALPHA)
    for tensor in sorted(reader.tensors, key=lambda tensor: tensor.name):
        if tensor.name.split(".")[-2] not in _PARTS:
            continue
        columns, rows = (int(size) for size in tensor.shape)
        a = rng.standard_normal((RANK, columns)) * columns**-0.5
        b = rng.standard_normal((rows, RANK)) * _SIZE
        for suffix, matrix in (("lora_a", a), ("lora_b", b)):
            writer.add_tensor(f"{tensor.name}.{suffix}", matrix.astype(np.float16), raw_dtype=GGMLQuantizationType.F16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
