"""Loads a model for a bench: the binding bare, with its costs, and with what an engine around it needs.

Owns the joining.  Does not know tests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from models.gguf_file import ModelFile
from models.segments import whole
from models.vocabulary import Vocabulary, load_vocabulary
from runtime.adapters import open_adapted
from runtime.devices import cpu_limits, parts
from runtime.devices.binding import Binding
from runtime.devices.costs import StepCosts
from runtime.devices.pricing import costs_cpu, costs_gpu
from runtime.engine import EngineDescription, describe_loaded
from runtime.machine import read_machine
from runtime.options import EngineOptions
from runtime.placement import Placement, place, usable_cards

LoadProgress = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class PartCosts:
    """What a split model costs on each device.  cpu: None where nothing is left there.

    card_bytes_per_s: of the card's memory, by its clock and width, if the driver tells.
    """

    cpu: StepCosts | None
    gpu: StepCosts
    card_bytes_per_s: float | None


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """A binding and what is known about it.  device: its name; isa: the instruction-set level that was chosen."""

    binding: Binding
    description: EngineDescription
    vocabulary: Vocabulary
    costs: StepCosts
    device: str
    isa: str
    notes: tuple[str, ...]
    part_costs: PartCosts | None = None


Load = Callable[[Path, EngineOptions, LoadProgress], LoadedModel]


def load_model(path: Path, options: EngineOptions, progress: LoadProgress) -> LoadedModel:
    """As Engine.load does, without the engine.  The caller closes the binding.  Raises as Engine.load."""
    with open_adapted(path, options.adapters) as file:
        placement = place(file, options, read_machine(), cards=usable_cards(options))
        device_options, program = placement.device_options, placement.model.program
        costs = cpu_limits.count_costs(whole(program), file, device_options)
        vocabulary = load_vocabulary(file.metadata)
        binding = parts.bind(placement.split, file, device_options, progress, card=placement.card_place)
        return LoadedModel(
            binding=binding,
            description=describe_loaded(file, placement),
            vocabulary=vocabulary,
            costs=costs,
            device=placement.card.name if placement.card else "cpu",
            isa=cpu_limits.chosen_isa(device_options.isa),
            notes=(*placement.notes, *binding.notes),
            part_costs=_part_costs(placement, file),
        )


def _part_costs(placement: Placement, file: ModelFile) -> PartCosts | None:
    split, options = placement.split, placement.device_options
    if split.gpu is None or placement.card is None:
        return None
    return PartCosts(
        cpu=costs_cpu(split.cpu, file, options) if split.cpu is not None else None,
        gpu=costs_gpu(split.gpu, file, options),
        card_bytes_per_s=placement.card.bandwidth_bytes_per_s,
    )
