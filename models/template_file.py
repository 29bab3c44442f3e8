"""A chat template from a file of its own, in place of those in a model's file.

Owns its reading, and the look whether it can be used, before anything large is loaded for it.  Does not know how a
template renders.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path

from models.chat_template import ChatTemplate, Message, special_tokens_of
from models.errors import TemplateError, quoted
from models.gguf_values import MetadataValue
from models.system_calls import ask

_TOKENS_KEY = "tokenizer.ggml.tokens"
_MOST_BYTES = 1 << 20
_PROBE = (
    Message(role="user", content="tandem question one"),
    Message(role="assistant", content="tandem answer"),
    Message(role="user", content="tandem question two"),
)
_TRIED = "It was tried with a question, an answer and another question"
_WAY_ON = "mend the file, or load without --chat-template-file."


@dataclass(frozen=True, kw_only=True)
class TemplateFile:
    """A template's text and where it came from.  sha256: of the file's bytes, in hexadecimal."""

    path: Path
    source: str
    sha256: str

    def template(self, special_tokens: Mapping[str, str]) -> ChatTemplate:
        """Whoever uses it closes it.  special_tokens: as special_tokens_of gives them."""
        return ChatTemplate(self.source, special_tokens, called=_called(self.path))


def read_template_file(path: Path) -> TemplateFile:
    """Raises TemplateError for what can't be read, is no text in UTF-8, is empty, or larger than any template."""
    try:
        data = ask(path, partial(_read, path))
        source = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TemplateError(
            f"{_called(path)} is no text in UTF-8 (byte {error.start:,} is {error.object[error.start]:#04x}): save it "
            "as UTF-8."
        ) from None
    except OSError as error:
        raise TemplateError(f"{_called(path)} can't be read: {error.strerror or error}.") from error
    except ValueError as error:  # a NUL in the path
        raise TemplateError(f"{_called(path)} is no possible path: {error}.") from error
    if len(data) > _MOST_BYTES:
        raise TemplateError(f"{_called(path)} has more than {_MOST_BYTES:,} bytes: name a file with a Jinja template.")
    if not source.strip():
        raise TemplateError(f"{_called(path)} is empty: name a file with a Jinja template.")
    return TemplateFile(path=path, source=source, sha256=sha256(data).hexdigest())


def check_template_file(file: TemplateFile, metadata: Mapping[str, MetadataValue]) -> None:
    """Renders a short chat, with the special tokens of the model that has this metadata, and throws it away.

    Raises TemplateError for a template that does not compile, fails, refuses the chat, or leaves a message out.
    """
    texts = metadata.get(_TOKENS_KEY)
    texts = texts if isinstance(texts, list) else []
    with closing(file.template(special_tokens_of(metadata, texts.__getitem__, len(texts)))) as template:
        try:
            text = template.render(_PROBE).text
        except TemplateError as error:
            raise TemplateError(f"{str(error).rstrip('.')}. {_TRIED}: {_WAY_ON}") from None
    if any(message.content not in text for message in _PROBE):
        raise TemplateError(
            f"{_called(file.path)} does not write every message's content ({{{{ message.content }}}}), so the model "
            f"would not see it. {_TRIED}: {_WAY_ON}"
        )


def _called(path: Path) -> str:
    return f"The chat template file {quoted(str(path), limit=None)}"


def _read(path: Path) -> bytes:
    """One byte more than a template may have, at most."""
    # O_NONBLOCK: a named pipe would wait for a writer, and is refused a line later.
    with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError("it is no regular file")
        return file.read(_MOST_BYTES + 1)
