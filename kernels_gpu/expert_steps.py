"""Lowers a mixture of experts to launches (see experts.cu).

Owns their order.  Takes the pieces that all launches share from the maker of a segment's steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kernels_gpu.expert_buffers import expert_buffers, most_tiles
from kernels_gpu.launches import Argument, BatchShape, Launch, Module, launch
from kernels_gpu.matrices import Matrix, Target
from kernels_gpu.precision import terms_for
from models.program import Buffer, MixExperts

if TYPE_CHECKING:
    from kernels_gpu.steps import StepMaker

CHOOSE_TOKENS, CHOOSE_THREADS, EXPERT_THREADS = 4, 128, 256
MODULE = Module(source="experts.cu", defines=(), kernels=("choose", "group", "mix"))
PRODUCTS, PREFILL = ("product_experts", "gated_experts"), ("prefill_experts",)


def decode_module(product: Module) -> Module:
    """The products of experts that belong to those of a format."""
    return Module(source="product_experts.cu", defines=product.defines, kernels=PRODUCTS)


def prefill_module(product: Module) -> Module:
    """The same on tensor cores."""
    return Module(source="prefill_experts.cu", defines=product.defines, kernels=PREFILL)


class ExpertSteps:
    """The launches of one operation for a batch of some shape."""

    def __init__(self, maker: StepMaker, operation: MixExperts, shape: BatchShape) -> None:
        self.maker, self.operation, self.shape = maker, operation, shape
        self.buffers = expert_buffers(operation)
        self.pairs = shape.num_tokens * operation.num_used
        self.tiles = most_tiles(operation, shape.num_tokens)
        self.place = maker.places.workspace
        self.coarse, self.fine = terms_for(maker.precision, is_coarse=True), terms_for(maker.precision)

    def modules(self) -> Iterator[Module]:
        """What must be compiled beside the products of the router."""
        yield MODULE
        for name in (self.operation.gate, self.operation.up, self.operation.down):
            product = self.maker.module(self.maker.plan.matrices[name], self.coarse)
            yield from (decode_module(product), prefill_module(product))

    def all(self) -> Iterator[Launch]:
        """In order: who goes where, the experts' products, their sum."""
        operation, buffers, maker, shape = self.operation, self.buffers, self.maker, self.shape
        router, scores = operation.router, operation.router.out
        matrix = maker.plan.matrices[router.weight]
        routed = Target(matrix=matrix, out=scores, bias=router.bias)
        yield from maker.product([routed], operation.x, self.fine, shape)
        yield launch(
            MODULE, "choose", (-(-shape.num_tokens // CHOOSE_TOKENS),), CHOOSE_THREADS,
            *maker.floats(scores), shape.num_tokens, operation.num_experts, operation.num_used,
            self.place["chosen experts"], self.place["expert weights"],
        )  # fmt: skip
        if shape.is_prefill:
            yield launch(
                MODULE, "group", (1,), EXPERT_THREADS,
                self.place["chosen experts"], self.pairs, operation.num_experts, self.place["sorted pairs"],
                self.place["expert tiles"], self.tiles,
            )  # fmt: skip
        yield from self._gated()
        yield self._product(operation.down, operation.down_bias, buffers.gate, buffers.y, is_of_pair=True)
        yield launch(
            MODULE, "mix", (-(-operation.out.width // EXPERT_THREADS), shape.num_tokens), EXPERT_THREADS,
            self.place["expert weights"], operation.num_used, *maker.floats(buffers.y), *maker.floats(operation.out),
            operation.out.width,
        )  # fmt: skip
        yield from maker.quantize(operation.out, shape)

    def _gated(self) -> Iterator[Launch]:
        operation, buffers, maker, shape = self.operation, self.buffers, self.maker, self.shape
        gate, up = maker.plan.matrices[operation.gate], maker.plan.matrices[operation.up]
        if shape.is_prefill or gate.format_name != up.format_name:
            yield self._product(operation.gate, operation.gate_bias, operation.x, buffers.gate)
            yield self._product(operation.up, operation.up_bias, operation.x, buffers.up)
            yield from maker.gate(buffers.gate, buffers.up, operation.activation, shape)
            return
        yield launch(
            decode_module(maker.module(gate, self.coarse)), "gated_experts", self._grid(gate), CHOOSE_THREADS,
            maker.places.matrices[gate.name], maker.places.matrices[up.name], *self._rows(gate),
            *self._records(operation.x, self.coarse), self.place["chosen experts"], operation.num_used, gate.shift,
            maker.vector(operation.gate_bias), maker.vector(operation.up_bias), maker.mode(operation.activation),
            *maker.floats(buffers.gate),
        )  # fmt: skip
        yield from maker.quantize(buffers.gate, shape)

    def _product(self, name: str, bias: str | None, x: Buffer, out: Buffer, *, is_of_pair: bool = False) -> Launch:
        maker, used = self.maker, self.operation.num_used
        matrix = maker.plan.matrices[name]
        module = maker.module(matrix, self.coarse)
        weights = (maker.places.matrices[name], *self._rows(matrix), *self._records(x, self.coarse))
        finish = (maker.vector(bias), *maker.floats(out))
        if self.shape.is_prefill:
            return launch(
                prefill_module(module), "prefill_experts", (-(-self._rows(matrix)[1] // 64), self.tiles),
                CHOOSE_THREADS, *weights, self.place["expert tiles"], self.place["sorted pairs"], used,
                int(is_of_pair), *finish,
            )  # fmt: skip
        return launch(
            decode_module(module), "product_experts", self._grid(matrix), CHOOSE_THREADS,
            *weights, self.place["chosen experts"], used, int(is_of_pair), matrix.shift, *finish,
        )  # fmt: skip

    def _grid(self, matrix: Matrix) -> tuple[int, int]:
        return -(-(self._rows(matrix)[1] << matrix.shift) // 4), self.pairs

    def _rows(self, matrix: Matrix) -> tuple[int, int, int]:
        """Experts, rows of one, units of a row."""
        experts = self.operation.num_experts
        return experts, matrix.num_rows // experts, matrix.num_columns // 32

    def _records(self, buffer: Buffer, terms: int) -> tuple[Argument, int]:
        return self.maker.records(buffer, terms), self.maker.plan.areas[buffer.name].rows
