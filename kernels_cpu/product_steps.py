"""Lowers products to the executor's steps: one matrix, several of one input, gate and up (see product.py).

Owns the cutting of a matrix into chunks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernels_cpu import operands
from kernels_cpu.activations import terms_for
from kernels_cpu.operands import float_word
from kernels_cpu.plan import Matrix, up_buffer
from kernels_cpu.step_pieces import MODES, Step, StepPieces
from models.program import Buffer, Gate, GatedProject, Operation, Project, buffers_of

STORE, ADD = 0, 1
# Packed weights of a chunk.  Long runs keep the memory's own prefetching going: two threads decoded Qwen2.5 1.5B in
# 38 ms a token with chunks of 48 KB and in 22 with up to 1 MB (2026-11-29).  Each thread gets a few chunks of a matrix.
LEAST_CHUNK_BYTES, MOST_CHUNK_BYTES = 96 * 1024, 1024 * 1024
CHUNKS_A_THREAD = 3
TOKEN_BLOCK_BYTES = 256 * 1024  # activation records of a chunk's tokens


class ProductSteps:
    """The steps of out (+)= (x @ matrix.T + bias) * scale, and of what is made of such products."""

    def __init__(self, pieces: StepPieces) -> None:
        self._pieces = pieces

    def product(
        self,
        matrix: Matrix,
        x: Buffer,
        out: Buffer,
        *,
        terms: int,
        bias: int = 0,
        mode: int = STORE,
        scale: float | None = None,
        waits: bool = True,
    ) -> Step:
        """One matrix.  bias: its address, or 0; waits: whether the next step reads what this one writes."""
        pieces = self._pieces
        count = pieces.count_of(x)
        fair_bytes = matrix.size_bytes // (CHUNKS_A_THREAD * pieces.threads)
        chunk_bytes = min(max(fair_bytes, LEAST_CHUNK_BYTES), MOST_CHUNK_BYTES)
        per_chunk = max(1, chunk_bytes // (matrix.group_bytes * len(matrix.names)))
        row_chunks = -(-matrix.num_groups // per_chunk)
        per_chunk = -(-matrix.num_groups // row_chunks)
        values = {
            "weights": pieces.places.matrices[matrix.names],
            "group_bytes": matrix.group_bytes,
            **pieces.floats("out", out),
            "num_groups": matrix.num_groups,
            "groups_per_chunk": per_chunk,
            "bias": bias,
            "scale": float_word(1.0 if scale is None else scale),
            "mode": mode,
            "count": pieces.word(count),
        }
        if matrix.is_float:
            token_bytes, layout, kernel = 4 * x.width, operands.PRODUCT_FLOATS, f"product_floats-{matrix.format_name}"
            values |= {"num_columns": matrix.num_columns, **pieces.floats("x", x)}
        else:
            token_bytes, layout = (32 * terms + 16) * pieces.area(x).num_blocks, operands.PRODUCT
            kernel = f"product-{matrix.format_name}-{terms}"
            values |= {"num_blocks": matrix.blocks_per_row, "records": pieces.record(x, terms)}
        tokens = max(32, TOKEN_BLOCK_BYTES // token_bytes // 8 * 8)
        values["tokens_per_chunk"] = tokens
        return Step(
            kernel=kernel, layout=layout, values=values, fixed=row_chunks, count=count, per_chunk=tokens, waits=waits
        )

    def project(self, operation: Project, following: Sequence[Operation]) -> Iterator[Step]:
        """Several matrices of one input, and the records of what they give unless what follows changes it first."""
        pieces = self._pieces
        terms = terms_for(pieces.precision, is_coarse=operation.is_coarse)
        for idx, part in enumerate(operation.parts):
            yield self.product(
                pieces.plan.matrix_of(part.weight),
                operation.x,
                part.out,
                terms=terms,
                bias=pieces.vector(part.bias),
                mode=ADD if operation.add else STORE,
                scale=operation.scale,
                waits=idx == len(operation.parts) - 1,
            )
        for part in operation.parts:
            if not _is_changed_next(part.out, following):
                yield from pieces.quantize(part.out)

    def gated(self, operation: GatedProject) -> Iterator[Step]:
        """Gate and up, in one step where their matrices were packed together."""
        pieces, x, out = self._pieces, operation.x, operation.out
        terms = terms_for(pieces.precision, is_coarse=operation.is_coarse)
        together = pieces.plan.matrices.get((operation.gate, operation.up))
        if together is not None:
            yield self.product(together, x, out, terms=terms, mode=MODES[operation.activation])
            yield from pieces.quantize(out)
        else:
            up = up_buffer(operation)
            yield self.product(pieces.plan.matrix_of(operation.gate), x, out, terms=terms, waits=False)
            yield self.product(pieces.plan.matrix_of(operation.up), x, up, terms=terms)
            yield from pieces.gate_and_quantize(out, up, operation.activation)


def _is_changed_next(buffer: Buffer, following: Sequence[Operation]) -> bool:
    """Whether the next operation that touches a buffer adds to it or gates it: nobody reads its records before."""
    for operation in following:
        if buffer in tuple(buffers_of(operation)):
            return isinstance(operation, Gate) or (isinstance(operation, Project) and operation.x != buffer)
    return False
