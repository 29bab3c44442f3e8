"""Opening a model together with the adapters that it is to be used with.

Owns that joining, and what a caller may choose of adapters.  Does not know how an adapter is applied.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from models.adapters import A_SUFFIX, B_SUFFIX, Use, check_fits, fingerprint_of, read_adapter, stacked
from models.description import load_description
from models.errors import AdapterError
from models.gguf_file import ModelFile, Overlay, open_model_file
from models.low_rank import adaptable_weights
from runtime.errors import OptionError

MAX_SCALE = 1000.0


@dataclass(frozen=True, kw_only=True)
class AdapterChoice:
    """A LoRA adapter's file, and how strongly it is used; refuses scales that make no sense with OptionError."""

    path: Path
    scale: float = 1.0

    def __post_init__(self) -> None:
        scale = self.scale
        is_number = isinstance(scale, int | float) and not isinstance(scale, bool) and math.isfinite(scale)
        if not is_number or abs(scale) > MAX_SCALE:
            expected = f"a number from {-MAX_SCALE:g} to {MAX_SCALE:g}"
            raise OptionError(option=f"the scale of {self.path.name}", flag="--lora", value=scale, expected=expected)


def open_adapted(path: Path | str, adapters: Sequence[AdapterChoice]) -> ModelFile:
    """The model's file with the adapters' matrices laid over it.

    Raises ModelError for the faults of any of the files, and for adapters that were not made for this model.
    """
    file = open_model_file(path)
    if not adapters:
        return file
    try:
        model = load_description(file)
        shapes = {name: tensor.shape for name, tensor in file.tensors.items()}
        adaptable = adaptable_weights(model.program)
        uses = []
        for choice in adapters:
            adapter = read_adapter(choice.path.expanduser())
            if any(adapter.fingerprint == use.adapter.fingerprint for use in uses):
                raise AdapterError(
                    f"The adapter {choice.path.name} was given twice: give it once, with the scale that is meant."
                )
            check_fits(adapter, model.hyperparameters.architecture, shapes, adaptable)
            uses.append(Use(adapter=adapter, scale=choice.scale))
        matrices = {}
        for weight, (a, b) in stacked(uses).items():
            matrices[weight + A_SUFFIX], matrices[weight + B_SUFFIX] = a, b
        notes = tuple(use.note for use in uses)
        file.lay_over(Overlay(matrices=matrices, fingerprint=fingerprint_of(uses), notes=notes))
        return file
    except BaseException:
        file.close()
        raise
