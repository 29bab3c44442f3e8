"""The numbers of the rotation that a file's metadata give: how many values turn, and how frequencies are stretched.

Owns these keys and their limits.  Does not know the formulas (rope.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from models.errors import ArchitectureError
from models.metadata_keys import MetadataKeys, shown

ScalingKind = Literal["none", "linear", "yarn", "longrope", "llama3"]
MOST_POSITIONS = 1 << 31
"""More than any model has: beyond them a number is damage."""


@dataclass(frozen=True, kw_only=True)
class RopeScaling:
    """How a model's rotary frequencies are stretched for contexts longer than its first training.

    factor: how many times longer; original_context_length: positions of the first training.
    attention_factor multiplies cosine and sine.  beta_fast, beta_slow, extrapolation and log_multiplier (of YaRN's own
    attention factor: 0, none, is divided out) belong to YaRN, the two frequency factors to llama3.
    """

    kind: ScalingKind
    factor: float
    original_context_length: int
    attention_factor: float = 1.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    extrapolation: float = 1.0
    log_multiplier: float = 0.0
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0


def rope_dimensions(keys: MetadataKeys, head_dim: int) -> int:
    """How many values of a head turn."""
    dimensions = keys.optional_integer("rope.dimension_count") or head_dim
    if dimensions % 2 or dimensions > head_dim:
        raise ArchitectureError(
            f"{keys.architecture}.rope.dimension_count is {dimensions};"
            f" an even number of at most {head_dim}, a head's length, was expected."
        )
    return dimensions


def rope_scaling(keys: MetadataKeys, context_length: int) -> RopeScaling:
    """What the file says of longer contexts; context_length: the model's own."""
    full_key, kind = keys.find("rope.scaling.type")
    factor = keys.optional_number("rope.scaling.factor") or keys.number("rope.scale_linear", 1.0)
    if kind is None:  # files from before the key existed scale linearly
        kind = "none" if factor == 1.0 else "linear"
    if kind not in get_args(ScalingKind):
        raise ArchitectureError(f"{full_key} is {shown(kind)}; Tandem knows {', '.join(get_args(ScalingKind))}.")
    original = keys.optional_integer("rope.scaling.original_context_length", at_least=0, at_most=MOST_POSITIONS)
    return RopeScaling(
        kind=kind,
        factor=1.0 if kind == "none" else factor,
        original_context_length=original or context_length,
        attention_factor=keys.number("rope.scaling.attn_factor", 1.0),
        beta_fast=keys.number("rope.scaling.yarn_beta_fast", RopeScaling.beta_fast),
        beta_slow=keys.number("rope.scaling.yarn_beta_slow", RopeScaling.beta_slow),
        extrapolation=keys.number("rope.scaling.yarn_ext_factor", RopeScaling.extrapolation),
        log_multiplier=keys.number("rope.scaling.yarn_log_multiplier", RopeScaling.log_multiplier),
        low_frequency_factor=keys.number("rope.scaling.low_freq_factor", RopeScaling.low_frequency_factor),
        high_frequency_factor=keys.number("rope.scaling.high_freq_factor", RopeScaling.high_frequency_factor),
    )
