"""The model families as values: what an architecture does that its file doesn't say.

Owns the declarations and the lookup by name.  Does not know files, shapes or operations: lowering.py reads a
declaration, and nothing anywhere asks for a family's name.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from models.errors import ArchitectureError, quoted
from models.program import Activation, Pairing


@dataclass(frozen=True, kw_only=True)
class ScaleOfSize:
    """The models of num_layers layers divide q K^T by sqrt(width_per_query), which their files don't say."""

    num_layers: int
    width_per_query: int


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """One family.  Where a field has a counterpart in the file, it is what holds when the file is silent.

    rope_pairing: as the converter left the rows of Q and K (it permutes those of `llama` so that neighbours pair).
    requires_qkv_bias: a file without biases of Q, K and V is refused; elsewhere biases are used where a file has them.
    has_qk_norm: every head of q and k is normalised before it is rotated.
    has_post_norms: each branch is normalised once more before it is added to the hidden state.
    embedding_scale: rows of the embedding are multiplied by 1 or by the square root of the width.
    global_every: layers n - 1, 2n - 1, ... see the whole context, the others a window; None: all see the whole context.
    has_sensitive_gate: rounding the input of gate and up to one byte costs this family most (Gemma's norms let single
        channels stand out: perplexity moves by 1.7 % over 1,900 tokens, by 0.3 % with two terms there).
    local_rope_base: the rotation base of layers with a window (theirs is never scaled); None: as in the other layers.
    """

    name: str
    rope_pairing: Pairing
    activation: Activation
    requires_qkv_bias: bool = False
    has_qk_norm: bool = False
    has_post_norms: bool = False
    has_sensitive_gate: bool = False
    embedding_scale: Literal["one", "sqrt_width"] = "one"
    rope_base: float = 10_000.0
    local_rope_base: float | None = None
    global_every: int | None = None
    scales_of_sizes: tuple[ScaleOfSize, ...] = ()


LLAMA = Architecture(
    name="llama",
    rope_pairing="neighbours",
    activation="silu",
)

QWEN2 = Architecture(
    name="qwen2",
    rope_pairing="halves",
    activation="silu",
    requires_qkv_bias=True,
)

GEMMA3 = Architecture(
    name="gemma3",
    rope_pairing="halves",
    activation="gelu_tanh",
    has_qk_norm=True,
    has_post_norms=True,
    has_sensitive_gate=True,
    embedding_scale="sqrt_width",
    rope_base=1_000_000.0,
    local_rope_base=10_000.0,
    global_every=6,
    # Gemma 3 27B: 5376 values of width for 32 heads of 128.
    scales_of_sizes=(ScaleOfSize(num_layers=62, width_per_query=168),),
)

ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType(
    {architecture.name: architecture for architecture in (LLAMA, QWEN2, GEMMA3)}
)


def find_architecture(name: str) -> Architecture:
    """The declaration of `name`; ArchitectureError naming those there are, and the nearest, where there is none."""
    if name in ARCHITECTURES:
        return ARCHITECTURES[name]
    known = ", ".join(ARCHITECTURES)
    nearest = difflib.get_close_matches(name, ARCHITECTURES, n=1, cutoff=0.5)
    hint = f"; the nearest is {nearest[0]}, but its mathematics differ" if nearest else ""
    raise ArchitectureError(
        f"general.architecture is {quoted(name)}, which Tandem can't run. It runs {known}{hint}."
        " Choose a model of one of these."
    )
