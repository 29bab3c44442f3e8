"""Lowers products to launches: those of a prompt to tensor cores, those of a few tokens together where they are alike.

Owns the cutting into launches (see product.cu, product_plain.cu, prefill.cu).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernels_gpu.launch_pieces import MODES, LaunchPieces
from kernels_gpu.launches import Argument, Launch, Module, launch
from kernels_gpu.layout import plain_row_bytes
from kernels_gpu.matrices import Matrix, Target
from kernels_gpu.modules import BUCKETS, prefill_module, product_module
from kernels_gpu.plan import STEP_TOKENS, up_buffer
from kernels_gpu.precision import terms_for
from models.program import Buffer, GatedProject, Project

STORE, ADD = 0, 1  # modes.cuh
PARTS = 3  # matrices of one launch
NO_PART: tuple[Argument, ...] = (None, 0, None, None, 0)
PRODUCT_THREADS = 128
WARPS = PRODUCT_THREADS // 32
PREFILL_ROWS, PREFILL_TOKENS = 64, 64  # of a block


def project(pieces: LaunchPieces, operation: Project) -> Iterator[Launch]:
    """Several matrices of one input, and the records of what they give."""
    scale = 1.0 if operation.scale is None else float(operation.scale)
    terms = terms_for(pieces.precision, is_coarse=operation.is_coarse)
    mode = ADD if operation.add else STORE
    targets = [
        Target(matrix=pieces.plan.matrices[part.weight], out=part.out, bias=part.bias) for part in operation.parts
    ]
    yield from ProductSteps(pieces, operation.x, terms, scale=scale, mode=mode).all(targets)
    for target in targets:
        yield from pieces.quantize(target.out)


def gated(pieces: LaunchPieces, operation: GatedProject) -> Iterator[Launch]:
    """Gate and up: in one launch where their formats are alike and there are few tokens."""
    terms, x, out = terms_for(pieces.precision, is_coarse=operation.is_coarse), operation.x, operation.out
    gate, up = pieces.plan.matrices[operation.gate], pieces.plan.matrices[operation.up]
    if gate.format_name == up.format_name and not gate.is_plain and not pieces.is_prefill(gate, x):
        both = (pieces.places.matrices[gate.name], pieces.places.matrices[up.name], gate.num_rows, pieces_of(gate))
        for first, count in tiles(pieces.count(x)):
            yield launch(
                product_module(gate, terms), f"gated_{bucket(count)}", (gate.blocks,), PRODUCT_THREADS,
                *both, pieces.records(x, terms), pieces.area(x).rows, first, count, gate.shift,
                MODES[operation.activation], *pieces.floats(out),
            )  # fmt: skip
        yield from pieces.quantize(out)
    else:
        raised = up_buffer(operation)
        yield from ProductSteps(pieces, x, terms).all([Target(matrix=gate, out=out), Target(matrix=up, out=raised)])
        yield from pieces.gate(out, raised, operation.activation)


class ProductSteps:
    """The launches of out (+)= (x @ matrix.T + bias) * scale."""

    def __init__(self, pieces: LaunchPieces, x: Buffer, terms: int, *, scale: float = 1.0, mode: int = STORE) -> None:
        self._pieces, self._x, self._terms, self._scale, self._mode = pieces, x, terms, scale, mode

    def all(self, targets: Sequence[Target]) -> Iterator[Launch]:
        """Of every target; those of one format go together."""
        together: dict[Module, list[Target]] = {}
        for target in targets:
            matrix = target.matrix
            if matrix.is_plain:
                yield from self._plain(target)
            elif self._pieces.is_prefill(matrix, self._x):
                yield self._prefill(target)
            else:
                together.setdefault(product_module(matrix, self._terms), []).append(target)
        for module, alike in together.items():
            for begin in range(0, len(alike), PARTS):
                yield from self._decode(module, alike[begin : begin + PARTS])

    def _decode(self, module: Module, targets: Sequence[Target]) -> Iterator[Launch]:
        """A few tokens and up to three matrices, which have equal columns."""
        pieces, matrix = self._pieces, targets[0].matrix
        parts = [
            (self._weights(to), to.matrix.num_rows, pieces.vector(to.bias), *pieces.floats(to.out)) for to in targets
        ]
        parts += [NO_PART] * (PARTS - len(parts))
        grid = (sum(target.matrix.blocks for target in targets),)
        for first, count in tiles(pieces.count(self._x)):
            yield launch(
                module, f"product_{bucket(count)}", grid, PRODUCT_THREADS,
                pieces_of(matrix), *self._records(), first, count, matrix.shift, self._scale, self._mode,
                *(argument for part in parts for argument in part),
            )  # fmt: skip

    def _prefill(self, target: Target) -> Launch:
        matrix = target.matrix
        grid = (-(-matrix.num_rows // PREFILL_ROWS), -(-self._pieces.shape.num_tokens // PREFILL_TOKENS))
        return launch(
            prefill_module(product_module(matrix, self._terms)), "product_prefill", grid, PRODUCT_THREADS,
            self._weights(target), matrix.num_rows, pieces_of(matrix), *self._records(), self._pieces.shape.num_tokens,
            *self._finish(target),
        )  # fmt: skip

    def _plain(self, target: Target) -> Iterator[Launch]:
        pieces, matrix = self._pieces, target.matrix
        for first, count in tiles(pieces.count(self._x)):
            yield launch(
                product_module(matrix, 1), f"product_{bucket(count)}", (matrix.blocks,), PRODUCT_THREADS,
                self._weights(target), matrix.num_rows, pieces_of(matrix), *pieces.floats(self._x), first, count,
                matrix.shift, *self._finish(target),
            )  # fmt: skip

    def _weights(self, target: Target) -> Argument:
        return self._pieces.places.matrices[target.matrix.name]

    def _records(self) -> tuple[Argument, int]:
        return self._pieces.records(self._x, self._terms), self._pieces.area(self._x).rows

    def _finish(self, target: Target) -> tuple[Argument, ...]:
        return (self._pieces.vector(target.bias), self._scale, self._mode, *self._pieces.floats(target.out))


def tiles(count: int, most: int = STEP_TOKENS) -> Iterator[tuple[int, int]]:
    """First token and number of tokens of each launch."""
    for first in range(0, count, most):
        yield first, min(most, count - first)


def bucket(count: int) -> int:
    """The tokens of the kernel that does so many."""
    return next(size for size in BUCKETS if size >= count)


def pieces_of(matrix: Matrix) -> int:
    """What a row is counted in: units of 32 columns, or pieces of 16 bytes."""
    if matrix.is_plain:
        return plain_row_bytes(matrix.format_name, matrix.num_columns) // 16
    return matrix.num_columns // 32
