"""The reply that is being written, as far as it has come.

Owns the gathering of its pieces. Knows nothing of who writes it or where it is shown and kept.
"""

from __future__ import annotations

from dataclasses import replace

from app.chat.conversation import STATE_OF_END, Turn, TurnState
from app.chat.engine_port import ModelFacts, ReplyEnd
from app.chat.events import ReplyGrew
from app.chat.speed import SpeedMeter


class ActiveReply:
    """Gathers pieces behind what the turn has already; `snapshot` is the turn they make so far."""

    def __init__(self, turn: Turn) -> None:
        self.turn_id = turn.id
        self.speed = SpeedMeter()
        self._read_tokens = 0
        self._tokens_before = 0
        self.prefill: tuple[int, int] | None = None
        self.has_begun = False
        self.is_stopping = False
        self.is_changed = False
        self._turn = turn
        self._text: list[str] = [turn.text]
        self._thinking: list[str] = [turn.thinking]
        self._ids: list[int] = list(turn.ids or ())
        # Of what the user edited nobody knows the tokens.
        self._knows_ids = turn.ids is not None or not turn.text

    @property
    def text(self) -> str:
        """The answer so far."""
        return "".join(self._text)

    def ids_for(self, vocabulary: str) -> tuple[int, ...]:
        """The tokens it has so far, where all are known and hold for this vocabulary."""
        is_same = self._turn.vocabulary in ("", vocabulary)
        return tuple(self._ids) if self._knows_ids and is_same else ()

    def answered_by(self, facts: ModelFacts) -> None:
        """Notes which model writes it on, from now."""
        self.speed.pause()
        self._knows_ids = self._knows_ids and (not self._ids or self._turn.vocabulary == facts.vocabulary)
        self._turn = replace(self._turn, model=facts.name, vocabulary=facts.vocabulary)

    def begin(self, read_tokens: int) -> None:
        """The model reads so many tokens first: the prompt, and what the reply has already."""
        self._read_tokens, self._tokens_before = read_tokens, self.speed.num_tokens

    @property
    def used_tokens(self) -> int:
        """Tokens of the window that are taken by now."""
        return self._read_tokens + self.speed.num_tokens - self._tokens_before

    def grow(self, piece: ReplyGrew) -> None:
        """Takes in what came."""
        self.has_begun = self.is_changed = True
        self.speed.add(len(piece.token_ids), piece.at_s)
        self._text.append(piece.text)
        self._thinking.append(piece.thinking)
        self._ids.extend(piece.token_ids)

    def snapshot(self, state: TurnState = TurnState.PARTIAL) -> Turn:
        """The turn as it stands."""
        ids = tuple(self._ids) if self._knows_ids else None
        return replace(self._turn, text=self.text, thinking="".join(self._thinking), ids=ids, state=state)

    def ended(self, end: ReplyEnd) -> Turn:
        """The turn as it will stay."""
        return replace(self.snapshot(STATE_OF_END[end.reason]), figures=end.figures)
