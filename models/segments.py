"""A program cut in two at a layer, so that two devices can share it.

Owns where the cut goes: the hidden state is all that crosses.  Does not know devices.
"""

from __future__ import annotations

from dataclasses import dataclass

from models.program import Embed, KvLayer, Operation, Program, RotateAndStore


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A run of a program's operations.

    takes_tokens: it begins with the embedding; otherwise it needs the hidden state of every token.  gives_logits: it
    ends with the head; otherwise the hidden state of every token is what it leaves.  layers: what its own layers keep,
    by layer.
    """

    program: Program
    operations: tuple[Operation, ...]

    @property
    def takes_tokens(self) -> bool:
        return any(isinstance(operation, Embed) for operation in self.operations)

    @property
    def gives_logits(self) -> bool:
        return bool(self.operations) and self.operations[-1] is self.program.operations[-1]

    @property
    def layers(self) -> dict[int, KvLayer]:
        stored = [operation for operation in self.operations if isinstance(operation, RotateAndStore)]
        return {operation.layer_idx: operation.cache for operation in stored}


def whole(program: Program) -> Segment:
    """All of it."""
    return Segment(program=program, operations=program.operations)


def cut(program: Program, layer_idx: int) -> tuple[Segment, Segment]:
    """What comes before layer `layer_idx` (with the embedding), and the rest (with the head).

    layer_idx may be the number of layers: the rest is then the head alone.
    """
    assert 0 <= layer_idx <= len(program.layers), "a cut outside the model"
    operations = program.operations
    tail = next(
        idx
        for idx, operation in enumerate(operations)
        if not isinstance(operation, Embed) and (operation.layer_idx is None or operation.layer_idx >= layer_idx)
    )
    return (
        Segment(program=program, operations=operations[:tail]),
        Segment(program=program, operations=operations[tail:]),
    )
