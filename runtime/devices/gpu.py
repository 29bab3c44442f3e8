"""An NVIDIA GPU as a device.

Owns the translation between the engine's terms and those of kernels_gpu: limits, batches, phases, errors.  Does not
know how anything is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kernels_gpu.binding import GpuModel, GpuOptions
from kernels_gpu.binding import bill as bill_gpu
from kernels_gpu.binding import bind as bind_gpu
from kernels_gpu.candidates import MAX_KEPT
from kernels_gpu.cupy_device import open_card
from kernels_gpu.device import Device, Event, GpuError, GpuLostError, GpuMemoryError
from kernels_gpu.launches import Best as WantedBest
from kernels_gpu.plan import GpuBill, GpuLimits, UnsupportedError
from models.segments import Segment
from runtime.card_memory import keep_own_bytes
from runtime.devices.binding import (
    Batch,
    Best,
    BestRows,
    CardPlace,
    DeviceMemory,
    DeviceOptions,
    DeviceTimes,
    DeviceUse,
    Limits,
)
from runtime.devices.phases import Piece, in_order, pieces_of
from runtime.errors import Cancelled, CapacityError, DeviceError, DeviceLostError

if TYPE_CHECKING:
    from models.gguf_file import ModelFile

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class Crossing:
    """A hidden state on its way from the card: when it has arrived, and where."""

    arrival: Event
    first_row: int
    count: int


class GpuBinding:
    """A program bound to a card, or a part with its head; see runtime.devices.binding.Binding.

    A HybridBinding drives a part: its last run through begin() and finish(), the others through begin_run() and
    finish_run().
    """

    def __init__(
        self, model: GpuModel, limits: Limits, *, free_bytes: int | None = None, folder: Path | None = None
    ) -> None:
        """free_bytes: of the card, before anything of this program was on it; None where that is not known.

        folder: where is kept what the card's driver, kernels and recorded steps took in the end.
        """
        self._model, self._folder = model, folder
        self._free_before_bytes = free_bytes
        self.limits = replace(limits, num_states=0)
        self.vocab_size = model.segment.program.vocab_size
        self.memory = _memory(model.reserved)
        self.notes: tuple[str, ...] = ()

    @property
    def uses(self) -> tuple[DeviceUse, ...]:
        return (DeviceUse(kind="gpu", memory=self.memory, own_bytes=self._own_bytes()),)

    def _own_bytes(self) -> int | None:
        if self._free_before_bytes is None:
            return None
        device = self._model.device
        try:
            device.use()
            free_bytes = device.memory().free_bytes
        except GpuError:
            return None  # a card that was lost holds nothing
        return max(0, self._free_before_bytes - free_bytes - self.memory.total_bytes)

    @property
    def times(self) -> DeviceTimes:
        spent = self._model.times
        return DeviceTimes(cpu_ms=0.0, gpu_ms=spent.gpu_ms, transfer_ms=spent.transfer_ms)

    @property
    def most_best(self) -> int:
        return self._model.most_candidates

    def run(self, batch: Batch) -> np.ndarray:
        return self.finish(batch, self._begin_all(batch, None))

    def run_best(self, batch: Batch, best: Best) -> BestRows:
        return self.finish_best(batch, self._begin_all(batch, best), best)

    def _begin_all(self, batch: Batch, best: Best | None) -> list[Piece]:
        pieces = pieces_of(batch, most_prompt_tokens=self.limits.max_batch_tokens)
        first_row = 0
        for piece in pieces:
            if not self.begin(batch, piece, None, first_row, best):
                break
            first_row += len(piece.outputs)
        return pieces

    def begin(
        self,
        batch: Batch,
        piece: Piece,
        hidden: np.ndarray | None,
        first_row: int,
        best: Best | None = None,
        *,
        run_idx: int = 0,
    ) -> bool:
        """Queues a run of a piece, whose result will stand from first_row on: for the last run its logits, or the best
        of them; for another one the hidden states.  False when cancel() came.

        hidden: float32 [tokens of the piece, width] for a run without the embedding; it may be written again at once.
        """
        tokens = piece.tokens
        with gpu_errors():
            return self._model.begin(
                batch.token_ids[tokens] if hidden is None else None,
                batch.positions[tokens],
                batch.slots[tokens],
                batch.page_tables,
                piece.outputs,
                hidden,
                run_idx=run_idx,
                is_prefill=piece.is_prompt,
                first_row=first_row,
                best=None if best is None else self._wanted(best),
            )

    def begin_run(
        self, batch: Batch, piece: Piece, run_idx: int, hidden: np.ndarray | None, first_row: int
    ) -> Crossing:
        """Queues a run after which the hidden state leaves the card.  Raises Cancelled."""
        if not self.begin(batch, piece, hidden, first_row, run_idx=run_idx):
            raise Cancelled("The run was stopped.")
        return Crossing(arrival=self._model.last_queued, first_row=first_row, count=len(piece.tokens))

    def finish_run(self, crossing: Crossing) -> np.ndarray:
        """Waits for that run; the hidden state, float32 [tokens, width], valid until the batch is finished."""
        with gpu_errors():
            return self._model.hidden(crossing.arrival, crossing.first_row, crossing.count)

    def _wanted(self, best: Best) -> WantedBest:
        """As the card finds them: few different numbers, since each has recorded steps of its own."""
        kept = min(1 << (best.count - 1).bit_length(), best.num_tokens, self.most_best)
        return WantedBest(kept=kept, columns=best.num_tokens)

    def finish(self, batch: Batch, pieces: list[Piece]) -> np.ndarray:
        """Waits for all pieces; their logits in the batch's order.  Raises Cancelled."""
        with gpu_errors():
            rows = self._model.finish(len(batch.outputs))
        if rows is None:
            raise Cancelled("The run was stopped.")
        return in_order(rows, pieces)

    def finish_best(self, batch: Batch, pieces: list[Piece], best: Best) -> BestRows:
        """The same for pieces that were queued with `best`."""
        with gpu_errors():
            found = self._model.finish_best(len(batch.outputs), self._wanted(best))
        if found is None:
            raise Cancelled("The run was stopped.")
        return BestRows(ids=in_order(found.ids, pieces), logits=in_order(found.logits, pieces))

    def settle(self) -> None:
        """After a cancel: waits for what was queued, and forgets it and the cancel."""
        self._model.clear_cancel()
        with gpu_errors():
            self._model.finish(0)

    def copy_page(self, source: int, target: int) -> None:
        with gpu_errors():
            self._model.copy_page(source, target)

    def cancel(self) -> None:
        self._model.cancel()

    def close(self) -> None:
        folder, self._folder = self._folder, None
        if folder is not None and (taken := self._own_bytes()) is not None:
            keep_own_bytes(folder, self._model.device.name, taken)
        self._model.close()


