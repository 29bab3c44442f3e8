"""Prompts that people really send, for tests in which the text matters: guessing is right or wrong by what is said.

Owns the sets that come with Tandem, written for it, and where their files lie: rows of JSON with `prompt`.  Does not
know what is measured with them.  code: twenty requests for new code; edits: ten requests to change code that is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from runtime.prompts import Prompt

_FOLDER = Path(__file__).with_name("prompts")
BUILT_IN_SETS = ("code", "edits")


@dataclass(frozen=True, kw_only=True)
class PromptSet:
    """name: as it stands in tables."""

    name: str
    prompts: tuple[Prompt, ...]


def built_in_file(name: str) -> Path:
    """The file of one of BUILT_IN_SETS."""
    assert name in BUILT_IN_SETS
    return _FOLDER / f"{name}.jsonl"
