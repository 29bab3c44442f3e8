"""A program divided among owners: who does which of its operations, and in which order.

Owns the cuts: the hidden state is all that crosses.  Does not know devices: an owner is a name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from models.program import (
    Embed,
    GatedProject,
    KvLayer,
    MixExperts,
    Normalize,
    Operation,
    Program,
    Project,
    RotateAndStore,
    SelectOutputs,
)
from models.recurrence import Convolve, DeltaRule, StateLayer

Run = tuple[Operation, ...]


@dataclass(frozen=True, kw_only=True)
class Segment:
    """What one owner does of a program: runs of operations that stand together there.

    A run that does not begin with the embedding needs the hidden state of every token; one that does not end with the
    head leaves it.
    """

    program: Program
    runs: tuple[Run, ...]

    @property
    def operations(self) -> tuple[Operation, ...]:
        """Of all runs, in order."""
        return tuple(operation for run in self.runs for operation in run)

    def takes_tokens(self, run_idx: int) -> bool:
        """Whether a run begins with the embedding."""
        return any(isinstance(operation, Embed) for operation in self.runs[run_idx])

    def gives_logits(self, run_idx: int) -> bool:
        """Whether a run ends with the head."""
        return self.runs[run_idx][-1] is self.program.operations[-1]

    @property
    def takes_hidden(self) -> bool:
        """Whether the hidden state comes to it, before one run or more."""
        return not all(map(self.takes_tokens, range(len(self.runs))))

    @property
    def gives_hidden(self) -> bool:
        """Whether the hidden state leaves it, after one run or more."""
        return not all(map(self.gives_logits, range(len(self.runs))))

    @property
    def has_head(self) -> bool:
        """Whether the logits are made here."""
        return self.gives_logits(len(self.runs) - 1)

    @property
    def output_buffers(self) -> frozenset[str]:
        """Names of the buffers that hold only rows whose logits are wanted."""
        found: set[str] = set()
        for operation in self.operations:
            match operation:
                case SelectOutputs(out=out):
                    found.add(out.name)
                case Normalize(x=x, out=out) | GatedProject(x=x, out=out) if x.name in found:
                    found.add(out.name)
                case Project(x=x, parts=parts) if x.name in found:
                    found.update(part.out.name for part in parts)
                case _:
                    pass
        return frozenset(found)

    @property
    def layers(self) -> dict[int, KvLayer]:
        """What the layers that attend here keep, by layer."""
        rotated = [operation for operation in self.operations if isinstance(operation, RotateAndStore)]
        return {operation.layer_idx: operation.cache for operation in rotated if operation.k is not None}

    @property
    def state_layers(self) -> dict[int, StateLayer]:
        """What the layers that go on from a state here keep, by layer."""
        own = {operation.layer_idx for operation in self.operations if isinstance(operation, Convolve | DeltaRule)}
        return {idx: layer for idx, layer in self.program.state_layers.items() if idx in own}


@dataclass(frozen=True, kw_only=True)
class Link:
    """A run, and whose it is."""

    owner: str
    run_idx: int


@dataclass(frozen=True, kw_only=True)
class Chain:
    """A whole program: its segments by owner, and their runs in order; no two neighbours have one owner."""

    segments: Mapping[str, Segment]
    links: tuple[Link, ...]


def whole(program: Program) -> Segment:
    """All of it, in one run."""
    return Segment(program=program, runs=(program.operations,))


def divide(program: Program, owners: Sequence[str]) -> Chain:
    """owners: of each operation.  They must change only where the hidden state alone is waited for."""
    runs: dict[str, list[Run]] = {}
    links: list[Link] = []
    for owner, pairs in groupby(zip(owners, program.operations, strict=True), key=lambda pair: pair[0]):
        own = runs.setdefault(owner, [])
        links.append(Link(owner=owner, run_idx=len(own)))
        own.append(tuple(operation for _, operation in pairs))
    segments = {owner: Segment(program=program, runs=tuple(own)) for owner, own in runs.items()}
    return Chain(segments=segments, links=tuple(links))


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
    first, rest = operations[:tail], operations[tail:]
    return Segment(program=program, runs=(first,)), Segment(program=program, runs=(rest,))


def feeds_experts(program: Program, idx: int) -> bool:
    """Whether operation `idx` mixes experts, or norms the hidden state for what does: both take the hidden state."""
    operation = program.operations[idx]
    if isinstance(operation, MixExperts):
        return True
    following = program.operations[idx + 1] if idx + 1 < len(program.operations) else None
    if not isinstance(operation, Normalize) or not isinstance(following, MixExperts):
        return False
    return operation.x == program.hidden and operation.out == following.x
