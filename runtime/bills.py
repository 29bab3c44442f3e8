"""What models would cost in memory, asked before one is loaded: the bill, and the largest window that fits.

Owns the questions of someone who chooses a model or its settings.  Does not load anything: reads files' headers alone.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from models.gguf_file import ModelFile
from runtime.adapters import open_adapted
from runtime.devices.binding import PAGE_SIZE
from runtime.errors import CapacityError
from runtime.machine import Machine, read_machine
from runtime.memory import MemoryBill
from runtime.options import EngineOptions
from runtime.placement import place, usable_cards
from runtime.speculation.loading import DraftFile
from runtime.survey import DraftPrice
from runtime.templates import chosen_file

# Of a file that is not here only the size is known: packing adds a little, the cache and the workspace about this much.
_PACKING_SHARE = 0.04
_REST_SHARE = 0.25
_LEAST_REST_BYTES = 300 * 10**6


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What a model that is not here will need, roughly.  fits: None where the free memory is not known."""

    needed_bytes: int
    available_bytes: int | None

    @property
    def fits(self) -> bool | None:
        """Whether it will probably fit."""
        return None if self.available_bytes is None else self.needed_bytes <= self.available_bytes


def bill_of(
    path: Path | str, options: EngineOptions, *, machine: Machine | None = None, freed_bytes: int = 0
) -> MemoryBill:
    """The bill that loading with these options would make.  Raises CapacityError, ModelError, DeviceError, OptionError.

    freed_bytes: what will be given back before it is loaded, by the model that is loaded now.
    """
    with ExitStack() as stack:
        file, draft_price = _files(stack, path, options)
        chosen_file(options, file.metadata)
        return place(
            file,
            options,
            _with_freed(machine, freed_bytes),
            cards=usable_cards(options),
            draft_price=draft_price,
        ).bill


def largest_context(
    path: Path | str, options: EngineOptions, *, most: int, machine: Machine | None = None, freed_bytes: int = 0
) -> int | None:
    """The largest window up to `most` tokens that fits with these options, in whole pages; None where none does."""
    with ExitStack() as stack:
        file, draft_price = _files(stack, path, options)
        free, cards = _with_freed(machine, freed_bytes), usable_cards(options)

        def fits(context_size: int) -> bool:
            try:
                place(file, replace(options, context_size=context_size), free, cards=cards, draft_price=draft_price)
            except CapacityError:
                return False
            return True

        low, high = 0, max(1, most // PAGE_SIZE)
        while low < high:
            middle = (low + high + 1) // 2
            if fits(middle * PAGE_SIZE):
                low = middle
            else:
                high = middle - 1
        return low * PAGE_SIZE or None


def estimate(size_bytes: int, *, machine: Machine | None = None) -> Estimate:
    """What a model whose file has this size will need with a window of some thousand tokens."""
    machine = machine or read_machine()
    rest_bytes = max(_LEAST_REST_BYTES, int(_REST_SHARE * size_bytes))
    return Estimate(
        needed_bytes=int((1 + _PACKING_SHARE) * size_bytes) + rest_bytes,
        available_bytes=machine.memory_available_bytes,
    )


def _files(stack: ExitStack, path: Path | str, options: EngineOptions) -> tuple[ModelFile, DraftPrice | None]:
    file = stack.enter_context(open_adapted(path, options.adapters))
    speculation = options.speculation
    if not speculation.uses_draft_model or speculation.draft_model is None:
        return file, None
    return file, stack.enter_context(DraftFile(speculation.draft_model, speculation.draft_weights)).price


def _with_freed(machine: Machine | None, freed_bytes: int) -> Machine:
    machine = machine or read_machine()
    available_bytes = machine.memory_available_bytes
    return (
        machine if available_bytes is None else replace(machine, memory_available_bytes=available_bytes + freed_bytes)
    )
