"""Where a model goes and what that costs, decided before anything is loaded.

Owns the decision.  Does not load: the engine carries it out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from models.description import ModelDescription, load_description
from models.gguf_file import ModelFile
from runtime.devices import cpu
from runtime.devices.binding import DeviceMemory, DeviceOptions, Limits, pages_for
from runtime.machine import Machine, choose_threads
from runtime.memory import MemoryBill, make_bill
from runtime.options import EngineOptions


@dataclass(frozen=True, kw_only=True)
class Placement:
    """What a model will be bound with, and the bill.  notes: sentences for the user."""

    model: ModelDescription
    bill: MemoryBill
    device_options: DeviceOptions
    notes: tuple[str, ...]


DraftPrice = Callable[[DeviceOptions], DeviceMemory]


def place(
    file: ModelFile, options: EngineOptions, machine: Machine, *, draft_price: DraftPrice | None = None
) -> Placement:
    """Decides for an open file.  Raises CapacityError when it does not fit, ModelError for what can't be run.

    draft_price: what a draft model beside it reserves, if there is to be one.
    """
    model = load_description(file)
    threads, thread_note = choose_threads(options.threads, machine)

    def options_for(context_size: int) -> DeviceOptions:
        return DeviceOptions(
            limits=_limits(context_size, options),
            threads=threads,
            cache_type_k=options.cache_type_k,
            cache_type_v=options.cache_type_v,
            activations=options.activations,
            isa=options.isa,
            kernel_folder=options.kernel_folder.expanduser(),
        )

    def price(context_size: int) -> DeviceMemory:
        return cpu.price(model.program, file, options_for(context_size))

    bill = make_bill(
        price=price,
        trained_context_size=model.context_length,
        asked_context_size=options.context_size,
        available_bytes=machine.memory_available_bytes,
        draft_price=(lambda context_size: draft_price(options_for(context_size))) if draft_price is not None else None,
    )
    context_size = bill.context_size
    if context_size != model.context_length:
        # Some models have one table of frequencies for short contexts and another for long ones.
        model = load_description(file, context_size=context_size)
    notes = [*model.notes, *([thread_note] if thread_note else [])]
    if context_size > model.context_length:
        notes.append(
            f"The context window of {context_size} tokens is larger than the {model.context_length} that the model "
            f"was trained for: answers that far on may make no sense."
        )
    return Placement(model=model, bill=bill, device_options=options_for(context_size), notes=tuple(notes))


def _limits(context_size: int, options: EngineOptions) -> Limits:
    return Limits(
        max_batch_tokens=min(options.batch_size, max(context_size, 1) * options.max_sequences),
        max_outputs=_max_outputs(options),
        max_sequences=options.max_sequences,
        context_size=context_size,
        num_pages=options.max_sequences * pages_for(context_size),
    )


def _max_outputs(options: EngineOptions) -> int:
    """Rows for what was asked for, and for the longest draft with the token before it."""
    speculation = options.speculation
    return options.max_outputs if speculation.is_off else max(options.max_outputs, speculation.draft_max + 1)
