"""Block formats that no kernel multiplies with: their weights become float16 when they are read.

Owns their sizes and the way to float16, by the package `gguf`.  That is slow, takes several times the file's memory,
and rounds each weight to 11 bits, which is far less than the format itself has cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from models.formats import BlockFormat

_CHUNK_BYTES = 1 << 20  # of blocks that are expanded at a time


def _opaque(name: str, ggml_id: int, block_bytes: int, block_elements: int = 256) -> BlockFormat:
    return BlockFormat(
        name=name,
        ggml_id=ggml_id,
        block_elements=block_elements,
        block_bytes=block_bytes,
        fields=(),
        group_elements=block_elements,
    )


EXPANDED_FORMATS: Mapping[int, BlockFormat] = MappingProxyType(
    {
        block_format.ggml_id: block_format
        for block_format in (
            _opaque("IQ2_XXS", 16, 66),
            _opaque("IQ2_XS", 17, 74),
            _opaque("IQ3_XXS", 18, 98),
            _opaque("IQ1_S", 19, 50),
            _opaque("IQ3_S", 21, 110),
            _opaque("IQ2_S", 22, 82),
            _opaque("IQ1_M", 29, 56),
            _opaque("TQ1_0", 34, 54),
            _opaque("TQ2_0", 35, 66),
            _opaque("NVFP4", 40, 36, block_elements=64),
        )
    }
)
"""By their numbers in GGUF files."""


def expand(raw: np.ndarray, block_format: BlockFormat) -> np.ndarray:
    """Rows of blocks, uint8 [rows, row_bytes], as the bytes of float16 numbers, uint8 [rows, 2 * columns]."""
    from gguf import GGMLQuantizationType, quants

    num_rows, row_bytes = raw.shape
    columns = row_bytes // block_format.block_bytes * block_format.block_elements
    out = np.empty((num_rows, columns), "<f2")
    step = max(1, _CHUNK_BYTES // row_bytes)
    for first in range(0, num_rows, step):
        rows = np.ascontiguousarray(raw[first : first + step])
        # A damaged file's numbers may lie beyond float16's: they become infinite, as they would in any other format.
        with np.errstate(over="ignore", invalid="ignore"):
            out[first : first + step] = quants.dequantize(rows, GGMLQuantizationType(block_format.ggml_id))
    return out.view(np.uint8)
