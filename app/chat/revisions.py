"""What the user does to a conversation that stands already: edit, branch, walk its branches, remove a turn, rename,
pin, delete, undo.

Owns the steps that can be undone. Nothing is overwritten: an edited turn is a new one beside the old, on a branch of
its own; a turn that is removed is gone from the file, and kept here for undo. Knows the rules of replies through the
controller, the screen not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from app.chat.attachments import Attachment
from app.chat.branches import ending_at, showing, siblings, with_again, without
from app.chat.conversation import Conversation, Turn, TurnState, title_of
from app.chat.engine_port import Role
from app.chat.library import Library
from app.chat.recorder import Recorder

_MAX_STEPS = 100


class Desk(Protocol):
    """What is shown, as the revisions change it."""

    @property
    def conversation(self) -> Conversation: ...
    def show_changed(self, conversation: Conversation) -> None: ...
    def keep_turn(self, turn: Turn) -> None: ...
    def answer(self, question: Turn) -> None: ...
    def new_conversation(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class _Step:
    """Something that can be undone: in which conversation (None: in any), what it is called, and how."""

    conversation_id: str | None
    title: str
    undo: Callable[[], None]


class Revisions:
    """Changes the shown conversation, and takes changes back."""

    def __init__(self, desk: Desk, library: Library, recorder: Recorder) -> None:
        self._desk = desk
        self._library = library
        self._recorder = recorder
        self._steps: list[_Step] = []

    def remember(self, title: str, *, draft: str = "", attachments: tuple[Attachment, ...] = ()) -> None:
        """The shown conversation is about to change: notes how it stands.

        draft, attachments: what to put back into the input.
        """
        before = self._desk.conversation
        self._add(before.id, title, lambda: self._desk.show_changed(self._as_before(before, draft, attachments)))

    def remember_step(self, title: str, undo: Callable[[], None]) -> None:
        """Something beside the conversations was changed, and can be taken back."""
        self._add(None, title, undo)

    def edit(self, turn: Turn, text: str) -> None:
        """Puts a turn with this text beside the other. To a question there is a new answer; a reply ends the branch."""
        self.remember(f"the edit of {title_of(turn.text)}")
        conversation = ending_at(self._desk.conversation, turn.parent)
        if turn.role is Role.USER:
            edited = Turn(parent=turn.parent, role=turn.role, text=text, attachments=turn.attachments)
            self._desk.show_changed(conversation.with_turn(edited))
            self._desk.answer(edited)
        else:
            edited = Turn(parent=turn.parent, role=turn.role, text=text, model=turn.model, state=TurnState.EDITED)
            self._desk.show_changed(conversation.with_turn(edited))
            self._desk.keep_turn(edited)

    def branch(self, turn_id: str) -> None:
        """Goes back to this turn: what is sent next follows it. The turns behind it stay as another branch."""
        self.remember("the branch")
        self._desk.show_changed(ending_at(self._desk.conversation, turn_id))

    def show(self, turn_id: str) -> None:
        """Shows the branch that goes through this turn."""
        self.remember("the change of branch")
        self._desk.show_changed(showing(self._desk.conversation, turn_id))

    def step(self, turn: Turn, direction: int) -> bool:
        """Shows the turn that stands beside this one, in its place; False where there is none."""
        same_place = siblings(self._desk.conversation, turn)
        if len(same_place) < 2:
            return False
        place = [other.id for other in same_place].index(turn.id)
        self.show(same_place[(place + direction) % len(same_place)].id)
        return True

    def rename(self, title: str) -> None:
        """Gives the conversation another title."""
        self.remember("the renaming")
        self._desk.show_changed(replace(self._desk.conversation, title=title_of(title)))

    def pin(self, conversation_id: str, *, is_pinned: bool) -> None:
        """Pins a conversation to the head of the list, or lets it go."""

        def put(is_so: bool) -> None:
            shown = self._desk.conversation
            if shown.id == conversation_id:
                self._desk.show_changed(replace(shown, is_pinned=is_so))
            else:
                self._recorder.set_pinned(conversation_id, is_pinned=is_so)

        put(is_pinned)
        self._add(None, "the pinning", lambda: put(not is_pinned))

    def delete(self, conversation_id: str, title: str) -> None:
        """Deletes a conversation; leaves it first where it is the one shown."""
        was_shown = conversation_id == self._desk.conversation.id
        if was_shown:
            self._desk.new_conversation()
        self._recorder.set_deleted(conversation_id, is_deleted=True)

        def bring_back() -> None:
            self._recorder.set_deleted(conversation_id, is_deleted=False)
            if was_shown:
                self._library.open(conversation_id, note=f"Taken back: the deletion of {title!r}.")

        self._add(None, f"the deletion of {title!r}", bring_back)

    def remove(self, turn: Turn) -> None:
        """Takes one turn out of the conversation, for good unless that is undone; what followed it stays."""
        before = self._desk.conversation
        followers = [other.id for other in before.all_turns if other.parent == turn.id]

        def moved(conversation: Conversation) -> list[Turn]:
            return [other for other in conversation.all_turns if other.id in followers]

        def bring_back() -> None:
            again = with_again(self._desk.conversation, turn, followers, before.leaf)
            again = replace(again, window_start=before.window_start)
            self._recorder.save_turns(again, [turn, *moved(again)])
            self._desk.show_changed(again)

        after = without(before, turn)
        self._recorder.remove_turn(after, turn.id, moved(after))
        self._desk.show_changed(after)
        self._add(before.id, f"the removal of {title_of(turn.text)}", bring_back)

    def undo(self) -> str | None:
        """Takes the latest step back and says which; None where there is none to take back in what is shown."""
        shown = self._desk.conversation.id
        for place in range(len(self._steps) - 1, -1, -1):
            step = self._steps[place]
            if step.conversation_id in (None, shown):
                del self._steps[place]
                step.undo()
                return step.title
        return None

    def _add(self, conversation_id: str | None, title: str, undo: Callable[[], None]) -> None:
        self._steps.append(_Step(conversation_id=conversation_id, title=title, undo=undo))
        del self._steps[:-_MAX_STEPS]

    def _as_before(self, before: Conversation, draft: str, attachments: tuple[Attachment, ...]) -> Conversation:
        """What stood before, with every turn that was written since kept as another branch, and today's draft."""
        now = self._desk.conversation
        newest = {turn.id: turn for turn in (*before.all_turns, *now.all_turns)}
        leaf = before.leaf
        whole = replace(
            before,
            turns=(),
            others=tuple(newest.values()),
            draft=now.draft or draft,
            attachments=now.attachments or attachments,
            edited=now.edited,
            edit=now.edit,
        )
        return ending_at(whole, leaf)
