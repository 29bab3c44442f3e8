"""Texts that go with a message without standing in it: files that it names, and what was pasted and is long.

Owns what an attachment is, how a file becomes one, and how the model is shown both message and attachments. Does not
know the screen.
"""

from __future__ import annotations

import codecs
import fnmatch
import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

MAX_FILE_BYTES = 8 * 2**20
LONG_PASTE_CHARS = 8000
LONG_PASTE_LINES = 200

_MENTION = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|(\S+))')
# A path from a root, a name with a short ending, or a folder: not a decorator's or a package's name.
_FILE_LIKE = re.compile(r"^(?:~|\.{1,2})?/|^[^()]*(?:\.\w{1,5}|/)$")
_END_MARKS = ".,;:!?)]}'"
_WILD = re.compile(r"[*?]")
MAX_MATCHES = 50


class AttachmentError(Exception):
    """A file can't be attached; the message is one sentence for the screen."""


@dataclass(frozen=True, kw_only=True)
class Attachment:
    """A text with a name. `num_tokens`: how many tokens it is for the model that counted; None: not counted yet.

    `is_mentioned`: it is attached because the message names it.
    """

    name: str
    text: str
    num_tokens: int | None = None
    is_mentioned: bool = False

    @property
    def size_words(self) -> str:
        """Its size for a person: tokens where they are known, and lines, or characters of a single line."""
        num_lines = self.text.count("\n") + (not self.text.endswith("\n"))
        size = f"{num_lines:,} lines" if num_lines > 1 else _count(len(self.text), "character")
        return size if self.num_tokens is None else f"{_count(self.num_tokens, 'token')} · {size}"


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def is_long(text: str) -> bool:
    """Whether a pasted text is better attached than written into the input."""
    return len(text) > LONG_PASTE_CHARS or text.count("\n") >= LONG_PASTE_LINES


def read_file(name: str, folder: Path) -> Attachment:
    """The file of this name (relative to the folder, or absolute) as an attachment. Raises AttachmentError."""
    path = place_of(name, folder)
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise AttachmentError(f"{name} is larger than {MAX_FILE_BYTES // 2**20} MB: attach a part of it.")
        content = path.read_bytes()
    except (OSError, ValueError) as fault:
        reason = getattr(fault, "strerror", None) or fault
        raise AttachmentError(f"{name} can't be read: {reason}.") from fault
    encoding = "utf-16" if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    if b"\0" in content and encoding == "utf-8-sig":
        raise AttachmentError(f"{name} is no text: take it out of the message.")
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as fault:
        kind = encoding.removesuffix("-sig").upper()
        raise AttachmentError(f"{name} is no {kind} text (byte {fault.start:,} is the first that is none).") from fault
    return Attachment(name=name, text=text)


def mentioned_files(text: str, folder: Path) -> list[str]:
    """The files that a message names behind an @, each once; what is no file is part of the message.

    A pattern such as src/*.py names the files of that folder that it matches.
    """
    names: list[str] = []
    for quoted, plain in _MENTION.findall(text):
        candidates = [quoted] if quoted else [plain, plain.rstrip(_END_MARKS)]
        found = next(filter(None, (_files_of(name, folder) for name in candidates if name)), [])
        names += [name for name in found if name not in names]
    return names


def _files_of(name: str, folder: Path) -> list[str]:
    """The file of this name; of a pattern those that match, in order, if there are not too many."""
    if _is_file(place_of(name, folder)):
        return [name]
    matches = _matches(name, folder)
    return matches if len(matches) <= MAX_MATCHES else []


def _matches(name: str, folder: Path) -> list[str]:
    """The files of one folder that a pattern matches, none of them hidden; what is no pattern matches nothing."""
    path = Path(name)
    if not _WILD.search(path.name) or not _FILE_LIKE.search(name) or _WILD.search(str(path.parent)):
        return []
    try:
        entries = sorted(place_of(str(path.parent), folder).iterdir())
    except (OSError, ValueError):
        return []
    fitting = (entry for entry in entries if fnmatch.fnmatchcase(entry.name, path.name))
    return [str(path.parent / entry.name) for entry in fitting if not entry.name.startswith(".") and _is_file(entry)]


def names_behind_at(text: str) -> frozenset[str]:
    """Every name that a message may mean by an @, whether there is such a file or not."""
    found = _MENTION.findall(text)
    return frozenset(name for quoted, plain in found for name in (quoted, plain, plain.rstrip(_END_MARKS)) if name)


def missing_files(text: str, folder: Path, known: Collection[str] = ()) -> list[str]:
    """What a message names behind an @ as one names files, and is none: each once, a sentence about it.

    known: names of files that were there before, and are attached already.
    """
    sentences: list[str] = []
    for quoted, plain in _MENTION.findall(text):
        name = quoted or plain.rstrip(_END_MARKS)
        if not name or name in known or any(_files_of(way, folder) for way in (name, plain) if way):
            continue
        is_meant = quoted or _FILE_LIKE.search(name) or _is_folder(place_of(name, folder))
        if is_meant and (sentence := _missing(name, folder)) not in sentences:
            sentences.append(sentence)
    return sentences


def _missing(name: str, folder: Path) -> str:
    if num_matches := len(_matches(name, folder)):
        return f"{name} names {num_matches} files, and {MAX_MATCHES} go at once."
    is_folder = _is_folder(place_of(name, folder))
    return f"{name} is a folder: name a file in it." if is_folder else f"There is no file {name}."


def place_of(name: str, folder: Path) -> Path:
    """The path that a name typed in the chat means; `~` of a user that there is not is a name like any other."""
    return folder / os.path.expanduser(name)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def prompt_text(text: str, attachments: Sequence[Attachment]) -> str:
    """What the model sees: the attachments, each between fences with its name, and below them the message."""
    parts = [_fenced(attachment) for attachment in attachments]
    return "\n\n".join([*parts, text] if text.strip() else parts) if parts else text


def _fenced(attachment: Attachment) -> str:
    longest = max((len(run) for run in re.findall("`+", attachment.text)), default=0)
    fence = "`" * max(3, longest + 1)
    body = attachment.text.rstrip("\n")
    return f"{attachment.name}:\n{fence}\n{body}\n{fence}"
