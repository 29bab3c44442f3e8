"""A conversation in memory: turns, how each one ended, and what of it the model is to see.

Owns the rules of the prompt (which turns are in the window, how a stopped reply is closed) and of titles. Knows
nothing of the screen, of SQLite or of the engine's threads.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import groupby

from app.chat.attachments import Attachment, prompt_text
from app.chat.engine_port import EndReason, PromptTurn, ReplyFigures, Role
from app.chat.plain_text import one_line, shortened

_TITLE_LENGTH = 60


class TurnState(StrEnum):
    """How far a turn came. PARTIAL: being written when the program ended; EDITED: the user changed what was said.

    ELSEWHERE: another window writes it right now; on disk it is partial.
    """

    FINISHED = "finished"
    PARTIAL = "partial"
    STOPPED = "stopped"
    LENGTH = "length"
    WINDOW = "window"
    FAILED = "failed"
    EDITED = "edited"
    ELSEWHERE = "elsewhere"


STATE_OF_END = {
    EndReason.STOP: TurnState.FINISHED,
    EndReason.LENGTH: TurnState.LENGTH,
    EndReason.CANCELLED: TurnState.STOPPED,
    EndReason.WINDOW: TurnState.WINDOW,
    EndReason.FAILED: TurnState.FAILED,
}


def new_id() -> str:
    """A name for a conversation or a turn that no other window will choose."""
    return uuid.uuid4().hex


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One turn. `ids` are the model's own tokens, valid for the vocabulary named beside them only."""

    id: str = field(default_factory=new_id)
    parent: str | None = None
    role: Role
    text: str
    thinking: str = ""
    ids: tuple[int, ...] | None = None
    vocabulary: str = ""
    model: str = ""
    state: TurnState = TurnState.FINISHED
    created_at: float = field(default_factory=time.time)
    figures: ReplyFigures | None = None
    attachments: tuple[Attachment, ...] = ()

    @property
    def can_go_on(self) -> bool:
        """Whether it is a reply that did not come to its end and has something to go on from."""
        is_done = self.state in (TurnState.FINISHED, TurnState.ELSEWHERE)
        is_unfinished = self.role is Role.ASSISTANT and not is_done
        return is_unfinished and bool(self.ids or self.text.strip())

    def ids_for(self, vocabulary: str) -> tuple[int, ...]:
        """Its tokens, where they are known and hold for this vocabulary."""
        return self.ids if self.ids is not None and self.vocabulary == vocabulary else ()


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """Turns from the first to the one shown last (`leaf` of the tree of turns), the system prompt, the draft.

    `others` are the turns of the branches that are not shown, in the order they were written. `window_start` names
    the first turn that the model still sees; None: all of them. `summary` says what was said before that one, where
    the user had it summarised. `attachments` go with the draft. `edit` is the text so far of an edit of the turn
    `edited` that was not saved yet.
    """

    id: str = field(default_factory=new_id)
    title: str = ""
    system: str = ""
    model: str = ""
    turns: tuple[Turn, ...] = ()
    others: tuple[Turn, ...] = ()
    is_pinned: bool = False
    window_start: str | None = None
    summary: str = ""
    draft: str = ""
    edited: str | None = None
    edit: str = ""
    attachments: tuple[Attachment, ...] = ()
    created_at: float = field(default_factory=time.time)

    @property
    def leaf(self) -> str | None:
        """The id of the last turn."""
        return self.turns[-1].id if self.turns else None

    @property
    def all_turns(self) -> tuple[Turn, ...]:
        """The turns of every branch, in the order they were written."""
        return tuple(sorted((*self.others, *self.turns), key=lambda turn: turn.created_at))

    @property
    def first_seen(self) -> int:
        """The index of the first turn in the window."""
        return next((index for index, turn in enumerate(self.turns) if turn.id == self.window_start), 0)

    def with_turn(self, turn: Turn) -> Conversation:
        """The conversation with this turn in place of the one of the same id, or behind the last."""
        if any(known.id == turn.id for known in self.turns):
            return replace(self, turns=tuple(turn if known.id == turn.id else known for known in self.turns))
        words = turn.text if turn.text.strip() or not turn.attachments else turn.attachments[0].name
        title = self.title or (title_of(words) if turn.role is Role.USER else "")
        return replace(self, turns=(*self.turns, turn), title=title)

    def without_last(self) -> Conversation:
        """The conversation without its last turn, which stays as another branch."""
        return replace(self, turns=self.turns[:-1], others=(*self.others, *self.turns[-1:]))


SUMMARY_HEAD = "What was said before, in short:"


def title_of(text: str) -> str:
    """The first words of a message, as one line."""
    return shortened(one_line(text[: 4 * _TITLE_LENGTH]), _TITLE_LENGTH)


def prompt_turns(conversation: Conversation, vocabulary: str, *, first: int | None = None) -> list[PromptTurn]:
    """What the model is to see: the system prompt, then the turns of the window (or from the index `first` on).

    A stopped or failed reply stays a turn of its own, empty if need be: the template closes it, so that the next
    answer is to the next question. A reply with a thinking block goes back without it and without its ids. Where a
    turn between them was removed, turns of one speaker go back as one: templates want speakers to take turns.
    """
    start = conversation.first_seen if first is None else first
    words = conversation.system
    if conversation.summary and conversation.first_seen:
        words = f"{words}\n\n{SUMMARY_HEAD}\n{conversation.summary}".strip()
    system = [PromptTurn(role=Role.SYSTEM, text=words)] if words else []
    shown = [_prompt_turn(turn, vocabulary) for turn in conversation.turns[start:]]
    spoken = [list(run) for _, run in groupby(shown, lambda turn: turn.role)]
    return system + [run[0] if len(run) == 1 else _as_one(run) for run in spoken]


def _as_one(run: Sequence[PromptTurn]) -> PromptTurn:
    return PromptTurn(role=run[0].role, text="\n\n".join(filter(None, (turn.text for turn in run))))


def _prompt_turn(turn: Turn, vocabulary: str) -> PromptTurn:
    ids_hold = turn.ids is not None and turn.vocabulary == vocabulary and not turn.thinking
    text = prompt_text(turn.text, turn.attachments)
    return PromptTurn(role=turn.role, text=text, ids=turn.ids if ids_hold else None)


def droppable_starts(turns: Sequence[Turn], first_seen: int) -> list[int]:
    """The indexes at which a smaller window may begin: user turns behind the first one seen, oldest first."""
    return [index for index in range(first_seen + 1, len(turns)) if turns[index].role is Role.USER]
