"""What is to be written of a conversation: changes that can be joined, taken apart, and made whole.

Owns their arithmetic. Knows nothing of files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from app.chat.conversation import Conversation, Turn


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What of a conversation is to be written: itself, turns by their ids, ids of turns that go, what is attached.

    `is_deleted` and `is_pinned` (of one that is not shown): None for no change.
    """

    conversation_id: str
    conversation: Conversation | None = None
    turns: Mapping[str, Turn] = field(default_factory=dict)
    removed: frozenset[str] = frozenset()
    has_attachments: bool = False
    is_deleted: bool | None = None
    is_pinned: bool | None = None

    def followed_by(self, later: Changes) -> Changes:
        """These changes and then the later ones, as one."""
        is_gone_on_with = bool(later.turns) and self.is_deleted is not None
        is_deleted = False if is_gone_on_with else self.is_deleted
        return Changes(
            conversation_id=self.conversation_id,
            conversation=later.conversation or self.conversation,
            turns={key: turn for key, turn in self.turns.items() if key not in later.removed} | dict(later.turns),
            removed=(self.removed - later.turns.keys()) | later.removed,
            has_attachments=self.has_attachments or later.has_attachments,
            is_deleted=is_deleted if later.is_deleted is None else later.is_deleted,
            is_pinned=self.is_pinned if later.is_pinned is None else later.is_pinned,
        )

    @property
    def pieces(self) -> list[Changes]:
        """The same, each turn by itself."""
        rest = replace(self, turns={})
        alone = [replace(self, turns={key: turn}, removed=frozenset()) for key, turn in self.turns.items()]
        return [rest, *alone] if len(alone) > 1 else [self]

    @property
    def whole(self) -> Changes:
        """The same with all of the conversation, for a file that has nothing of it."""
        if self.conversation is None:
            return self
        turns = {turn.id: turn for turn in self.conversation.all_turns} | dict(self.turns)
        return replace(self, turns=turns, has_attachments=True)
