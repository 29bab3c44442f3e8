"""What a mixture of experts needs of the card's memory beside its weights.

Owns the names and sizes; plan.py reserves them, expert_steps.py fills them.  A pair is a token and an expert that it
uses: token * used + rank.
"""

from __future__ import annotations

from dataclasses import dataclass

from models.program import Buffer, MixExperts

TILE_PAIRS = 64  # of one expert, in prefill_experts.cu
MAX_EXPERTS, MAX_USED = 1024, 32  # that experts.cu has room for
MAX_PAIRS = 65535  # blocks of a grid's second dimension


@dataclass(frozen=True, kw_only=True)
class ExpertBuffers:
    """gate, up, y: a row for each pair.  Layers that are alike share them."""

    gate: Buffer
    up: Buffer
    y: Buffer


def expert_buffers(operation: MixExperts) -> ExpertBuffers:
    """The buffers of an operation."""
    name = operation.out.name
    return ExpertBuffers(
        gate=Buffer(name=f"{name}.gate", width=operation.width),
        up=Buffer(name=f"{name}.up", width=operation.width),
        y=Buffer(name=f"{name}.experts", width=operation.out.width),
    )


def most_tiles(operation: MixExperts, num_tokens: int) -> int:
    """Tiles that so many tokens' pairs make at most, however they are spread."""
    pairs = num_tokens * operation.num_used
    return min(pairs, pairs // TILE_PAIRS + operation.num_experts)


def choice_sizes(operation: MixExperts, max_tokens: int) -> dict[str, int]:
    """Bytes of what experts.cu writes, by name."""
    pairs = 4 * max_tokens * operation.num_used
    tiles = 16 * most_tiles(operation, max_tokens)
    return {"chosen experts": pairs, "expert weights": pairs, "sorted pairs": pairs, "expert tiles": tiles}