@cache
def the_card(kernel_folder: Path, bus_id: str | None) -> Device:
    """The card of that bus id (None: the first), opened once.  Raises DeviceError, in a sentence, if it can't be."""
    with gpu_errors():
        return open_card(kernel_folder / "gpu", bus_id=bus_id)


_taken_by_opening: dict[str | None, int] = {}
"""Bytes that a card's context took when this process opened it, by bus id: they stay until the process ends."""


def _open(kernel_folder: Path, place: CardPlace) -> tuple[Device, int | None]:
    """(the card, what was free on it before this process used it, if that is known)."""
    device = the_card(kernel_folder, place.bus_id)
    with gpu_errors():
        device.use()
        free_bytes = device.memory().free_bytes
    if place.free_bytes is None:
        return device, None
    taken = _taken_by_opening.setdefault(place.bus_id, max(0, place.free_bytes - free_bytes))
    return device, free_bytes + taken


def price(segment: Segment, file: ModelFile, options: DeviceOptions) -> DeviceMemory:
    """What bind() will reserve on the card, to the byte.  Raises DeviceError for what the card can't run."""
    with gpu_errors():
        return _memory(bill_gpu(segment, file, gpu_limits(options), _gpu_options(options)))


def bind(
    segment: Segment, file: ModelFile, options: DeviceOptions, progress: Progress, *, card: CardPlace
) -> GpuBinding:
    """Compiles what kernels are missing, uploads the weights and reserves all memory; the file may be closed after it.

    progress(stage, done, total) is called from this thread, with "gpu-kernels" and "gpu-weights"; what it raises ends
    the binding.  Raises CapacityError when the card has no room, DeviceError for
    everything else.
    """
    device, free_before_bytes = _open(options.kernel_folder, card)
    needed = price(segment, file, options)
    with gpu_errors():
        free_bytes = device.memory().free_bytes
    try:
        model = bind_gpu(
            segment,
            file,
            gpu_limits(options),
            _gpu_options(options),
            device,
            lambda stage, done, total: progress(f"gpu-{stage}", done, total),
        )
    except GpuMemoryError as error:
        raise CapacityError(
            f"{error} Choose fewer layers for the GPU (-ngl) or a smaller context size (-c), or close other programs.",
            needed_bytes=needed.total_bytes,
            available_bytes=free_bytes,
        ) from error
    except (GpuError, UnsupportedError) as error:
        raise DeviceError(_sentence(str(error))) from error
    return GpuBinding(model, options.limits, free_bytes=free_before_bytes, folder=options.kernel_folder / "gpu")


def gpu_limits(options: DeviceOptions) -> GpuLimits:
    """What a binding with these options is made for."""
    limits = options.limits
    return GpuLimits(
        max_batch_tokens=limits.max_batch_tokens,
        max_outputs=limits.max_outputs,
        max_sequences=limits.max_sequences,
        context_size=limits.context_size,
        num_pages=limits.num_pages,
        cache_types=(options.cache_type_k, options.cache_type_v),
    )


def _gpu_options(options: DeviceOptions) -> GpuOptions:
    return GpuOptions(activations=options.activations, kept_candidates=MAX_KEPT)


def _memory(bill: GpuBill) -> DeviceMemory:
    return DeviceMemory(weights_bytes=bill.weights_bytes, kv_bytes=bill.kv_bytes, workspace_bytes=bill.workspace_bytes)


@contextmanager
def gpu_errors() -> Iterator[None]:
    """Turns what the kernels' room raises into this room's errors."""
    try:
        yield
    except GpuLostError as error:
        raise DeviceLostError(_sentence(str(error))) from error
    except (GpuError, UnsupportedError) as error:
        raise DeviceError(_sentence(str(error))) from error


def _sentence(text: str) -> str:
    """With a capital at the beginning and a full stop at the end."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."
