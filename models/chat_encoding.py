"""From a chat to the ids of a prompt.

Owns what keeps a prompt sound: what a user typed never becomes a control token, there is one BOS, and the model's own
turns keep the ids that it generated, so that the next prompt begins with all of the last one.  Does not know how a
template renders or how text is merged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from models.chat_template import ChatTemplate, Message, Rendered, RenderOptions
from models.errors import TemplateError
from models.special_tokens import STRUCTURAL_TAGS, ControlTextGuard, structural_texts
from models.vocabulary import Vocabulary

if TYPE_CHECKING:
    from datetime import datetime

NO_TEMPLATE_NOTE = (
    "This model has no chat template (it is a base model): it is given the messages as plain text, and goes on from "
    "there without knowing who speaks."
)
_BETWEEN_PLAIN_TURNS = "\n\n"
# Code points that are reserved for a program's own use and are no characters.
_NONCHARACTERS = tuple(map(chr, range(0xFDD0, 0xFDF0)))


@dataclass(frozen=True, kw_only=True)
class EncodedChat:
    """A prompt.

    text: as the template wrote it (a thinking block may be open at its end).  end_ids: tokens that end the answer, the
    vocabulary's and the template's.  notes: sentences for the user.
    """

    ids: tuple[int, ...]
    text: str
    end_ids: frozenset[int]
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class _Marks:
    """Characters that occur nowhere in the chat or the template."""

    guard: str
    open: str
    close: str

    def wrapped(self, idx: int, content: str) -> str:
        """The content of turn idx, such that it can be found in the prompt."""
        return f"{self.open}{idx}{self.open}{content}{self.close}"

    @cached_property
    def turn(self) -> re.Pattern[str]:
        """A wrapped content: the turn's index and the content."""
        return re.compile(f"{self.open}([0-9]+){self.open}([^{self.close}]*){self.close}")

    def unescaped(self, text: str) -> str:
        """The text with marks that a template wrote as JSON escapes made characters again."""
        for mark in (self.guard, self.open, self.close):
            text = text.replace(f"\\u{ord(mark):04x}", mark)
        return text

    def removed(self, text: str) -> str:
        """The text as it is without marks."""
        return self.turn.sub(lambda found: found[2], text).replace(self.guard, "")


@dataclass(frozen=True, kw_only=True)
class _OwnTurn:
    """Ids that the model generated; end_id is the one that ended the turn, if it is known."""

    ids: tuple[int, ...]
    end_id: int | None


class ChatEncoder:
    """Encodes chats for one vocabulary and template (None: a base model)."""

    def __init__(self, vocabulary: Vocabulary, template: ChatTemplate | None) -> None:
        self._vocabulary = vocabulary
        self._template = template
        source = None if template is None else template.source
        structural = structural_texts(vocabulary.control_ids, vocabulary.user_defined_ids, source)
        self._guard = ControlTextGuard(structural)
        # Templates look for the thinking in an answer, and what stands there was not typed by the user.
        self._reply_guard = ControlTextGuard(structural - STRUCTURAL_TAGS)

    @cached_property
    def end_ids(self) -> frozenset[int]:
        """Tokens that end an answer: those of the vocabulary, and the one with which the template closes an answer."""
        after = "" if self._template is None else self._template.after_reply.lstrip()
        first = next(self._vocabulary.split_special(after, guard="", guarded=()), "")
        if isinstance(first, int) and self._vocabulary.token_text(first) in self._guard.structural:
            return self._vocabulary.end_ids | {first}
        return self._vocabulary.end_ids

    def encode(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        enable_thinking: bool | None = None,
        date: datetime | None = None,
        variables: Mapping[str, Any] | None = None,
        parse_control_text: bool = False,
    ) -> EncodedChat:
        """The prompt for these messages; a last message of the assistant is gone on from.

        variables: others that the template may read.  parse_control_text: control-token text in the messages becomes
        that token.  Raises TemplateError as
        ChatTemplate.render does.
        """
        source = "" if self._template is None else self._template.source
        marks = _free_marks((source, f"{tools}{variables}", *(message.content for message in messages)))
        own = {idx: turn for idx, message in enumerate(messages) if (turn := self._own_turn(message))}
        if not parse_control_text:
            messages = [self._guarded(message, marks) for message in messages]
            tools = _mapped(tools, lambda text: self._guard.marked(text, marks.guard))
            variables = _mapped(variables, lambda text: self._guard.marked(text, marks.guard))
        if self._template is None:
            rendered = _as_plain_text(messages, marks, own)
        else:
            options = RenderOptions(tools=tools, enable_thinking=enable_thinking, date=date, variables=variables or {})
            rendered = _Prompts(self._template, messages, marks, add_generation_prompt, options).with_turns(own)
        ids = self._vocabulary.encode_parts(self._parts(rendered.text, marks, own))
        return EncodedChat(
            ids=tuple(self._vocabulary.with_one_bos(ids)),
            text=marks.removed(rendered.text),
            end_ids=self.end_ids,
            notes=rendered.notes,
        )

    def _guarded(self, message: Message, marks: _Marks) -> Message:
        guard = self._reply_guard if message.role == "assistant" else self._guard
        return replace(message, content=guard.marked(message.content, marks.guard))

    def _own_turn(self, message: Message) -> _OwnTurn | None:
        """The message's ids, if they are the tokens of its content (it may have been edited or cut since)."""
        if message.role != "assistant" or not message.ids:
            return None
        ids, end_id = message.ids, None
        if ids[-1] in self.end_ids:
            ids, end_id = ids[:-1], ids[-1]
        if not ids or self._vocabulary.decode(ids).strip() != message.content.strip():
            return None
        return _OwnTurn(ids=ids, end_id=end_id)

    def _parts(self, text: str, marks: _Marks, own: Mapping[int, _OwnTurn]) -> Iterator[str | int]:
        """The prompt as plain stretches, the template's control tokens, and the model's own ids."""
        start = 0
        for found in marks.turn.finditer(text):
            yield from self._template_parts(text[start : found.start()], marks)
            start = found.end()
            turn = own[int(found[1])]
            yield from turn.ids
            if turn.end_id is not None and (closed := self._closing(text[start:], turn.end_id)):
                yield turn.end_id
                start += closed
        yield from self._template_parts(text[start:], marks)

    def _template_parts(self, text: str, marks: _Marks) -> Iterator[str | int]:
        for part in self._vocabulary.split_special(text, guard=marks.guard, guarded=self._guard.structural):
            yield part if isinstance(part, int) else part.replace(marks.guard, "")

    def _closing(self, text: str, end_id: int) -> int:
        """How many characters of a text are blanks and this token, if it begins so."""
        closing = text.lstrip()
        token = self._vocabulary.token_text(end_id)
        return len(text) - len(closing) + len(token) if closing.startswith(token) else 0


