"""Lowers a mixture of experts to the executor's steps (see experts.py).

Owns their order and how the experts' matrices are cut into chunks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kernels_cpu import operands
from kernels_cpu.activations import RECORDS, terms_for
from kernels_cpu.expert_buffers import expert_buffers
from kernels_cpu.operands import Layout, float_word
from kernels_cpu.plan import Matrix
from kernels_cpu.product_steps import CHUNKS_A_THREAD, LEAST_CHUNK_BYTES, MOST_CHUNK_BYTES, ProductSteps
from kernels_cpu.step_pieces import Step, StepPieces
from models.program import Buffer, MixExperts


class ExpertSteps:
    """The steps of one operation."""

    def __init__(self, pieces: StepPieces, products: ProductSteps, operation: MixExperts) -> None:
        self._pieces, self._products, self._operation = pieces, products, operation
        self._buffers = expert_buffers(operation, pieces.plan.areas[operation.x.name].rows)
        self._coarse, self._fine = terms_for(pieces.precision, is_coarse=True), terms_for(pieces.precision)
        self._starts = pieces.places.floats[self._buffers.groups.name]
        self._pair_tokens = self._starts + 4 * (operation.num_experts + 1)

    def all(self) -> Iterator[Step]:
        """In order: who goes where, the experts' products, their sum."""
        operation, buffers, pieces = self._operation, self._buffers, self._pieces
        router = pieces.plan.matrix_of(operation.router.weight)
        bias = pieces.vector(operation.router.bias)
        x, scale = operation.router_x or operation.x, operation.router_scale
        yield self._products.product(router, x, operation.router.out, terms=self._fine, bias=bias, scale=scale)
        yield from self._route()
        yield self._product(operation.gate, operation.gate_bias, buffers.x, buffers.gate, self._coarse, waits=False)
        yield self._product(operation.up, operation.up_bias, buffers.x, buffers.up, self._coarse, waits=True)
        yield pieces.gate(buffers.gate, buffers.up, operation.activation, "num_tokens", operation.num_used)
        if pieces.plan.areas[buffers.gate.name].terms:
            yield pieces.round(buffers.gate, "num_tokens", operation.num_used, rows="num_pairs")
        yield self._product(operation.down, operation.down_bias, buffers.gate, buffers.y, self._coarse, waits=True)
        values = {
            **self._choices(), **pieces.floats("y", buffers.y), **pieces.floats("out", operation.out),
            "width": operation.out.width, "add": int(operation.add),
        }  # fmt: skip
        yield self._step("experts-mix", operands.MIX, values)

    def _choices(self) -> dict[str, int]:
        return {**self._pieces.floats("route", self._buffers.route), "num_used": self._operation.num_used}

    def _step(self, kernel: str, layout: Layout, values: Mapping[str, int], *, chunks_each: int = 1) -> Step:
        """chunks_each: for every token."""
        return Step(kernel=kernel, layout=layout, values=values, fixed=chunks_each, count="num_tokens", per_chunk=1)

    def _route(self) -> Iterator[Step]:
        """Chooses experts, sorts pairs of a token and an expert by expert, gathers the tokens' records."""
        operation, pieces = self._operation, self._pieces
        choices = {**self._choices(), "num_experts": operation.num_experts}
        factors = {
            "weighing": operands.WEIGHINGS.index(operation.weighing), "preference": pieces.vector(operation.preference),
            "expert_scale": pieces.vector(operation.expert_scale), "scale": float_word(operation.scale),
        }  # fmt: skip
        scores = pieces.floats("scores", operation.router.out)
        yield self._step("experts-choose", operands.CHOOSE, {**choices, **factors, **scores})
        pairs = {"count": pieces.word("num_tokens"), "pair_tokens": self._pair_tokens}
        yield Step(
            kernel="experts-group", layout=operands.GROUP, values={**choices, **pairs, "starts": self._starts}, fixed=1
        )
        if pieces.plan.areas[self._buffers.x.name].terms:
            values = {
                **pairs,
                "source": pieces.record(operation.x, self._coarse),
                "target": pieces.record(self._buffers.x, self._coarse),
                "num_pairs": pieces.word("num_pairs"),
                "num_blocks": pieces.plan.areas[operation.x.name].num_blocks,
            }
            gather = f"experts-gather-{self._coarse}"
            yield self._step(gather, operands.GATHER, values, chunks_each=operation.num_used)
        if any(pieces.plan.matrix_of(name).is_float for name in (operation.gate, operation.up)):
            values = {
                **pieces.floats("source", operation.x),
                **pieces.floats("target", self._buffers.x),
                "width": operation.x.width,
                "pair_tokens": self._pair_tokens,
            }
            yield self._step("experts-gather_floats", operands.GATHER_FLOATS, values, chunks_each=operation.num_used)

    def _product(self, name: str, bias: str | None, x: Buffer, out: Buffer, terms: int, *, waits: bool) -> Step:
        pieces, matrix = self._pieces, self._pieces.plan.matrix_of(name)
        groups, per_chunk = matrix.groups_per_part, self._groups_per_chunk(matrix)
        if matrix.is_float:
            terms, rows = 0, pieces.floats("records", x)
            given = {"records": rows["records"], "record_bytes": rows["records_stride"]}
        else:
            given = {"records": pieces.record(x, terms), "record_bytes": RECORDS[terms].size_bytes}
        values = {
            "weights": pieces.places.matrices[matrix.names],
            "num_blocks": matrix.blocks_per_row,
            "group_bytes": matrix.group_bytes,
            "num_groups": groups,
            "groups_per_chunk": per_chunk,
            "starts": self._starts,
            **given,
            "num_pairs": pieces.word("num_pairs"),
            **pieces.floats("out", out),
            "bias": pieces.vector(bias),
            "bias_stride": 4 * matrix.num_rows,
        }
        return Step(
            kernel=f"expert_product-{matrix.format_name}-{terms}", layout=operands.EXPERT_PRODUCT, values=values,
            fixed=self._operation.num_experts * -(-groups // per_chunk), waits=waits,
        )  # fmt: skip

    def _groups_per_chunk(self, matrix: Matrix) -> int:
        """Groups of rows of one expert in a chunk; a thread gets a few chunks of one token's experts."""
        groups = matrix.groups_per_part
        used_bytes = matrix.group_bytes * groups * self._operation.num_used
        fair_bytes = used_bytes // (CHUNKS_A_THREAD * self._pieces.threads)
        chunk_bytes = min(max(fair_bytes, LEAST_CHUNK_BYTES), MOST_CHUNK_BYTES)
        chunks = -(-groups // max(1, chunk_bytes // matrix.group_bytes))
        return -(-groups // chunks)
