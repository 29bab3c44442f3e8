"""What the chat's rules say, shown on the chat's screen.

Owns the translation into widgets, and none of the widgets. What the user does comes in elsewhere (`chat.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from app.chat.attachments import Attachment
from app.chat.conversation import Conversation, Turn
from app.chat.engine_port import LoadStep, ModelFacts, Role
from app.chat.events import ReplyGrew, WindowFull
from app.chat.screens.conversations import ConversationChoice, ConversationsScreen
from app.chat.screens.search import SearchScreen
from app.chat.search import Hit
from app.chat.status import StatusFigures
from app.chat.store_reading import ConversationLine
from app.chat.terminal_driver import TerminalDriver

if TYPE_CHECKING:
    from app.chat.screens.chat import ChatScreen


class ChatDisplay:
    """The chat's `ChatView`: belongs to one screen."""

    def __init__(self, screen: ChatScreen) -> None:
        self._screen = screen
        self._listed: ConversationChoice | None = None

    def begin_load(self, name: str) -> None:
        self._screen.device.passes.clear()
        self._screen.models.desk.take_facts(None)
        self._screen.transcript.begin_load(name)

    def show_load_step(self, step: LoadStep) -> None:
        self._screen.transcript.model_panel.show_step(step)

    def show_ready(self, facts: ModelFacts) -> None:
        self._screen.models.desk.take_facts(facts)
        self._screen.transcript.model_panel.show_facts(facts)
        self._screen.models.note_ready()
        if self._screen.device.is_open:
            self._screen.models.measure()

    def show_change(self, facts: ModelFacts) -> None:
        self._screen.models.desk.change_facts(facts)
        self._screen.device.passes.clear()
        self._screen.transcript.model_panel.show_facts(facts)
        if self._screen.device.is_open:
            self._screen.models.measure()

    def show_load_failure(self, sentence: str, way_on: str) -> None:
        keys = (
            f"{self._screen.keys.hint('models')} chooses another model, {self._screen.keys.hint('settings')} other "
            f"settings, {self._screen.keys.hint('quit')} leaves. Earlier conversations can be read: "
            f"{self._screen.keys.hint('open')}."
        )
        self._screen.transcript.model_panel.show_failure(sentence, way_on, keys)
        self._screen.models.welcome(f"{sentence} {way_on}")

    def show_conversation(self, conversation: Conversation) -> None:
        self._screen.note.clear()
        if self._screen.editing.is_on:
            self._screen.editing.set_aside()
        self._screen.transcript.show(conversation, places=self._screen.controller.places)

    def add_turn(self, turn: Turn) -> None:
        self._screen.device.passes.begin()
        if self._screen.transcript.num_behind:
            self._screen.portions.end()
        else:
            self._screen.transcript.add_turn(turn)
        waits = turn.role is Role.ASSISTANT and self._screen.controller.facts is None
        if waits and (view := self._screen.transcript.reply(turn.id)) is not None:
            view.set_footnote("waiting for the model")

    def remove_turn(self, turn: Turn) -> None:
        self._screen.transcript.remove_turn(turn)

    def grow_reply(self, turn_id: str, text: str, thinking: str) -> None:
        if (view := self._screen.transcript.reply(turn_id)) is not None:
            view.grow(text, thinking)

    def follow_tokens(self, piece: ReplyGrew) -> None:
        self._screen.device.follow(piece)

    def end_reply(self, turn: Turn, detail: str) -> None:
        if self._screen.is_attached:  # Nothing is drawn once the chat has been left.
            self._screen.run_worker(self._finish_reply(turn, detail), group="replies")

    async def _finish_reply(self, turn: Turn, detail: str) -> None:
        self._screen.device.passes.pause()
        if (view := self._screen.transcript.reply(turn.id)) is not None:
            await view.finish(turn, detail)

    def mark_places(self, places: Mapping[str, tuple[int, int]]) -> None:
        self._screen.transcript.mark_places(places)

    def mark_window_start(self, turn_id: str) -> None:
        self._screen.transcript.mark_window_start(turn_id)

    def ask_about_window(self, window: WindowFull) -> None:
        self._screen.question.ask(window)
        self._screen.models.reckon_larger_window(window)

    def close_window_question(self) -> None:
        self._screen.question.close()
        self._screen.prompt.focus()

    def show_status(self, figures: StatusFigures) -> None:
        self._screen.status.show(figures)
        self._screen.used_tokens = self._screen.device.position = figures.used_tokens

    def show_note(self, text: str, *, is_warning: bool = False) -> None:
        self._screen.show_note(text, is_warning=is_warning)

    def set_prompts(self, prompts: tuple[str, ...]) -> None:
        self._screen.prompt.earlier_prompts.set_prompts(prompts)

    def set_draft(self, text: str) -> None:
        if text != self._screen.prompt.text:
            self._screen.prompt.set_text(text)

    def resume_edit(self, turn: Turn, text: str) -> None:
        self._screen.editing.begin(turn, text)

    def show_title(self, title: str) -> None:
        self._screen.prompt.show_title(title)
        if isinstance(driver := self._screen.app._driver, TerminalDriver):
            driver.show_title(title)

    def show_conversations(self, lines: tuple[ConversationLine, ...]) -> None:
        if not lines:
            self.show_note("There is no earlier conversation yet.")
            return

        def chosen(choice: ConversationChoice | None) -> None:
            if choice is not None:
                self._listed = choice if choice.place is not None else None
                self._screen.keep_draft()
                choice.act(self._screen.controller)
                self._screen.wake()

        if isinstance(self._screen.app.screen, ConversationsScreen):
            return  # It was asked for twice.
        rules = self._screen.controller
        listed, self._listed = self._listed, None
        place = listed.place_in(lines) if listed is not None else 0
        screen = ConversationsScreen(lines, shown=rules.conversation.id, place=place)
        self._screen.app.push_screen(screen, chosen)

    def show_attachments(self, attachments: tuple[Attachment, ...]) -> None:
        self._screen.attachments.show(attachments)

    def go_to_turn(self, turn_id: str) -> None:
        self._screen.portions.go_to(turn_id)

    def show_hits(self, text: str, hits: tuple[Hit, ...]) -> None:
        if isinstance(self._screen.app.screen, SearchScreen):
            self._screen.app.screen.show_hits(text, hits)
