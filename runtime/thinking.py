"""Telling a model's thinking from its answer, as the text comes.

Owns where a thinking block begins and ends.  Does not know how either is shown, nor templates: whoever rendered the
prompt says whether the block was opened there.

A block opens at the very beginning of a reply (blanks aside) and nowhere else: a tag that the answer mentions is text.
It closes at the closing tag, unless that stands in inline code: between two runs of backticks of one length, on one
line.  Whether a tag after an open run is code is known when the run closes or the line ends; until then it is held.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["thinking", "answer"]

_TICKS = re.compile("`+")


@dataclass(frozen=True, kw_only=True)
class ThinkingTags:
    """What a model writes around its thinking."""

    open: str = "<think>"
    close: str = "</think>"


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A stretch of a reply, without the tags."""

    kind: Kind
    text: str


DEFAULT_TAGS = ThinkingTags()


def opens_thinking(prompt_text: str, tags: ThinkingTags = DEFAULT_TAGS) -> bool:
    """Whether a rendered prompt ends inside a thinking block, so that the reply begins there."""
    return prompt_text.rstrip().endswith(tags.open)


class ThinkingSplitter:
    """Text of a reply in, segments out.  The same segments, joined by kind, however the text is cut."""

    def __init__(self, *, starts_inside: bool = False, tags: ThinkingTags = DEFAULT_TAGS) -> None:
        self._tags = tags
        self._state: Literal["start", "thinking", "answer"] = "thinking" if starts_inside else "start"
        self._held = ""
        self._line = ""  # the thinking's current line, as far as it was released

    def push(self, text: str) -> list[Segment]:
        """What is certain now."""
        return self._advance(self._held + text, is_last=False)

    def finish(self) -> list[Segment]:
        """What was held back, at the end of the reply."""
        return self._advance(self._held, is_last=True)

    def _advance(self, text: str, *, is_last: bool) -> list[Segment]:
        segments: list[Segment] = []
        self._held = ""
        if self._state == "start":
            text = self._at_start(text, is_last=is_last)
        if self._state == "thinking":
            thought, text = self._in_thinking(text, is_last=is_last)
            if thought:
                segments.append(Segment(kind="thinking", text=thought))
        if self._state == "answer" and text:
            segments.append(Segment(kind="answer", text=text))
        return segments

    def _at_start(self, text: str, *, is_last: bool) -> str:
        """What follows the opening tag, or the text when there is none; "" and all held while that is open."""
        stripped = text.lstrip()
        if stripped.startswith(self._tags.open):
            self._state = "thinking"
            return stripped[len(self._tags.open) :]
        if self._tags.open.startswith(stripped) and not is_last:
            self._held = text
            return ""
        self._state = "answer"
        return text

    def _in_thinking(self, text: str, *, is_last: bool) -> tuple[str, str]:
        """(thinking that is certain, text after the closing tag); sets the state to "answer" when the block closed."""
        start = 0
        while (tag_at := text.find(self._tags.close, start)) >= 0:
            tag_end = tag_at + len(self._tags.close)
            is_code = self._is_code(text, tag_at, tag_end, is_last=is_last)
            if is_code is None:
                return self._hold(text, tag_at), ""
            if not is_code:
                self._state = "answer"
                return text[:tag_at], text[tag_end:]
            start = tag_end
        num_held = 0 if is_last else _overlap(text, self._tags.close)
        return self._hold(text, len(text) - num_held), ""

    def _hold(self, text: str, end: int) -> str:
        self._held = text[end:]
        self._line = (self._line + text[:end]).rpartition("\n")[2]
        return text[:end]

    def _is_code(self, text: str, tag_at: int, tag_end: int, *, is_last: bool) -> bool | None:
        """Whether the tag stands in inline code; None while that is open."""
        before = (self._line + text[:tag_at]).rpartition("\n")[2]
        ticks = _open_run(before)
        if ticks is None:
            return False
        after, newline, _ = text[tag_end:].partition("\n")
        runs = list(_TICKS.finditer(after))
        for run in runs:
            could_grow = run.end() == len(after) and not newline and not is_last
            if not could_grow and len(run.group()) == ticks:
                return True
        return False if newline or is_last else None


def _open_run(line: str) -> int | None:
    """The length of the run of backticks that opened inline code and did not close it; None when there is none."""
    opened: int | None = None
    for run in _TICKS.finditer(line):
        length = len(run.group())
        if opened is None:
            opened = length
        elif opened == length:
            opened = None
    return opened


def _overlap(text: str, tag: str) -> int:
    """How many characters at the end of the text could be the beginning of the tag."""
    for length in range(min(len(tag) - 1, len(text)), 0, -1):
        if text.endswith(tag[:length]):
            return length
    return 0
