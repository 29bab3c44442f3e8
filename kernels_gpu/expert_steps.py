"""Lowers a mixture of experts to launches (see experts.cu).

Owns their order.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernels_gpu.expert_buffers import expert_buffers, most_tiles
from kernels_gpu.launch_pieces import MODES, LaunchPieces
from kernels_gpu.launches import Argument, Launch, launch
from kernels_gpu.matrices import Matrix, Target
from kernels_gpu.modules import EXPERTS_MODULE, experts_module, prefill_experts_module, product_module
from kernels_gpu.precision import terms_for
from kernels_gpu.product_steps import ProductSteps
from models.program import Buffer, MixExperts

CHOOSE_TOKENS, CHOOSE_THREADS, EXPERT_THREADS = 4, 128, 256


class ExpertSteps:
    """The launches of one operation."""

    def __init__(self, pieces: LaunchPieces, operation: MixExperts) -> None:
        self._pieces, self._operation, self._shape = pieces, operation, pieces.shape
        self._buffers = expert_buffers(operation)
        self._pairs = pieces.shape.num_tokens * operation.num_used
        self._tiles = most_tiles(operation, pieces.shape.num_tokens)
        self._place = pieces.places.workspace
        self._coarse, self._fine = terms_for(pieces.precision, is_coarse=True), terms_for(pieces.precision)

    def all(self) -> Iterator[Launch]:
        """In order: who goes where, the experts' products, their sum."""
        operation, buffers, pieces, shape = self._operation, self._buffers, self._pieces, self._shape
        router, scores = operation.router, operation.router.out
        matrix = pieces.plan.matrices[router.weight]
        routed = Target(matrix=matrix, out=scores, bias=router.bias)
        yield from ProductSteps(pieces, operation.x, self._fine).all([routed])
        yield launch(
            EXPERTS_MODULE, "choose", (-(-shape.num_tokens // CHOOSE_TOKENS),), CHOOSE_THREADS,
            *pieces.floats(scores), shape.num_tokens, operation.num_experts, operation.num_used,
            self._place["chosen experts"], self._place["expert weights"],
        )  # fmt: skip
        if shape.is_prefill:
            yield launch(
                EXPERTS_MODULE, "group", (1,), EXPERT_THREADS,
                self._place["chosen experts"], self._pairs, operation.num_experts, self._place["sorted pairs"],
                self._place["expert tiles"], self._tiles,
            )  # fmt: skip
        yield from self._gated()
        yield self._product(operation.down, operation.down_bias, buffers.gate, buffers.y, is_of_pair=True)
        yield launch(
            EXPERTS_MODULE, "mix", (-(-operation.out.width // EXPERT_THREADS), shape.num_tokens), EXPERT_THREADS,
            self._place["expert weights"], operation.num_used, *pieces.floats(buffers.y), *pieces.floats(operation.out),
            operation.out.width,
        )  # fmt: skip
        yield from pieces.quantize(operation.out)

    def _gated(self) -> Iterator[Launch]:
        operation, buffers, pieces, shape = self._operation, self._buffers, self._pieces, self._shape
        gate, up = pieces.plan.matrices[operation.gate], pieces.plan.matrices[operation.up]
        if shape.is_prefill or gate.format_name != up.format_name:
            yield self._product(operation.gate, operation.gate_bias, operation.x, buffers.gate)
            yield self._product(operation.up, operation.up_bias, operation.x, buffers.up)
            yield from pieces.gate(buffers.gate, buffers.up, operation.activation)
            return
        yield launch(
            experts_module(product_module(gate, self._coarse)), "gated_experts", self._grid(gate), CHOOSE_THREADS,
            pieces.places.matrices[gate.name], pieces.places.matrices[up.name], *self._rows(gate),
            *self._records(operation.x, self._coarse), self._place["chosen experts"], operation.num_used, gate.shift,
            pieces.vector(operation.gate_bias), pieces.vector(operation.up_bias), MODES[operation.activation],
            *pieces.floats(buffers.gate),
        )  # fmt: skip
        yield from pieces.quantize(buffers.gate)

    def _product(self, name: str, bias: str | None, x: Buffer, out: Buffer, *, is_of_pair: bool = False) -> Launch:
        pieces, used = self._pieces, self._operation.num_used
        matrix = pieces.plan.matrices[name]
        module = product_module(matrix, self._coarse)
        weights = (pieces.places.matrices[name], *self._rows(matrix), *self._records(x, self._coarse))
        finish = (pieces.vector(bias), *pieces.floats(out))
        if self._shape.is_prefill:
            return launch(
                prefill_experts_module(module), "prefill_experts", (-(-self._rows(matrix)[1] // 64), self._tiles),
                CHOOSE_THREADS, *weights, self._place["expert tiles"], self._place["sorted pairs"], used,
                int(is_of_pair), *finish,
            )  # fmt: skip
        return launch(
            experts_module(module), "product_experts", self._grid(matrix), CHOOSE_THREADS,
            *weights, self._place["chosen experts"], used, int(is_of_pair), matrix.shift, *finish,
        )  # fmt: skip

    def _grid(self, matrix: Matrix) -> tuple[int, int]:
        return -(-(self._rows(matrix)[1] << matrix.shift) // 4), self._pairs

    def _rows(self, matrix: Matrix) -> tuple[int, int, int]:
        """Experts, rows of one, units of a row."""
        experts = self._operation.num_experts
        return experts, matrix.num_rows // experts, matrix.num_columns // 32

    def _records(self, buffer: Buffer, terms: int) -> tuple[Argument, int]:
        return self._pieces.records(buffer, terms), self._pieces.plan.areas[buffer.name].rows