class _Prompts:
    """The renderings of one chat, with and without wrapped turns."""

    def __init__(
        self,
        template: ChatTemplate,
        messages: Sequence[Message],
        marks: _Marks,
        add_prompt: bool,
        options: RenderOptions,
    ) -> None:
        self._template = template
        self._messages = messages
        self._marks = marks
        self._add_prompt = add_prompt
        self._options = options

    def with_turns(self, own: Iterable[int]) -> Rendered:
        """The prompt in which as many of the own turns are wrapped as the template leaves whole."""
        plain = self._render(self._messages)
        wrapped = set(own)
        while wrapped:
            messages = [
                replace(message, content=self._marks.wrapped(idx, message.content)) if idx in wrapped else message
                for idx, message in enumerate(self._messages)
            ]
            rendered = self._render(messages)
            whole = {
                int(found[1])
                for found in self._marks.turn.finditer(rendered.text)
                if found[2] == self._messages[int(found[1])].content
            }
            if whole == wrapped:
                # A template that looks into the contents may have written something else around the wrapped ones.
                if not _same_but_blanks(self._marks.removed(rendered.text), self._marks.removed(plain.text)):
                    return plain
                return replace(rendered, text=self._joined(rendered.text, min(wrapped)))
            wrapped &= whole
        return plain

    def _joined(self, text: str, first: int) -> str:
        """The prompt without the blanks that the template has before an answer, but not at the end of a prompt for one.

        The model's own answer began behind that prompt, so its ids hold those blanks, if they are anywhere.
        """
        if first == 0:
            return text
        try:
            prompt = self._render(self._messages[:first], add_prompt=True).text
        except TemplateError:
            return text
        opening = self._marks.open
        begins = text.index(opening)
        gap = text[len(prompt) : begins] if text.startswith(prompt) else ""
        if not gap or not gap.isspace():
            return text
        return re.sub(f"{re.escape(gap)}(?={opening}[0-9]+{opening})", "", text)

    def _render(self, messages: Sequence[Message], *, add_prompt: bool | None = None) -> Rendered:
        rendered = self._template.render_with(
            messages, self._options, add_generation_prompt=self._add_prompt if add_prompt is None else add_prompt
        )
        return replace(rendered, text=self._marks.unescaped(rendered.text))


def _as_plain_text(messages: Sequence[Message], marks: _Marks, own: Iterable[int]) -> Rendered:
    """The contents one after the other: an answer stands right behind what it answers, as the model gave it."""
    pieces: list[str] = []
    for idx, message in enumerate(messages):
        if idx and message.role != "assistant":
            pieces.append(_BETWEEN_PLAIN_TURNS)
        pieces.append(marks.wrapped(idx, message.content) if idx in own else message.content)
    return Rendered(text="".join(pieces), notes=(NO_TEMPLATE_NOTE,))


def _free_marks(texts: Iterable[str]) -> _Marks:
    """Three characters that are in none of the texts, neither as they are nor written as an escape."""
    everything = "\0".join(texts)
    lowered = everything.lower()
    free = (mark for mark in _NONCHARACTERS if mark not in everything and f"{ord(mark):x}" not in lowered)
    try:
        return _Marks(guard=next(free), open=next(free), close=next(free))
    except StopIteration:
        raise TemplateError(
            "The messages use nearly all of the code points U+FDD0 to U+FDEF, which are no characters: remove them."
        ) from None


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """A JSON value with every string in it changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {change(key): _mapped(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_mapped(item, change) for item in value]
    return value


def _same_but_blanks(text: str, other: str) -> bool:
    return "".join(text.split()) == "".join(other.split())
