"""Tokens that are more than text: what kinds there are, where they stand in a text, which of them end a turn.

Owns the token kinds of GGUF, the search for special tokens, and the guard that keeps what a user types from becoming
one.  Does not know how plain text becomes tokens, nor templates.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import IntEnum
from functools import cached_property


class TokenKind(IntEnum):
    """The values of `tokenizer.ggml.token_type`."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


END_TEXTS = frozenset(
    (
        "<|im_end|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|end|>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<|end_of_turn|>",
        "<|endofturn|>",
        "<|END_OF_TURN_TOKEN|>",
        "<|EOT|>",
        "<|eot|>",
        "<|return|>",
        "<|call|>",
        "<end_of_turn>",
        "<end_of_utterance>",
        "<turn|>",
        "<｜end▁of▁sentence｜>",
    )
)
"""Tokens that end a turn or a text whatever kind the file says they are."""

END_TEXTS_OF_CONTROLS = frozenset(("</s>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<eos>", "<|eos|>"))
"""Texts that end a turn when the file says that they are control tokens (Gemma's `</s>` is a tag of HTML)."""

_TAG_NAMES = ("think", "thinking", "reasoning", "answer", "tool", "tools", "tool_call", "tool_calls", "tool_response")
STRUCTURAL_TAGS = frozenset(f"<{stroke}{name}>" for stroke in ("", "/") for name in _TAG_NAMES)
"""Tags of user-defined tokens that templates write, and look for in the assistant's own messages."""
BARRED = re.compile(r"<[|｜].*[|｜]>", re.DOTALL)
BYTE_TEXT = re.compile(r"<0x([0-9A-Fa-f]{2})>")
"""How the SentencePiece kind writes a token for one byte."""
_BRACKETED = re.compile(r"<\S.*>|\[\S.*\]", re.DOTALL)


def structural_texts(
    controls: Iterable[str], user_defined: Iterable[str], template: str | None = None
) -> frozenset[str]:
    """The special tokens that give a prompt its structure, so that a user must not be able to write them.

    These are the control tokens, and those user-defined ones that look like tags (`<|...|>`, `</think>`, ...) or are
    bracketed and occur in the template.  Blanks, line breaks and tags of HTML, which some files define as tokens of
    their own, are how a text is written and stay.
    """
    tags = (
        text
        for text in user_defined
        if text in STRUCTURAL_TAGS
        or BARRED.fullmatch(text)
        or (template is not None and _BRACKETED.fullmatch(text) and text in template)
    )
    return frozenset(text for text in (*controls, *tags) if text)


class TokenFinder:
    """Finds given tokens in a text, leftmost first, the longest where several begin."""

    def __init__(self, ids: Mapping[str, int]) -> None:
        self._ids = {text: token_id for text, token_id in ids.items() if text}
        lengths: dict[str, set[int]] = {}
        for text in self._ids:
            lengths.setdefault(text[:2], set()).add(len(text))
        self._lengths = {opening: tuple(sorted(found, reverse=True)) for opening, found in lengths.items()}
        # A text of one character is an opening by itself and has to be tried after the openings of two.
        openings = sorted(lengths, key=len, reverse=True)
        self._opening = re.compile("|".join(map(re.escape, openings))) if openings else None

    def split(self, text: str, *, guard: str = "", guarded: Collection[str] = ()) -> Iterator[str | int]:
        """The text as stretches of plain text (never empty) and token ids.

        guard: a character; a token among `guarded` that stands right behind it is plain text.  The guards stay in.
        """
        start = position = 0
        while self._opening and (found := self._opening.search(text, position)):
            at = found.start()
            refused = guarded if guard and at and text[at - 1] == guard else ()
            token = self._longest(text, at, refused)
            if token is None:
                position = at + 1
                continue
            if at > start:
                yield text[start:at]
            yield self._ids[token]
            start = position = at + len(token)
        if start < len(text):
            yield text[start:]

    def starts(self, text: str) -> list[int]:
        """Every index at which a token begins, inside another one too."""
        if self._opening is None:
            return []
        found: list[int] = []
        position = 0
        while match := self._opening.search(text, position):
            if self._longest(text, match.start(), ()) is not None:
                found.append(match.start())
            position = match.start() + 1
        return found

    def _longest(self, text: str, at: int, refused: Collection[str]) -> str | None:
        for opening in (text[at : at + 2], text[at]):
            for length in self._lengths.get(opening, ()):
                token = text[at : at + length]
                if token in self._ids and token not in refused:
                    return token
        return None


class ControlTextGuard:
    """Marks control-token text in what a user wrote, so that it stays text when a template has put it into a prompt.

    The mark is a character that occurs nowhere else; it is taken out again before anything is encoded.  It stands
    before every place of the content at which a structural token begins, or might begin together with what the template
    puts behind the content, and before the content if that might complete a token that the template began.  So a token
    found in the prompt was written by the template alone.
    """

    def __init__(self, structural: frozenset[str]) -> None:
        self.structural = structural
        self._finder = TokenFinder(dict.fromkeys(structural, 0))
        self._longest = max(map(len, structural), default=0)

    @cached_property
    def _sorted(self) -> list[str]:
        return sorted(self.structural)

    @cached_property
    def _sorted_reversed(self) -> list[str]:
        return sorted(text[::-1] for text in self.structural)

    @cached_property
    def _joined(self) -> str:
        return "\0".join(self.structural)

    def marked(self, content: str, mark: str) -> str:
        """The content with its marks."""
        if not content or not self.structural:
            return content
        places = set(self._finder.starts(content))
        places.update(self._open_ends(content))
        if self._may_complete(content):
            places.add(0)
        if not places:
            return content
        pieces: list[str] = []
        start = 0
        for place in sorted(places):
            pieces += (content[start:place], mark)
            start = place
        return "".join((*pieces, content[start:]))

    def _open_ends(self, content: str) -> Iterator[int]:
        """Where the content ends with the beginning of a token."""
        for place in range(max(0, len(content) - self._longest + 1), len(content)):
            if _some_begins_with(self._sorted, content[place:]):
                yield place

    def _may_complete(self, content: str) -> bool:
        """Does the content begin with the end of a token, or lie inside one?"""
        if len(content) < self._longest and content in self._joined:
            return True
        opening = content[: self._longest - 1][::-1]
        return any(_some_begins_with(self._sorted_reversed, opening[place:]) for place in range(len(opening)))


def _some_begins_with(texts: list[str], beginning: str) -> bool:
    place = bisect_left(texts, beginning)
    return place < len(texts) and texts[place].startswith(beginning)
