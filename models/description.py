"""What a file holds, in one value: family, numbers, program, size, formats, and what a person should know.

Owns the joining of the parts.  Reads small tensors (frequency tables) and no large one; does not know devices or
memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from models.adapters import B_SUFFIX
from models.architecture import Architecture
from models.architectures import find_architecture
from models.errors import TensorError
from models.gguf_file import is_expanded
from models.hyperparameters import Hyperparameters, architecture_name, read_hyperparameters
from models.low_rank import add_low_ranks
from models.lowering import lower
from models.program import Program
from models.rope import ROPE_FREQS, ROPE_LONG, ROPE_SHORT, RopeFactors

if TYPE_CHECKING:
    from models.gguf_file import ModelFile

BASE_MODEL_NOTE = "This is a base model without a chat template: it continues text and was not taught to answer."


@dataclass(frozen=True, kw_only=True)
class FormatUse:
    """How much of a file stands in one block format."""

    name: str
    num_tensors: int
    num_parameters: int
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class ModelDescription:
    """A model as its file describes it.

    name: as the file calls it, if it does.  context_length: positions it was trained for.  formats: by size, largest
    first.  notes: sentences for the person who loads it.
    """

    name: str | None
    architecture: Architecture
    hyperparameters: Hyperparameters
    program: Program
    num_parameters: int
    size_bytes: int
    formats: tuple[FormatUse, ...]
    context_length: int
    notes: tuple[str, ...]


def load_description(file: ModelFile, *, context_size: int | None = None) -> ModelDescription:
    """Describes an open file.

    context_size: positions that will be used, where a model has a table for short and one for long contexts; None: all.
    Raises ArchitectureError for a family or mathematics that Tandem lacks, TensorError for tensors that don't fit.
    """
    architecture = find_architecture(architecture_name(file.metadata))
    hyperparameters = read_hyperparameters(file.metadata, architecture.mathematics)
    program = lower(
        architecture,
        hyperparameters,
        {name: tensor.shape for name, tensor in file.own_tensors.items()},
        factors=_read_factors(file),
        context_size=context_size,
    )
    pairs = (name for name in file.tensors if name not in file.own_tensors and name.endswith(B_SUFFIX))
    ranks = {name.removesuffix(B_SUFFIX): file.tensors[name].num_columns for name in pairs}
    name = file.metadata.get("general.name")
    return ModelDescription(
        name=name if isinstance(name, str) and name else None,
        architecture=architecture,
        hyperparameters=hyperparameters,
        program=add_low_ranks(program, ranks),
        num_parameters=sum(prod(tensor.shape) for tensor in file.stored.values()),
        size_bytes=sum(tensor.size_bytes for tensor in file.stored.values()),
        formats=_formats(file),
        context_length=hyperparameters.context_length,
        notes=(
            *_notes(file.metadata, hyperparameters),
            *_format_notes(file),
            *(note for overlay in file.overlays for note in overlay.notes),
        ),
    )


def _read_factors(file: ModelFile) -> RopeFactors:
    def table(name: str) -> tuple[float, ...] | None:
        if name not in file.tensors:
            return None
        if len(file.tensors[name].shape) != 1:
            raise TensorError(f"The tensor {name} has {len(file.tensors[name].shape)} dimensions; 1 was expected.")
        return tuple(float(factor) for factor in file.floats(name))

    return RopeFactors(always=table(ROPE_FREQS), short=table(ROPE_SHORT), long=table(ROPE_LONG))


def _formats(file: ModelFile) -> tuple[FormatUse, ...]:
    uses = [
        FormatUse(
            name=name,
            num_tensors=len(tensors),
            num_parameters=sum(prod(tensor.shape) for tensor in tensors),
            size_bytes=sum(tensor.size_bytes for tensor in tensors),
        )
        for name in {tensor.format.name for tensor in file.stored.values()}
        if (tensors := [tensor for tensor in file.stored.values() if tensor.format.name == name])
    ]
    return tuple(sorted(uses, key=lambda use: (-use.size_bytes, use.name)))


def _notes(metadata: Mapping[str, object], hyperparameters: Hyperparameters) -> list[str]:
    notes = []
    if not metadata.get("tokenizer.chat_template"):
        notes.append(BASE_MODEL_NOTE)
    scaling = hyperparameters.rope_scaling
    if scaling.kind != "none":
        notes.append(
            f"Its context is stretched from {scaling.original_context_length} positions"
            f" ({scaling.kind} RoPE scaling, factor {scaling.factor:g})."
        )
    return notes


def _format_notes(file: ModelFile) -> list[str]:
    """What it costs that some formats are not computed with as they are."""
    expanded = {name: tensor for name, tensor in file.stored.items() if is_expanded(tensor)}
    if not expanded:
        return []
    names = ", ".join(sorted({tensor.format.name for tensor in expanded.values()}))
    before = sum(tensor.size_bytes for tensor in expanded.values()) / 1e9
    after = sum(file.tensors[name].size_bytes for name in expanded) / 1e9
    return [
        f"There are no kernels for {names}: those weights become F16 when the model is loaded, which takes long and"
        f" {after:.2g} GB of memory instead of {before:.2g}; a file in Q4_K_M or IQ4_XS is faster and may need less."
    ]
