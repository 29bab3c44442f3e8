"""What can complete the word that is being written: a value for each offer.

Owns the offer's fields, those of slash words, and those of files behind an @. Does not know where offers are shown.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from app.chat.attachments import place_of
from app.chat.commands.command import Command
from app.chat.commands.key_table import KeyTable
from app.chat.commands.registry import command_of, commands_beginning

_BEGUN_MENTION = re.compile(r"(?<!\S)@(\S*)$")
_MAX_FILES = 40

Choices = Callable[[Command], tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class Offer:
    """Puts `text` in place of `typed`, the characters before the cursor. `sends`: it is a whole message then."""

    typed: str
    text: str
    label: str
    detail: str = ""
    sends: bool = False


def slash_offers(before: str, keys: KeyTable, choices: Choices) -> list[Offer]:
    """Offers for a message that begins with a slash; none for any other. before: all that stands before the cursor.

    choices: what the command's argument may be just now.
    """
    if not before.startswith("/") or before.startswith("//") or "\n" in before:
        return []
    word, blank, begun = before[1:].partition(" ")
    if blank:
        command = command_of(word.lower())
        return _argument_offers(command, begun.lstrip(), choices) if command else []
    return [_command_offer(before, command, keys) for command in commands_beginning(word)]


def _command_offer(before: str, command: Command, keys: KeyTable) -> Offer:
    key = keys.shown(command)
    return Offer(
        typed=before,
        text=f"/{command.name} " if command.needs_argument else f"/{command.name}",
        label=command.usage,
        detail=command.help + (f" ({key})" if key else ""),
        sends=not command.needs_argument or before == f"/{command.name}",
    )


def _argument_offers(command: Command, begun: str, choices: Choices) -> list[Offer]:
    return [
        Offer(typed=begun, text=choice, label=choice, sends=True)
        for choice in choices(command)
        if choice.lower().startswith(begun.lower())
    ]


def file_offers(before: str, folder: Path) -> list[Offer]:
    """Offers for a file that is named behind an @, folder by folder. before: all that stands before the cursor."""
    match = _BEGUN_MENTION.search(before[-4096:])
    if match is None:
        return []
    begun = match.group(1)
    parent, _, name = begun.rpartition("/")
    base = f"{parent}/" if "/" in begun else ""
    return [
        Offer(typed=f"@{begun}", text=_mention(base + entry), label=_mention(base + entry))
        for entry in _entries(place_of(base, folder), name)
    ]


def _mention(name: str) -> str:
    return f'@"{name}"' if any(map(str.isspace, name)) else f"@{name}"


def _entries(folder: Path, begun: str) -> list[str]:
    """The files and folders (with a slash behind them) whose names begin so, unless a file is named in full already.

    Hidden ones only where a dot is written; no folder with a blank, since a quoted name is not gone on with.
    """
    try:
        with os.scandir(folder) as found:
            entries = [
                f"{entry.name}/" if entry.is_dir() else entry.name
                for entry in found
                if entry.name.lower().startswith(begun.lower())
                and (begun or not entry.name.startswith("."))
                and not (entry.is_dir() and any(map(str.isspace, entry.name)))
                and not {'"', "\n"} & set(entry.name)
            ]
    except (OSError, ValueError, RuntimeError):
        return []
    return [] if begun in entries else sorted(entries)[:_MAX_FILES]
