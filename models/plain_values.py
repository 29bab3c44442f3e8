"""Numbers of the plain formats (F32, F16, BF16) as float32.

Owns that conversion.  Does not know files or tensors.
"""

from __future__ import annotations

import numpy as np

from models.formats import BlockFormat


def plain_values(raw: np.ndarray, block_format: BlockFormat) -> np.ndarray | None:
    """A copy in float32 of what these bytes (uint8, one dimension) hold; None where the format has blocks."""
    match block_format.name:
        case "F32":
            return raw.view("<f4").astype(np.float32)
        case "F16":
            return raw.view("<f2").astype(np.float32)
        case "BF16":
            return (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
        case _:
            return None
