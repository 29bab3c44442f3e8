"""Brings a file's weights to the card.

Owns the order of weights in the card's memory and the cutting into pieces that fit the host's memory.  Does not know
how a row is rearranged (repacking.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from kernels_gpu.arena import Arena
from kernels_gpu.device import Device, Region, Stream
from kernels_gpu.matrices import Matrix
from kernels_gpu.plan import Plan
from kernels_gpu.repacking import pieces

if TYPE_CHECKING:
    from models.gguf_file import ModelFile

PIECE_BYTES = 16 << 20  # of a file's weights that are rearranged at a time
Progress = Callable[[int, int], None]


class Uploader:
    """Places the weights of a plan and fills them in."""

    def __init__(self, plan: Plan, device: Device, stream: Stream) -> None:
        self.plan, self.device, self.stream = plan, device, stream
        self.matrices: dict[str, Region] = {}
        self.vectors: dict[str, Region] = {}

    def place(self, arena: Arena) -> None:
        """Takes the room of all matrices and vectors."""
        self.matrices = {name: arena.take(matrix.layout.size_bytes) for name, matrix in self.plan.matrices.items()}
        self.vectors = {name: arena.take(4 * count) for name, count in self.plan.vectors.items()}

    def upload(self, file: ModelFile, progress: Progress | None) -> None:
        """Fills everything in."""
        for name, region in self.vectors.items():
            values = np.ascontiguousarray(file.floats(name).reshape(-1), np.float32)
            self.device.upload(region, values, self.stream)
            self.stream.wait()
        total = sum(file.tensors[name].size_bytes for name in self.matrices)
        done = 0
        for name, matrix in self.plan.matrices.items():
            self._upload_matrix(file, matrix)
            done += file.tensors[name].size_bytes
            if progress:
                progress(done, total)
        file.check_unchanged()

    def _upload_matrix(self, file: ModelFile, matrix: Matrix) -> None:
        region, layout = self.matrices[matrix.name], matrix.layout
        row_bytes = file.tensors[matrix.name].row_bytes
        step = max(1, PIECE_BYTES // row_bytes)
        for first in range(0, matrix.num_rows, step):
            raw = np.empty((min(step, matrix.num_rows - first), row_bytes), np.uint8)
            file.read_rows(matrix.name, first, raw)
            parts = pieces(
                matrix.format_name, raw, matrix.num_columns, layout, first_row=first, num_rows=matrix.num_rows
            )
            for offset, part in parts:
                data = np.ascontiguousarray(part)
                self.device.upload(region.part(offset, data.nbytes), data, self.stream)
                self.stream.wait()
