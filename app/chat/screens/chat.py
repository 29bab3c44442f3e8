"""The chat itself: transcript, input, status line.

Owns the layout and turns what the controller says into widgets, and what the user does into commands. The commands
stand in `app/chat/commands`, the rules behind them in the controller.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from textual import events as textual_events
from textual import work
from textual.app import ComposeResult
from textual.screen import Screen
from textual.timer import Timer

from app.chat.attachments import Attachment
from app.chat.clipboard import clipboard_command, put_into_clipboard
from app.chat.commands.command import Command
from app.chat.commands.key_table import KeyTable
from app.chat.commands.registry import COMMANDS, command_of
from app.chat.commands.slash import PlainMessage, SlashCall, UnknownWord, read_message
from app.chat.completion import file_offers, slash_offers
from app.chat.controller import ChatController
from app.chat.conversation import Conversation, Turn
from app.chat.engine_port import LoadStep, ModelFacts, Role
from app.chat.events import Mailbox, ReplyGrew, WindowFull
from app.chat.messages import (
    LeaveWanted,
    LongTextPasted,
    OfferTaken,
    PromptEdited,
    PromptSubmitted,
    PromptTyped,
    WindowAnswered,
    WindowChoice,
)
from app.chat.model_desk import ModelDesk
from app.chat.plain_text import neutralise
from app.chat.screens.ask import AskScreen
from app.chat.screens.conversations import ConversationChoice, ConversationsScreen
from app.chat.screens.editing import Editing
from app.chat.screens.keys import KeysScreen
from app.chat.screens.model_actions import ModelActions
from app.chat.screens.portions import Portions
from app.chat.screens.search import SearchScreen
from app.chat.search import Hit
from app.chat.status import StatusFigures
from app.chat.store import ConversationLine
from app.chat.view import Phase
from app.chat.widgets.attachment_bar import AttachmentBar
from app.chat.widgets.device_panel import DevicePanel
from app.chat.widgets.near_compositor import NearCompositor
from app.chat.widgets.note_line import NoteLine
from app.chat.widgets.offer_list import OfferList
from app.chat.widgets.prompt import Prompt
from app.chat.widgets.reply_markdown import ReplyMarkdown
from app.chat.widgets.status_bar import StatusBar
from app.chat.widgets.transcript import Transcript
from app.chat.widgets.window_question import WindowQuestion

_FRAME_S = 1 / 30
_LINKS = ("http://", "https://", "mailto:")
_WIDE_ENOUGH = 60


class ChatScreen(Screen[None]):
    """One chat window."""

    AUTO_FOCUS = "Prompt"

    def __init__(self, *, models: ModelDesk, mailbox: Mailbox, keys: KeyTable) -> None:
        super().__init__()
        self._compositor = NearCompositor()
        self._mailbox = mailbox
        self._controller: ChatController | None = None
        self._frames: Timer | None = None
        self.keys = keys
        self.models = ModelActions(self, models)
        self.device = DevicePanel(models)
        self.used_tokens: int | None = None
        self.transcript = Transcript(models.model, top_key=keys.hint("top"), end_key=keys.hint("end"))
        self.portions = Portions(self)
        self.note = NoteLine()
        self.offers = OfferList()
        self.prompt = Prompt(self.offers)
        self.editing = Editing(self.prompt, self._save_edit)
        self._attachments = AttachmentBar()
        self.question = WindowQuestion()
        self._status = StatusBar()
        for command in COMMANDS:
            if not command.is_global and (own := keys.keys_of(command)):
                action = f"command({command.name!r})"
                self._bindings.bind(",".join(own), action, command.title, show=False, priority=True)

    @property
    def controller(self) -> ChatController:
        """The rules behind this screen."""
        assert self._controller is not None, "attach() comes first"
        return self._controller

    def attach(self, controller: ChatController) -> None:
        """Says which rules stand behind this screen."""
        self._controller = controller

    def compose(self) -> ComposeResult:
        yield self.device
        yield self.transcript
        yield self.question
        yield self.note
        yield self.offers
        yield self._attachments
        yield self.prompt
        yield self._status

    def on_mount(self) -> None:
        self._frames = self.set_interval(_FRAME_S, self._frame)
        # The screen stands before anything is loaded.
        self.call_after_refresh(self.controller.start)
        self.models.welcome()
        if self.keys.notes:
            self.show_note("In the settings: " + "; ".join(self.keys.notes), is_warning=True)

    def on_resize(self, event: textual_events.Resize) -> None:
        help_key = f"{self.keys.hint('help')} keys"
        is_wide = event.size.width >= _WIDE_ENOUGH
        self.prompt.border_subtitle = f"Enter sends · Ctrl+J new line · {help_key}" if is_wide else help_key
        self.offers.close()
        self.device.fit(event.size.width)

    def _on_timer_update(self) -> None:
        """Textual's: draws what has changed. Not while the terminal is behind: the screen's thread would have to wait
        for a slow one, and keys with it. The timer goes on, and what has changed meanwhile is drawn in one go."""
        if not getattr(self.app._driver, "is_behind", False):
            super()._on_timer_update()

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
        self.note.clear()
        if self.editing.is_on:
            if message.text.strip():
                self.editing.finish(message.text)
            return
        match read_message(message.text):
            case SlashCall() as call:
                self.prompt.sent()
                self.run(call.command, call.argument)
            case UnknownWord() as unknown:
                self.show_note(unknown.sentence, is_warning=True)
            case PlainMessage() as plain:
                if self.controller.submit(plain.text):
                    self.prompt.sent()
                    self.wake()
                elif self.controller.window.is_open:
                    self.question.take_keys()

    def on_prompt_edited(self, message: PromptEdited) -> None:
        if self.editing.is_on:
            return
        text = self.prompt.text  # Word of an earlier edit may come late.
        self.controller.set_draft(text)
        self.controller.attaching.follow(text)
        before = self.prompt.text_before_cursor
        is_at_end = len(before) == len(text)
        offers = slash_offers(before, self.keys, self._choices) if is_at_end else []
        self.offers.offer(offers or file_offers(before, Path.cwd()), before)
        self.wake()

    def on_long_text_pasted(self, message: LongTextPasted) -> None:
        if self.editing.is_on:
            self.show_note(
                "That is too long to be pasted into a turn; a message can have it beside it.", is_warning=True
            )
        else:
            self.controller.attaching.attach_paste(message.text)
        self.wake()

    def on_leave_wanted(self, message: LeaveWanted) -> None:
        if self.controller.phase is Phase.REPLYING:
            self.show_note(self.controller.refusals.to_change(), is_warning=True)
        else:
            self.action_command("quit")

    def on_offer_taken(self, message: OfferTaken) -> None:
        self.prompt.take(message.offer)

    def _choices(self, command: Command) -> tuple[str, ...]:
        argument = command.argument
        return argument.choices(self) if argument is not None and argument.choices is not None else ()

    def action_command(self, name: str) -> None:
        """A key was pressed that calls this command."""
        if (command := command_of(name)) is not None:
            self.run(command)

    def run(self, command: Command, argument: str = "") -> None:
        """Does what a command says, or says why it can't be done now; asks for an argument that is missing."""
        if not self.editing.is_on:
            self.controller.set_draft(self.prompt.text)
        if sentence := command.refusal(self):
            self.show_note(sentence, is_warning=True)
        elif command.needs_argument and not argument:
            self._ask_argument(command)
        else:
            command.handler(self, argument)
        self.wake()

    def _ask_argument(self, command: Command) -> None:
        assert command.argument is not None, "only a command with an argument needs one"

        def answered(argument: str | None) -> None:
            if argument is not None:
                self.run(command, argument)

        question = command.argument.question or command.title
        self.app.push_screen(AskScreen(question, initial=command.argument.initial(self)), answered)

    def on_window_answered(self, message: WindowAnswered) -> None:
        match message.choice:
            case WindowChoice.DROP:
                self.controller.window.drop_oldest()
            case WindowChoice.SUMMARISE:
                self.controller.window.summarise()
            case WindowChoice.ENLARGE:
                self.models.enlarge_window()
            case WindowChoice.LEAVE:
                self.controller.window.leave()
        self.wake()

    def on_prompt_typed(self, message: PromptTyped) -> None:
        """What is written while a question stands; Enter is then no answer to the question."""
        self.prompt.insert_text(neutralise(message.text))
        self.prompt.focus()

    def on_reply_markdown_link_clicked(self, event: ReplyMarkdown.LinkClicked) -> None:
        event.stop()
        if event.href.lower().startswith(_LINKS):
            self.app.open_url(event.href)
        else:
            self.show_note(f"Not opened, since it is no web address: {event.href}", is_warning=True)

    def copy(self, text: str) -> None:
        """Puts a text into the clipboard: by the terminal (OSC 52), and by the system's own program if there is one."""
        self.app.copy_to_clipboard(text)
        command = clipboard_command(os.environ)
        if command is not None:
            self.run_worker(lambda: put_into_clipboard(command, text), thread=True, group="clipboard")

    def keep_draft(self) -> None:
        """Takes in what stands in the input now: word of the last key may still be on its way."""
        if self.editing.is_on:
            self.editing.leave()
        self.controller.set_draft(self.prompt.text)

    @property
    def can_stop(self) -> bool:
        """Whether there is something that stopping would end or close, and that is not ending already."""
        return self.offers.is_open or self.editing.is_on or self.controller.can_stop

    def _save_edit(self, turn: Turn, text: str) -> None:
        if sentence := self.controller.refusals.to_change():
            self.show_note(sentence, is_warning=True)
        else:
            self.controller.revisions.edit(turn, text)
        self.wake()

    def show_keys(self) -> None:
        """Shows what the keys and commands do."""
        self.app.push_screen(KeysScreen(self.keys))

    # What the controller says.

    def begin_load(self, name: str) -> None:
        self.models.desk.take_facts(None)
        self.transcript.begin_load(name)

    def show_load_step(self, step: LoadStep) -> None:
        self.transcript.model_panel.show_step(step)

    def show_ready(self, facts: ModelFacts) -> None:
        self.models.desk.take_facts(facts)
        self.transcript.model_panel.show_facts(facts)
        self.models.note_ready()
        if self.device.is_open:
            self.models.measure()

    def show_load_failure(self, sentence: str, way_on: str) -> None:
        keys = (
            f"{self.keys.hint('models')} chooses another model, {self.keys.hint('quit')} leaves. "
            f"Earlier conversations can be read: {self.keys.hint('open')}."
        )
        self.transcript.model_panel.show_failure(sentence, way_on, keys)
        self.models.welcome(f"{sentence} {way_on}")

    def show_conversation(self, conversation: Conversation) -> None:
        self.note.clear()
        if self.editing.is_on:
            self.editing.leave()
        self.transcript.show(conversation, places=self.controller.places)

    def add_turn(self, turn: Turn) -> None:
        self.device.passes.begin()
        if self.transcript.num_behind:
            self.portions.end()
        else:
            self.transcript.add_turn(turn)
        if turn.role is Role.ASSISTANT and self.controller.facts is None and (view := self.transcript.reply(turn.id)):
            view.set_footnote("waiting for the model")

    def remove_turn(self, turn: Turn) -> None:
        self.transcript.remove_turn(turn)

    def grow_reply(self, turn_id: str, text: str, thinking: str) -> None:
        if (view := self.transcript.reply(turn_id)) is not None:
            view.grow(text, thinking)

    def follow_tokens(self, piece: ReplyGrew) -> None:
        self.device.follow(piece)

    def end_reply(self, turn: Turn, detail: str) -> None:
        if self.is_attached:  # Nothing is drawn once the chat has been left.
            self._finish_reply(turn, detail)

    @work(group="replies")
    async def _finish_reply(self, turn: Turn, detail: str) -> None:
        self.device.passes.pause()
        if (view := self.transcript.reply(turn.id)) is not None:
            await view.finish(turn, detail)

    def mark_places(self, places: Mapping[str, tuple[int, int]]) -> None:
        self.transcript.mark_places(places)

    def mark_window_start(self, turn_id: str) -> None:
        self.transcript.mark_window_start(turn_id)

    def ask_about_window(self, window: WindowFull) -> None:
        self.question.ask(window)
        self.models.reckon_larger_window(window)

    def close_window_question(self) -> None:
        self.question.close()
        self.prompt.focus()

    def show_status(self, figures: StatusFigures) -> None:
        self._status.show(figures)
        self.used_tokens = self.device.position = figures.used_tokens

    def show_note(self, text: str, *, is_warning: bool = False) -> None:
        self.note.show(text, is_warning=is_warning)

    def set_prompts(self, prompts: tuple[str, ...]) -> None:
        self.prompt.earlier_prompts.set_prompts(prompts)

    def set_draft(self, text: str) -> None:
        if text != self.prompt.text:
            self.prompt.set_text(text)

    def show_conversations(self, lines: tuple[ConversationLine, ...]) -> None:
        if not lines:
            self.show_note("There is no earlier conversation yet.")
            return

        def chosen(choice: ConversationChoice | None) -> None:
            if choice is not None:
                self.keep_draft()
                choice.act(self.controller)
                self.wake()

        if isinstance(self.app.screen, ConversationsScreen):
            return  # It was asked for twice.
        screen = ConversationsScreen(
            lines, shown=self.controller.conversation.id, is_written=bool(self.controller.active_turn_id)
        )
        self.app.push_screen(screen, chosen)

    def show_attachments(self, attachments: tuple[Attachment, ...]) -> None:
        self._attachments.show(attachments)

    def go_to_turn(self, turn_id: str) -> None:
        self.portions.go_to(turn_id)

    def show_hits(self, text: str, hits: tuple[Hit, ...]) -> None:
        if isinstance(self.app.screen, SearchScreen):
            self.app.screen.show_hits(text, hits)
