"""What the launches of a batch share: where things lie, how many rows it fills, records and gates.

Works on regions that binding.py took from the card's memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kernels_gpu.device import Region
from kernels_gpu.launches import BatchShape, Launch, Places, launch
from kernels_gpu.matrices import Matrix
from kernels_gpu.modules import ROWS_MODULE
from kernels_gpu.plan import Area, GpuLimits, Plan
from kernels_gpu.precision import Precision
from models.program import Activation, Buffer

MODES: Mapping[Activation, int] = {"silu": 2, "gelu_tanh": 3, "clamped_swiglu": 4}  # modes.cuh
ROW_THREADS = 256
UNITS_OF_BLOCK = 64  # that one block of `quantize` rounds


@dataclass(frozen=True, kw_only=True)
class LaunchPieces:
    """A segment's plan, limits and addresses, how precise it is, and the batch's shape."""

    plan: Plan
    limits: GpuLimits
    places: Places
    precision: Precision
    shape: BatchShape

    def area(self, buffer: Buffer) -> Area:
        """A buffer's rows and columns."""
        return self.plan.areas[buffer.name]

    def count(self, buffer: Buffer) -> int:
        """Rows of a buffer that a batch fills."""
        area = self.area(buffer)
        return self.shape.num_outputs if area.is_output else self.shape.num_tokens * area.rows_each

    def floats(self, buffer: Buffer) -> tuple[Region, int]:
        """A buffer's address and stride."""
        return self.places.workspace[f"floats {buffer.name}"], self.area(buffer).stride

    def row(self, buffer: Buffer, token: int) -> Region:
        """A buffer from some token on."""
        region, stride = self.floats(buffer)
        return region.part(4 * stride * token, region.size_bytes - 4 * stride * token)

    def records(self, buffer: Buffer, terms: int) -> Region | None:
        """A buffer's records, where some product wants them."""
        return self.places.workspace.get(f"records {buffer.name} {terms}")

    def vector(self, name: str | None) -> Region | None:
        """A bias or norm, if there is one."""
        return None if name is None else self.places.vectors[name]

    def batch(self, name: str, first: int = 0) -> Region:
        """An array of the batch from some token on."""
        region = self.places.workspace[name]
        return region.part(4 * first, region.size_bytes - 4 * first)

    def is_prefill(self, matrix: Matrix, x: Buffer) -> bool:
        """Whether tensor cores do a product."""
        return self.shape.is_prefill and not matrix.is_plain and not self.area(x).is_output

    def quantize(self, buffer: Buffer) -> Iterator[Launch]:
        """Records of a buffer that was written as floats, where some product wants them."""
        area = self.area(buffer)
        if area.terms:
            grid = (-(-area.units // UNITS_OF_BLOCK), self.count(buffer))
            yield launch(
                ROWS_MODULE, "quantize", grid, ROW_THREADS,
                *self.floats(buffer), area.units, self.records(buffer, 1), self.records(buffer, 2), area.rows,
            )  # fmt: skip

    def gate(self, gate: Buffer, up: Buffer, activation: Activation) -> Iterator[Launch]:
        """What becomes of gate and up, in gate's place."""
        yield launch(
            ROWS_MODULE, "combine_gate", (-(-gate.width // ROW_THREADS), self.count(gate)), ROW_THREADS,
            *self.floats(gate), *self.floats(up), gate.width, MODES[activation],
        )  # fmt: skip
        yield from self.quantize(gate)
