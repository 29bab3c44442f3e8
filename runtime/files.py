"""What a model's file tells about itself, read without loading the model: the façade for app/.

Owns the choice of facts.  Does not know how a file is parsed, nor engines.  Texts come from the file and are not
escaped: whoever prints them does that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

from models.architectures import find_architecture
from models.chat_template import DEFAULT_NAME, template_sources
from models.description import BASE_MODEL_NOTE, load_description
from models.errors import ArchitectureError, TensorError
from models.gguf_file import ModelFile, open_model_file
from models.hyperparameters import architecture_name
from models.template_variables import variables_of
from runtime.options import EngineOptions
from runtime.templates import chosen_file

_TOKENS_KEY = "tokenizer.ggml.tokens"


@dataclass(frozen=True, kw_only=True)
class FormatFacts:
    """How much of a file stands in one block format."""

    name: str
    num_tensors: int
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class FileFacts:
    """A file as `tandem models info` shows it.  None: the file is silent.

    chat_templates: their texts by name, the one to use first.
    refusal: why this version can't run it, or None when it can.  num_layers and context_length are 0 then.
    """

    paths: tuple[Path, ...]
    size_bytes: int
    name: str | None
    licence: str | None
    architecture: str
    num_parameters: int
    num_layers: int
    context_length: int
    vocabulary: str | None
    vocabulary_size: int
    chat_templates: Mapping[str, str]
    formats: tuple[FormatFacts, ...]
    notes: tuple[str, ...]
    refusal: str | None

    @property
    def template_variables(self) -> tuple[str, ...]:
        """What its chat templates read besides the chat, and a person may set."""
        return variables_read_by(self.chat_templates.values())


def variables_read_by(templates: Iterable[str]) -> tuple[str, ...]:
    """What chat templates (their sources) read besides the chat, and a person may set."""
    return tuple(sorted({name for source in templates for name in variables_of(source)}))


def read_facts(path: Path, *, chat_template_file: Path | None = None) -> FileFacts:
    """Open the file, look, and close it.  Raises FileError for what is no whole GGUF model.

    chat_template_file: a template in place of the file's own; raises TemplateError for one that can't be used.
    """
    with open_model_file(path) as file:
        template_file = chosen_file(EngineOptions(chat_template_file=chat_template_file), file.metadata)
        num_layers, context_length, notes, refusal = _runnable(file)
        tokens = file.metadata.get(_TOKENS_KEY)
        return FileFacts(
            paths=file.paths,
            size_bytes=file.size_bytes,
            name=_text(file.metadata, "general.name"),
            licence=_text(file.metadata, "general.license"),
            architecture=_text(file.metadata, "general.architecture") or "unknown",
            num_parameters=sum(prod(tensor.shape) for tensor in file.tensors.values()),
            num_layers=num_layers,
            context_length=context_length,
            vocabulary=_text(file.metadata, "tokenizer.ggml.model"),
            vocabulary_size=len(tokens) if isinstance(tokens, list) else 0,
            chat_templates=(
                template_sources(file.metadata) if template_file is None else {DEFAULT_NAME: template_file.source}
            ),
            formats=_formats(file),
            notes=tuple(note for note in notes if template_file is None or note != BASE_MODEL_NOTE),
            refusal=refusal,
        )


def _runnable(file: ModelFile) -> tuple[int, int, tuple[str, ...], str | None]:
    """(layers, trained context, notes, why not)."""
    try:
        find_architecture(architecture_name(file.metadata))
        description = load_description(file)
    except (ArchitectureError, TensorError) as error:
        return 0, 0, (), str(error)
    return description.hyperparameters.num_layers, description.context_length, description.notes, None


def _formats(file: ModelFile) -> tuple[FormatFacts, ...]:
    counts: dict[str, tuple[int, int]] = {}
    for tensor in file.stored.values():
        number, size_bytes = counts.get(tensor.format.name, (0, 0))
        counts[tensor.format.name] = (number + 1, size_bytes + tensor.size_bytes)
    facts = [FormatFacts(name=name, num_tensors=number, size_bytes=size) for name, (number, size) in counts.items()]
    return tuple(sorted(facts, key=lambda fact: -fact.size_bytes))


def _text(metadata: Mapping[str, object], key: str) -> str | None:
    value = metadata.get(key)
    return value if isinstance(value, str) and value else None
