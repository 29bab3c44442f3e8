"""What `--lora FILE[:SCALE]` means.

Owns the reading of that text.  Does not know what an adapter is.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from app.errors import UsageError

if TYPE_CHECKING:
    from runtime.adapters import AdapterChoice


def adapter_choices(texts: Sequence[str]) -> tuple[AdapterChoice, ...]:
    """Each text's file and scale.  Raises UsageError for a scale that is none."""
    return tuple(map(_choice, texts))


def adapter_text(choice: AdapterChoice) -> str:
    """The text that stands for a choice, wherever it is read from."""
    return f"{choice.path.expanduser().resolve()}:{choice.scale!r}"


def _choice(text: str) -> AdapterChoice:
    from runtime.adapters import AdapterChoice
    from runtime.errors import OptionError

    name, colon, number = text.rpartition(":")
    if not colon or Path(text).expanduser().exists():  # a file's name may hold a colon
        return AdapterChoice(path=Path(text))
    try:
        scale = float(number)
    except ValueError:
        if not Path(name).expanduser().exists():
            return AdapterChoice(path=Path(text))  # whose file is missing, which is told later
        raise UsageError(f"The scale of --lora {text} is {number!r}; expected a number, such as 0.5.") from None
    try:
        return AdapterChoice(path=Path(name), scale=scale)
    except OptionError as error:
        raise UsageError(str(error)) from error
