"""Lowers products to launches: those of a prompt to tensor cores, those of a few tokens together where they are alike.

Owns the cutting into launches (see product.cu, product_plain.cu, prefill.cu).  Takes the pieces that all launches share
from the maker of a segment's steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kernels_gpu.launches import Argument, BatchShape, Launch, Module, launch
from kernels_gpu.layout import plain_row_bytes
from kernels_gpu.matrices import Matrix, Target
from kernels_gpu.plan import STEP_TOKENS
from models.program import Buffer

if TYPE_CHECKING:
    from kernels_gpu.steps import StepMaker

STORE, ADD = 0, 1  # modes.cuh
BUCKETS = (1, 2, 4, 8)  # tokens that a product is compiled for
PARTS = 3  # matrices of one launch
NO_PART: tuple[Argument, ...] = (None, 0, None, None, 0)
PRODUCT_THREADS = 128
WARPS = PRODUCT_THREADS // 32
PREFILL_ROWS, PREFILL_TOKENS = 64, 64  # of a block
PREFILL = ("product_prefill",)


class ProductSteps:
    """The launches of out (+)= (x @ matrix.T + bias) * scale for a batch of some shape."""

    def __init__(
        self, maker: StepMaker, x: Buffer, terms: int, shape: BatchShape, *, scale: float = 1.0, mode: int = STORE
    ) -> None:
        self.maker, self.x, self.terms, self.shape, self.scale, self.mode = maker, x, terms, shape, scale, mode

    def all(self, targets: Sequence[Target]) -> Iterator[Launch]:
        """Of every target; those of one format go together."""
        together: dict[Module, list[Target]] = {}
        for target in targets:
            matrix = target.matrix
            if matrix.is_plain:
                yield from self._plain(target)
            elif self.maker.is_prefill(matrix, self.x, self.shape):
                yield self._prefill(target)
            else:
                together.setdefault(self.maker.module(matrix, self.terms), []).append(target)
        for module, alike in together.items():
            for begin in range(0, len(alike), PARTS):
                yield from self._decode(module, alike[begin : begin + PARTS])

    def _decode(self, module: Module, targets: Sequence[Target]) -> Iterator[Launch]:
        """A few tokens and up to three matrices, which have equal columns."""
        maker, matrix = self.maker, targets[0].matrix
        parts = [
            (self._weights(to), to.matrix.num_rows, maker.vector(to.bias), *maker.floats(to.out)) for to in targets
        ]
        parts += [NO_PART] * (PARTS - len(parts))
        grid = (sum(target.matrix.blocks for target in targets),)
        for first, count in tiles(maker.count(self.x, self.shape)):
            yield launch(
                module, f"product_{bucket(count)}", grid, PRODUCT_THREADS,
                pieces_of(matrix), *self._records(), first, count, matrix.shift, self.scale, self.mode,
                *(argument for part in parts for argument in part),
            )  # fmt: skip

    def _prefill(self, target: Target) -> Launch:
        matrix = target.matrix
        grid = (-(-matrix.num_rows // PREFILL_ROWS), -(-self.shape.num_tokens // PREFILL_TOKENS))
        return launch(
            prefill_module(self.maker.module(matrix, self.terms)), "product_prefill", grid, PRODUCT_THREADS,
            self._weights(target), matrix.num_rows, pieces_of(matrix), *self._records(), self.shape.num_tokens,
            *self._finish(target),
        )  # fmt: skip

    def _plain(self, target: Target) -> Iterator[Launch]:
        maker, matrix = self.maker, target.matrix
        for first, count in tiles(maker.count(self.x, self.shape)):
            yield launch(
                maker.module(matrix, 1), f"product_{bucket(count)}", (matrix.blocks,), PRODUCT_THREADS,
                self._weights(target), matrix.num_rows, pieces_of(matrix), *maker.floats(self.x), first, count,
                matrix.shift, *self._finish(target),
            )  # fmt: skip

    def _weights(self, target: Target) -> Argument:
        return self.maker.places.matrices[target.matrix.name]

    def _records(self) -> tuple[Argument, int]:
        return self.maker.records(self.x, self.terms), self.maker.area(self.x).rows

    def _finish(self, target: Target) -> tuple[Argument, ...]:
        return (self.maker.vector(target.bias), self.scale, self.mode, *self.maker.floats(target.out))


def prefill_module(module: Module) -> Module:
    """The tensor cores' products for the same format and terms."""
    return Module(source="prefill.cu", defines=module.defines, kernels=PREFILL)


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
