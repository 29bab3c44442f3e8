"""Which chat template a model is used with: one of its own by name, or one from a file.

Owns the choice, and that a wrong one is refused while a model is loaded.  Does not know how a template renders.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path

from models.chat_template import DEFAULT_NAME, ChatTemplate, load_chat_templates, special_tokens_of, template_sources
from models.gguf_values import MetadataValue
from models.template_file import TemplateFile, check_template_file, read_template_file
from models.vocabulary import Vocabulary
from runtime.errors import OptionError
from runtime.options import EngineOptions


def chosen_file(options: EngineOptions, metadata: Mapping[str, MetadataValue]) -> TemplateFile | None:
    """The template's file that the options name, if they do, looked at.

    Raises TemplateError for one that can't be used, OptionError for the name of a template that there is not.
    """
    if options.chat_template_file is None:
        check_name(options.chat_template, template_sources(metadata))
        return None
    check_name(options.chat_template, (DEFAULT_NAME,), is_file=True)
    file = read_template_file(Path(os.path.expanduser(options.chat_template_file)))
    check_template_file(file, metadata)
    return file


def load_templates(
    file: TemplateFile | None, metadata: Mapping[str, MetadataValue], vocabulary: Vocabulary
) -> dict[str, ChatTemplate]:
    """The file's template under the usual name, or the model's own by theirs, the first for who chooses none."""
    if file is None:
        return load_chat_templates(metadata, vocabulary)
    return {DEFAULT_NAME: file.template(special_tokens_of(metadata, vocabulary.token_text, vocabulary.size))}


def check_name(name: str | None, names: Collection[str], *, is_file: bool = False) -> None:
    """Raises OptionError for a name that is none of these.  is_file: they are those of --chat-template-file."""
    if name is None or name in names:
        return
    if is_file:
        expected = f"{DEFAULT_NAME}, or nothing beside --chat-template-file, which takes the place of the model's own"
    elif names:
        expected = f"one of the model's own ({', '.join(names)}), or --chat-template-file FILE for one in a file"
    else:
        expected = "nothing, for the model has no template of its own; --chat-template-file FILE takes one from a file"
    raise OptionError(option="chat_template", flag="--chat-template", value=name, expected=expected)
