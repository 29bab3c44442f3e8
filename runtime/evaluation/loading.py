"""Loads a model to be evaluated: its bare device, and the words around it.

Owns the joining, and what a file says before it is loaded.  Does not know texts or figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from models.chat_template import ChatTemplate, load_chat_templates
from models.description import load_description
from models.gguf_file import open_model_file
from models.vocabulary import Vocabulary, load_vocabulary
from runtime.adapters import open_adapted
from runtime.devices import parts
from runtime.devices.binding import Binding
from runtime.engine import EngineDescription, describe_loaded
from runtime.errors import EngineError
from runtime.machine import read_machine
from runtime.options import EngineOptions
from runtime.placement import place, usable_cards
from runtime.speculation.vocabularies import difference

LoadProgress = Callable[[str, int, int], None]


class EvaluationError(EngineError):
    """What was asked for can't be measured or compared."""


@dataclass(frozen=True, kw_only=True)
class Words:
    """What a file says of its tokens.  trained_context_size in tokens."""

    path: Path
    vocabulary: Vocabulary
    chat_templates: Mapping[str, ChatTemplate]
    trained_context_size: int


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A bound model.  The caller closes the binding."""

    binding: Binding
    description: EngineDescription
    notes: tuple[str, ...]


Load = Callable[[Path, EngineOptions, LoadProgress], Loaded]


def read_words(path: Path) -> Words:
    """Reads what stands in the file's header.  Raises ModelError for its faults."""
    with open_model_file(path) as file:
        vocabulary = load_vocabulary(file.metadata)
        return Words(
            path=path,
            vocabulary=vocabulary,
            chat_templates=load_chat_templates(file.metadata, vocabulary),
            trained_context_size=load_description(file).context_length,
        )


def load_model(path: Path, options: EngineOptions, progress: LoadProgress) -> Loaded:
    """As Engine.load does, without the engine; raises the same."""
    with open_adapted(path, options.adapters) as file:
        placement = place(file, options, read_machine(), cards=usable_cards(options))
        card = placement.card_place
        binding = parts.bind(placement.split, file, placement.device_options, progress, card=card)
        return Loaded(
            binding=binding,
            description=describe_loaded(file, placement),
            notes=(*placement.notes, *binding.notes),
        )


def check_comparable(words: Words, reference: Words) -> None:
    """Raises EvaluationError unless both models mean the same by their token ids."""
    reason = difference(words.vocabulary, reference.vocabulary, other="the reference")
    if reason is not None:
        raise EvaluationError(
            f"{words.path.name} can't be compared with the reference {reference.path.name}: {reason}."
        )
