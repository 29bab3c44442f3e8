"""The chat itself: transcript, input, status line.

Owns the layout and turns what the controller says into widgets, and what the user does into calls of the controller.
Every rule stands there.
"""

from __future__ import annotations

from typing import ClassVar

from textual import events as textual_events
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import Markdown

from app.chat.controller import ChatController
from app.chat.conversation import Conversation, Turn
from app.chat.engine_port import LoadStep, ModelFacts, Role
from app.chat.events import Mailbox, WindowFull
from app.chat.messages import PromptEdited, PromptSubmitted, WindowAnswered
from app.chat.screens.conversations import ConversationsScreen
from app.chat.screens.keys import KeysScreen
from app.chat.status import StatusFigures
from app.chat.store import ConversationLine
from app.chat.widgets.note_line import NoteLine
from app.chat.widgets.prompt import Prompt
from app.chat.widgets.status_bar import StatusBar
from app.chat.widgets.transcript import Transcript
from app.chat.widgets.window_question import WindowQuestion

_FRAME_S = 1 / 30
_LINKS = ("http://", "https://", "mailto:")
_WIDE_ENOUGH = 60


class ChatScreen(Screen[None]):
    """One chat window."""

    AUTO_FOCUS = "Prompt"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "stop", "Stop the reply", priority=True),
        Binding("ctrl+n", "new_conversation", "New conversation", priority=True),
        Binding("ctrl+o", "conversations", "Conversations", priority=True),
        Binding("ctrl+r", "regenerate", "Another reply", priority=True),
        Binding("ctrl+g", "go_on", "Go on with the reply", priority=True),
        Binding("ctrl+t", "toggle_thinking", "Open or fold the thinking", priority=True),
        Binding("f1", "keys", "Keys", priority=True),
        Binding("pageup", "scroll_page(-1)", "Up a page", priority=True, show=False),
        Binding("pagedown", "scroll_page(1)", "Down a page", priority=True, show=False),
        Binding("ctrl+home", "scroll_top", "To the beginning", priority=True, show=False),
        Binding("ctrl+end", "scroll_bottom", "To the end", priority=True, show=False),
    ]

    def __init__(self, *, model: str, mailbox: Mailbox) -> None:
        super().__init__()
        self._mailbox = mailbox
        self._controller: ChatController | None = None
        self._frames: Timer | None = None
        self._transcript = Transcript(model)
        self._question = WindowQuestion()
        self._note = NoteLine()
        self._prompt = Prompt()
        self._status = StatusBar()

    @property
    def controller(self) -> ChatController:
        """The rules behind this screen."""
        assert self._controller is not None, "attach() comes first"
        return self._controller

    def attach(self, controller: ChatController) -> None:
        """Says which rules stand behind this screen."""
        self._controller = controller

    def compose(self) -> ComposeResult:
        yield self._transcript
        yield self._question
        yield self._note
        yield self._prompt
        yield self._status

    def on_mount(self) -> None:
        self._frames = self.set_interval(_FRAME_S, self._frame)
        # The screen stands before anything is loaded.
        self.call_after_refresh(self.controller.start)

    def on_resize(self, event: textual_events.Resize) -> None:
        is_wide = event.size.width >= _WIDE_ENOUGH
        self._prompt.border_subtitle = "Enter sends · Ctrl+J new line · F1 keys" if is_wide else "F1 keys"

    def wake(self) -> None:
        """Something came while nothing was expected."""
        if self._frames is not None:
            self._frames.resume()

    def _frame(self) -> None:
        has_come = self.controller.tick()
        if not has_come and not self.controller.is_busy and self._frames is not None and self._mailbox.sleep():
            self._frames.pause()

    # What the user does.

    def on_prompt_submitted(self, message: PromptSubmitted) -> None:
        self._note.clear()
        if self.controller.submit(message.text):
            self._prompt.sent()
            self.wake()

    def on_prompt_edited(self, message: PromptEdited) -> None:
        self.controller.set_draft(message.text)
        self.wake()

    def on_window_answered(self, message: WindowAnswered) -> None:
        if message.drops_oldest:
            self.controller.drop_oldest()
        else:
            self.controller.leave_window()
        self.wake()

    def on_markdown_link_clicked(self, event: Markdown.LinkClicked) -> None:
        event.stop()
        if event.href.lower().startswith(_LINKS):
            self.app.open_url(event.href)
        else:
            self.show_note(f"Not opened, since it is no web address: {event.href}", is_warning=True)

    def action_stop(self) -> None:
        """Stops the reply, if one is being written, and takes the note away."""
        self._note.clear()
        self.controller.stop()
        self.wake()

    def action_new_conversation(self) -> None:
        """Leaves this conversation for an empty one."""
        self.keep_draft()
        self.controller.new_conversation()
        self.wake()

    def keep_draft(self) -> None:
        """Takes in what stands in the input now: word of the last key may still be on its way."""
        self.controller.set_draft(self._prompt.text)

    def action_conversations(self) -> None:
        """Shows the list of conversations."""
        self.controller.list_conversations()
        self.wake()

    def action_regenerate(self) -> None:
        """Asks for another reply to the last question."""
        if self.controller.regenerate():
            self._note.clear()
            self.wake()

    def action_go_on(self) -> None:
        """Goes on with a reply that was stopped, cut off or broken off."""
        if self.controller.go_on():
            self._note.clear()
            self.wake()

    def action_copy_reply(self) -> None:
        """Copies the latest reply, as the model wrote it."""
        replies = [turn.text for turn in self.controller.conversation.turns if turn.role is Role.ASSISTANT]
        if replies:
            self.app.copy_to_clipboard(replies[-1])
            self.show_note("The reply was copied.")

    def action_toggle_thinking(self) -> None:
        """Opens or folds the thinking of the latest reply."""
        if (reply := self._transcript.last_reply) is not None:
            reply.toggle_thinking()

    def action_keys(self) -> None:
        """Shows what the keys do."""
        self.app.push_screen(KeysScreen())

    def action_scroll_page(self, direction: int) -> None:
        """Scrolls the conversation."""
        if direction < 0:
            self._transcript.scroll_page_up(animate=False)
        else:
            self._transcript.scroll_page_down(animate=False)

    def action_scroll_top(self) -> None:
        """Goes to the beginning, drawing what was left out."""
        if self._transcript.hides_turns:
            reply = self.controller.active_turn_id
            self._transcript.show(self.controller.conversation, live_turn_id=reply, whole=True)
        self._transcript.scroll_home(animate=False)

    def action_scroll_bottom(self) -> None:
        """Goes to the end and follows it."""
        self._transcript.anchor()

    # What the controller says.

    def show_load_step(self, step: LoadStep) -> None:
        self._transcript.model_panel.show_step(step)

    def show_ready(self, facts: ModelFacts) -> None:
        self._transcript.model_panel.show_facts(facts)

    def show_load_failure(self, sentence: str, way_on: str) -> None:
        self._transcript.model_panel.show_failure(sentence, way_on)

    def show_conversation(self, conversation: Conversation) -> None:
        self._note.clear()
        self._transcript.show(conversation)

    def add_turn(self, turn: Turn) -> None:
        self._transcript.add_turn(turn)
        if turn.role is Role.ASSISTANT and self.controller.facts is None and (view := self._transcript.reply(turn.id)):
            view.set_footnote("waiting for the model")

    def remove_turn(self, turn: Turn) -> None:
        self._transcript.remove_turn(turn)

    def grow_reply(self, turn_id: str, text: str, thinking: str) -> None:
        if (view := self._transcript.reply(turn_id)) is not None:
            view.grow(text, thinking)

    @work(group="replies")
    async def end_reply(self, turn: Turn, detail: str) -> None:
        if (view := self._transcript.reply(turn.id)) is not None:
            await view.finish(turn, detail)

    def mark_window_start(self, turn_id: str) -> None:
        self._transcript.mark_window_start(turn_id)

    def ask_about_window(self, window: WindowFull) -> None:
        self._question.ask(window)

    def close_window_question(self) -> None:
        self._question.close()
        self._prompt.focus()

    def show_status(self, figures: StatusFigures) -> None:
        self._status.show(figures)

    def show_note(self, text: str, *, is_warning: bool = False) -> None:
        self._note.show(text, is_warning=is_warning)

    def set_prompts(self, prompts: tuple[str, ...]) -> None:
        self._prompt.earlier_prompts.set_prompts(prompts)

    def set_draft(self, text: str) -> None:
        if text != self._prompt.text:
            self._prompt.set_text(text)

    def show_conversations(self, lines: tuple[ConversationLine, ...]) -> None:
        if not lines:
            self.show_note("There is no earlier conversation yet.")
            return

        def opened(conversation_id: str | None) -> None:
            if conversation_id is not None:
                self.keep_draft()
                self.controller.open_conversation(conversation_id)
                self.wake()

        self.app.push_screen(ConversationsScreen(lines, shown=self.controller.conversation.id), opened)
