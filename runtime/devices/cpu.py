"""The CPU as a device.

Owns the translation between the engine's terms and those of kernels_cpu: limits, batches, errors.  Does not know how
anything is computed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import numpy as np

from kernels_cpu.arena import OutOfMemoryError
from kernels_cpu.bill import CpuBill
from kernels_cpu.binding import CpuModel, CpuOptions
from kernels_cpu.binding import bill as bill_cpu
from kernels_cpu.binding import bind as bind_cpu
from kernels_cpu.isa import IsaError
from kernels_cpu.kernel_cache import KernelError
from kernels_cpu.kv_layout import CacheTypes
from kernels_cpu.plan import CpuLimits
from kernels_cpu.shape_checks import UnsupportedError
from models.segments import Segment
from runtime.devices.binding import Batch, DeviceMemory, DeviceOptions, Limits
from runtime.devices.phases import Piece
from runtime.errors import Cancelled, DeviceError

if TYPE_CHECKING:
    from models.gguf_file import ModelFile

Progress = Callable[[str, int, int], None]

# Whoever computes has all the cores: a draft model, and the part of a model that a GPU left here, take turns by runs.
_CORES = threading.Lock()
_NO_OUTPUTS = np.zeros(0, np.int32)


class CpuBinding:
    """A program bound to this machine's processor, or a part of one; see runtime.devices.binding.Binding.

    A part is driven by a HybridBinding, through compute().
    """

    def __init__(self, model: CpuModel, limits: Limits) -> None:
        self._model = model
        self.limits = limits if model.segment.state_layers else replace(limits, num_states=0)
        self.vocab_size = model.segment.program.vocab_size
        self.memory = _memory(model.bill)
        self.notes = tuple(map(_sentence, model.warnings))

    def run(self, batch: Batch) -> np.ndarray:
        with _CORES:
            rows = self._model.run(
                batch.token_ids, batch.positions, batch.slots, batch.page_tables, batch.outputs, batch.states
            )
        if rows is None:
            raise Cancelled("The run was stopped.")
        return rows

    def compute(self, batch: Batch, piece: Piece, run_idx: int, hidden: np.ndarray | None) -> np.ndarray:
        """The hidden state of a piece's tokens after a run of a part, [tokens, width], valid until the next run.

        hidden: as it comes to the run, None for one with the embedding.  Raises Cancelled.
        """
        tokens = piece.tokens
        token_ids = batch.token_ids[tokens] if hidden is None else None
        given = (batch.positions[tokens], batch.slots[tokens], batch.page_tables, _NO_OUTPUTS, batch.states, hidden)
        with _CORES:
            rows = self._model.run(token_ids, *given, run_idx=run_idx)
        if rows is None:
            raise Cancelled("The run was stopped.")
        return rows

    def copy_page(self, source: int, target: int) -> None:
        self._model.copy_page(source, target)

    def cancel(self) -> None:
        self._model.cancel()

    def clear_cancel(self) -> None:
        """Forgets a cancel that came between runs."""
        self._model.clear_cancel()

    def close(self) -> None:
        self._model.close()


def price(segment: Segment, file: ModelFile, options: DeviceOptions) -> DeviceMemory:
    """What bind() will reserve, to the byte.  Raises DeviceError for what this machine can't run."""
    with device_errors():
        return _memory(bill_cpu(segment, file, _limits(options), _cpu_options(options)))


def bind(segment: Segment, file: ModelFile, options: DeviceOptions, progress: Progress) -> CpuBinding:
    """Compiles what kernels are missing, packs the weights and reserves all memory; the file may be closed after it.

    progress(stage, done, total) is called from this thread; what it raises ends the binding.
    """
    with device_errors():
        return CpuBinding(bind_cpu(segment, file, _limits(options), _cpu_options(options), progress), options.limits)


def _cpu_options(options: DeviceOptions) -> CpuOptions:
    return CpuOptions(
        threads=options.threads,
        activations=options.activations,
        isa=options.isa,
        kernel_folder=options.kernel_folder,
        requantize=options.requantize,
    )


def _limits(options: DeviceOptions) -> CpuLimits:
    cache_types = CacheTypes.named(options.cache_type_k, options.cache_type_v)
    return CpuLimits(**asdict(options.limits), cache_types=cache_types)


def _memory(bill: CpuBill) -> DeviceMemory:
    return DeviceMemory(weights_bytes=bill.weights_bytes, kv_bytes=bill.kv_bytes, workspace_bytes=bill.workspace_bytes)


@contextmanager
def device_errors() -> Iterator[None]:
    """Turns what the kernels' room raises into this room's errors."""
    try:
        yield
    except (IsaError, KernelError, OutOfMemoryError, UnsupportedError) as error:
        raise DeviceError(_sentence(str(error))) from error


def _sentence(text: str) -> str:
    """With a capital at the beginning and a full stop at the end."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."
