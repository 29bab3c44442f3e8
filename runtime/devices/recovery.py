"""A binding that the CPU replaces when its GPU is lost.

Owns the replacing.  Does not know sequences: it says that nothing is left in the pages, and the engine begins anew.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from models.gguf_file import open_model_file
from models.segments import whole
from runtime.devices import cpu
from runtime.devices.binding import (
    Batch,
    Best,
    BestRows,
    Binding,
    DeviceMemory,
    DeviceOptions,
    DeviceTimes,
    DeviceUse,
    FindsBest,
    HasTimes,
    uses_of,
)
from runtime.errors import Cancelled, CapacityError, DeviceError, DeviceLostError, DeviceReplaced
from runtime.machine import read_machine

if TYPE_CHECKING:
    from models.gguf_file import ModelFile
    from models.program import Program

Result = TypeVar("Result")
Progress = Callable[[str, int, int], None]
Rebind = Callable[[Progress], Binding]


class RecoveringBinding:
    """See runtime.devices.binding.Binding.  rebind: makes the one that takes over, with the same limits."""

    def __init__(self, binding: Binding, rebind: Rebind) -> None:
        self._binding, self._rebind = binding, rebind
        self._lost: DeviceLostError | None = None
        self._cancelled = threading.Event()
        self._past = DeviceTimes(cpu_ms=0.0, gpu_ms=0.0, transfer_ms=0.0)
        self.limits = binding.limits
        self.vocab_size = binding.vocab_size
        self.notes = binding.notes

    @property
    def memory(self) -> DeviceMemory:
        return self._binding.memory

    @property
    def uses(self) -> tuple[DeviceUse, ...]:
        return uses_of(self._binding)

    @property
    def times(self) -> DeviceTimes:
        """Up to the loss, if there was one."""
        return self._binding.times if isinstance(self._binding, HasTimes) else self._past

    @property
    def most_best(self) -> int:
        return self._binding.most_best if isinstance(self._binding, FindsBest) else 0

    def run(self, batch: Batch) -> np.ndarray:
        """Raises DeviceReplaced when the device was lost and another one is there; then every page is empty."""
        return self._run(lambda: self._binding.run(batch))

    def run_best(self, batch: Batch, best: Best) -> BestRows:
        """The same."""
        binding = self._binding
        assert isinstance(binding, FindsBest), "asked for the best of a device that finds none"
        return self._run(lambda: binding.run_best(batch, best))

    def _run(self, run: Callable[[], Result]) -> Result:
        if self._lost is None:
            try:
                return run()
            except DeviceLostError as error:
                self._lost = error
        self._replace(self._lost)
        raise DeviceReplaced(f"{self._lost_sentence} The CPU goes on alone.")

    def _replace(self, lost: DeviceLostError) -> None:
        self._lost_sentence = str(lost)
        self._past = self.times
        self._close_quietly()
        self._cancelled.clear()
        try:
            self._binding = self._rebind(self._check)
        except (CapacityError, DeviceError) as error:
            raise DeviceLostError(f"{lost} The CPU can't take over: {error}") from error
        self._lost = None

    def _close_quietly(self) -> None:
        try:
            self._binding.close()
        except DeviceError:
            pass  # there is nothing left to give back

    def _check(self, stage: str, done: int, total: int) -> None:
        if self._cancelled.is_set():
            self._cancelled.clear()
            raise Cancelled("The run was stopped.")

    def copy_page(self, source: int, target: int) -> None:
        if self._lost is None:
            try:
                self._binding.copy_page(source, target)
            except DeviceLostError as error:
                self._lost = error  # the next run says so

    def cancel(self) -> None:
        self._cancelled.set()
        self._binding.cancel()

    def close(self) -> None:
        self._close_quietly()


def rebinding_on_cpu(file: ModelFile, program: Program, own: DeviceOptions) -> Rebind:
    """What binds the whole program on the CPU, from the file as it lies on the disk then."""
    path, fingerprint, overlays = file.paths[0], file.fingerprint, file.overlays
    segment = whole(program)

    def rebind(progress: Progress) -> Binding:
        with open_model_file(path) as again:
            for overlay in overlays:
                again.lay_over(overlay)
            if again.fingerprint != fingerprint:
                raise DeviceError(f"{path.name} is another file than the one that was loaded: load the model again.")
            needed, available = cpu.price(segment, again, own).total_bytes, read_machine().memory_available_bytes
            if available is not None and needed > available:
                raise CapacityError(
                    "The model does not fit in this machine's memory.", needed_bytes=needed, available_bytes=available
                )
            return cpu.bind(segment, again, own, progress)

    return rebind
