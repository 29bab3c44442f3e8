"""A program with adapters beside its products: W x becomes W x + B (A x).

Owns the change of the program.  Does not know files: it is told the rank that each weight's pair has.

The weight itself stays as it is, in its own format: see docs/quality.md for what merging would cost instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from models.adapters import A_SUFFIX, B_SUFFIX
from models.program import Buffer, Embed, Gate, GatedProject, Operation, Part, Program, Project, multiplied_weights


def adaptable_weights(program: Program) -> frozenset[str]:
    """The matrices that products multiply with; not one that is read as the embedding too."""
    embeddings = {operation.weight for operation in program.operations if isinstance(operation, Embed)}
    return multiplied_weights(program.operations) - embeddings


def add_low_ranks(program: Program, ranks: Mapping[str, int]) -> Program:
    """The program with a pair beside each weight of `ranks`, whose A and B are called `weight.lora_a` and `.lora_b`."""
    if not ranks:
        return program
    operations = [new for operation in program.operations for new in _adapted(operation, ranks)]
    return replace(program, operations=tuple(operations))


def _adapted(operation: Operation, ranks: Mapping[str, int]) -> Iterator[Operation]:
    match operation:
        case Project():
            yield operation
            yield from _beside(operation, ranks)
        case GatedProject() if operation.gate in ranks or operation.up in ranks:
            x, gate, layer_idx = operation.x, operation.out, operation.layer_idx
            up = Buffer(name=f"{gate.name}.up", width=gate.width)
            parts = (Part(weight=operation.gate, out=gate), Part(weight=operation.up, out=up))
            products = Project(x=x, parts=parts, is_coarse=operation.is_coarse, layer_idx=layer_idx)
            yield products
            yield from _beside(products, ranks)
            yield Gate(gate=gate, up=up, activation=operation.activation, layer_idx=layer_idx)
        case _:
            yield operation


def _beside(products: Project, ranks: Mapping[str, int]) -> Iterator[Project]:
    """A x for every part that has a pair, in one pass; then B's products, added to what the parts have given."""
    x, layer_idx = products.x, products.layer_idx
    chosen = [part for part in products.parts if part.weight in ranks]
    if not chosen:
        return
    widths = [ranks[part.weight] for part in chosen]
    low = [Buffer(name=f"{x.name}.{idx}.{width}", width=width) for idx, width in enumerate(widths)]
    down = [Part(weight=part.weight + A_SUFFIX, out=buffer) for part, buffer in zip(chosen, low, strict=True)]
    yield Project(x=x, parts=tuple(down), layer_idx=layer_idx)
    for part, buffer in zip(chosen, low, strict=True):
        raised = Part(weight=part.weight + B_SUFFIX, out=part.out)
        yield Project(x=buffer, parts=(raised,), add=True, scale=products.scale, layer_idx=layer_idx)
