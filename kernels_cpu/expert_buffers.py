"""The buffers that a mixture of experts needs on the way from a token's row to the sum of what its experts give.

Owns their names and sizes; plan.py reserves them, expert_steps.py fills them.
"""

from __future__ import annotations

from dataclasses import dataclass

from models.program import Buffer, MixExperts


@dataclass(frozen=True, kw_only=True)
class ExpertBuffers:
    """What a mixture of experts writes on the way; pairs of a token and an expert have a row each.

    route, groups: see operands.py.  x: records of the tokens, gathered; gate, up, y: results of the experts' products.
    """

    route: Buffer
    groups: Buffer
    x: Buffer
    gate: Buffer
    up: Buffer
    y: Buffer

    @property
    def of_pairs(self) -> tuple[Buffer, ...]:
        return self.x, self.gate, self.up, self.y


def expert_buffers(operation: MixExperts, max_batch_tokens: int) -> ExpertBuffers:
    """The buffers of an operation; layers that are alike share them."""
    name, pairs = operation.out.name, max_batch_tokens * operation.num_used
    return ExpertBuffers(
        route=Buffer(name=f"{name}.route", width=3 * operation.num_used),
        groups=Buffer(name=f"{name}.groups", width=operation.num_experts + 1 + pairs),
        x=Buffer(name=f"{name}.pairs", width=operation.x.width),
        gate=Buffer(name=f"{name}.gate", width=operation.width),
        up=Buffer(name=f"{name}.up", width=operation.width),
        y=Buffer(name=f"{name}.experts", width=operation.out.width),
    )
