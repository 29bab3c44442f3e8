"""Lowers a mixture of experts to the executor's steps (see experts.py).

Owns their order and how the experts' matrices are cut into chunks.  Takes the pieces that all steps share from the
maker of a program's steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kernels_cpu import operands
from kernels_cpu.activations import RECORDS, terms_for
from kernels_cpu.expert_buffers import expert_buffers
from kernels_cpu.operands import Layout, float_word
from kernels_cpu.plan import Matrix
from models.program import Buffer, MixExperts

if TYPE_CHECKING:
    from kernels_cpu.steps import Step, StepMaker

CHUNKS_A_THREAD = 3
LEAST_CHUNK_BYTES, MOST_CHUNK_BYTES = 96 * 1024, 1024 * 1024


class ExpertSteps:
    """The steps of one operation."""

    def __init__(self, maker: StepMaker, operation: MixExperts) -> None:
        self.maker, self.operation = maker, operation
        self.buffers = expert_buffers(operation, maker.plan.areas[operation.x.name].rows)
        self.coarse, self.fine = terms_for(maker.precision, is_coarse=True), terms_for(maker.precision)
        self.starts = maker.places.floats[self.buffers.groups.name]
        self.pair_tokens = self.starts + 4 * (operation.num_experts + 1)

    def all(self) -> Iterator[Step]:
        """In order: who goes where, the experts' products, their sum."""
        operation, buffers, maker = self.operation, self.buffers, self.maker
        router = maker.plan.matrix_of(operation.router.weight)
        bias = maker.vector(operation.router.bias)
        x, scale = operation.router_x or operation.x, operation.router_scale
        yield maker.product(router, x, operation.router.out, bias, 0, self.fine, True, scale)
        yield from self._route()
        yield self._product(operation.gate, operation.gate_bias, buffers.x, buffers.gate, self.coarse, waits=False)
        yield self._product(operation.up, operation.up_bias, buffers.x, buffers.up, self.coarse, waits=True)
        yield maker.gate(buffers.gate, buffers.up, operation.activation, "num_tokens", operation.num_used)
        if maker.plan.areas[buffers.gate.name].terms:
            yield maker.round(buffers.gate, "num_tokens", operation.num_used, rows="num_pairs")
        yield self._product(operation.down, operation.down_bias, buffers.gate, buffers.y, self.coarse, waits=True)
        values = {
            **self._choices(), **maker.floats("y", buffers.y), **maker.floats("out", operation.out),
            "width": operation.out.width, "add": int(operation.add),
        }  # fmt: skip
        yield self._step("experts-mix", operands.MIX, values)

    def _choices(self) -> dict[str, int]:
        return {**self.maker.floats("route", self.buffers.route), "num_used": self.operation.num_used}

    def _step(self, kernel: str, layout: Layout, values: Mapping[str, int], *, chunks_each: int = 1) -> Step:
        """chunks_each: for every token."""
        from kernels_cpu.steps import Step

        return Step(kernel=kernel, layout=layout, values=values, fixed=chunks_each, count="num_tokens", per_chunk=1)

    def _route(self) -> Iterator[Step]:
        """Chooses experts, sorts pairs of a token and an expert by expert, gathers the tokens' records."""
        from kernels_cpu.steps import Step

        operation, maker = self.operation, self.maker
        choices = {**self._choices(), "num_experts": operation.num_experts}
        factors = {
            "weighing": operands.WEIGHINGS.index(operation.weighing), "preference": maker.vector(operation.preference),
            "expert_scale": maker.vector(operation.expert_scale), "scale": float_word(operation.scale),
        }  # fmt: skip
        scores = maker.floats("scores", operation.router.out)
        yield self._step("experts-choose", operands.CHOOSE, {**choices, **factors, **scores})
        pairs = {"count": maker.word("num_tokens"), "pair_tokens": self.pair_tokens}
        yield Step(
            kernel="experts-group", layout=operands.GROUP, values={**choices, **pairs, "starts": self.starts}, fixed=1
        )
        if maker.plan.areas[self.buffers.x.name].terms:
            values = {
                **pairs,
                "source": maker.record(operation.x, self.coarse),
                "target": maker.record(self.buffers.x, self.coarse),
                "num_pairs": maker.word("num_pairs"),
                "num_blocks": maker.plan.areas[operation.x.name].num_blocks,
            }
            gather = f"experts-gather-{self.coarse}"
            yield self._step(gather, operands.GATHER, values, chunks_each=operation.num_used)
        if any(maker.plan.matrix_of(name).is_float for name in (operation.gate, operation.up)):
            values = {
                **maker.floats("source", operation.x),
                **maker.floats("target", self.buffers.x),
                "width": operation.x.width,
                "pair_tokens": self.pair_tokens,
            }
            yield self._step("experts-gather_floats", operands.GATHER_FLOATS, values, chunks_each=operation.num_used)

    def _product(self, name: str, bias: str | None, x: Buffer, out: Buffer, terms: int, *, waits: bool) -> Step:
        from kernels_cpu.steps import Step

        maker, matrix = self.maker, self.maker.plan.matrix_of(name)
        groups, per_chunk = matrix.groups_per_part, self._groups_per_chunk(matrix)
        if matrix.is_float:
            terms, rows = 0, maker.floats("records", x)
            given = {"records": rows["records"], "record_bytes": rows["records_stride"]}
        else:
            given = {"records": maker.record(x, terms), "record_bytes": RECORDS[terms].size_bytes}
        values = {
            "weights": maker.places.matrices[matrix.names],
            "num_blocks": matrix.blocks_per_row,
            "group_bytes": matrix.group_bytes,
            "num_groups": groups,
            "groups_per_chunk": per_chunk,
            "starts": self.starts,
            **given,
            "num_pairs": maker.word("num_pairs"),
            **maker.floats("out", out),
            "bias": maker.vector(bias),
            "bias_stride": 4 * matrix.num_rows,
        }
        return Step(
            kernel=f"expert_product-{matrix.format_name}-{terms}", layout=operands.EXPERT_PRODUCT, values=values,
            fixed=self.operation.num_experts * -(-groups // per_chunk), waits=waits,
        )  # fmt: skip

    def _groups_per_chunk(self, matrix: Matrix) -> int:
        """Groups of rows of one expert in a chunk; a thread gets a few chunks of one token's experts."""
        groups = matrix.groups_per_part
        used_bytes = matrix.group_bytes * groups * self.operation.num_used
        fair_bytes = used_bytes // (CHUNKS_A_THREAD * self.maker.threads)
        chunk_bytes = min(max(fair_bytes, LEAST_CHUNK_BYTES), MOST_CHUNK_BYTES)
        chunks = -(-groups // max(1, chunk_bytes // matrix.group_bytes))
        return -(-groups // chunks)
