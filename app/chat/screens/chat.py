"""The chat itself: transcript, input, status line.

Owns the layout, when the screen is drawn, and what the user does on it: messages are sent, commands carried out. The
commands stand in `app/chat/commands`, the rules behind them in the controller; what those say is shown by
`chat_display.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from textual import events as textual_events
from textual.app import ComposeResult
from textual.screen import Screen
from textual.timer import Timer

from app.chat.commands.calling import call_command
from app.chat.commands.command import Command
from app.chat.commands.key_table import KeyTable
from app.chat.commands.registry import COMMANDS, command_of
from app.chat.commands.slash import PlainMessage, SlashCall, UnknownWord, read_message
from app.chat.completion import file_offers, slash_offers
from app.chat.controller import ChatController
from app.chat.conversation import Turn
from app.chat.events import Mailbox
from app.chat.messages import (
    LeaveWanted,
    LongTextPasted,
    OfferTaken,
    PromptEdited,
    PromptTyped,
    WindowAnswered,
    WindowChoice,
)
from app.chat.model_desk import ModelDesk
from app.chat.plain_text import neutralise
from app.chat.screens.chat_display import ChatDisplay
from app.chat.screens.editing import Editing
from app.chat.screens.keys import KeysScreen
from app.chat.screens.model_actions import ModelActions
from app.chat.screens.portions import Portions
from app.chat.view import Phase
from app.chat.widgets.attachment_bar import AttachmentBar
from app.chat.widgets.device_panel import DevicePanel
from app.chat.widgets.near_compositor import NearCompositor
from app.chat.widgets.note_line import NoteLine
from app.chat.widgets.offer_list import OfferList
from app.chat.widgets.patient_drawing import PatientDrawing
from app.chat.widgets.prompt import Prompt
from app.chat.widgets.reply_markdown import ReplyMarkdown
from app.chat.widgets.status_bar import StatusBar
from app.chat.widgets.transcript import Transcript
from app.chat.widgets.window_question import WindowQuestion

_FRAME_S = 1 / 30
_LINKS = ("http://", "https://", "mailto:")
_WIDE_ENOUGH = 60


class ChatScreen(PatientDrawing, Screen[None]):
    """One chat window."""

    AUTO_FOCUS = "Prompt"

    def __init__(self, *, models: ModelDesk, mailbox: Mailbox, keys: KeyTable, redraw: Callable[[], None]) -> None:
        super().__init__()
        self._compositor = NearCompositor()
        self._mailbox = mailbox
        self._controller: ChatController | None = None
        self._frames: Timer | None = None
        self.keys = keys
        self.redraw = redraw
        self.models = ModelActions(self, models)
        self.device = DevicePanel(models)
        self.view = ChatDisplay(self)
        self.used_tokens: int | None = None
        self.transcript = Transcript(models.model, top_key=keys.hint("top"), end_key=keys.hint("end"))
        self.portions = Portions(self)
        self.note = NoteLine()
        self.offers = OfferList()
        self.prompt = Prompt(self.offers)
        self.prompt.when_submitted = self._submit
        self.editing = Editing(self.prompt, save=self._save_edit, keep=self._keep_edit)
        self.attachments = AttachmentBar()
        self.question = WindowQuestion()
        self.status = StatusBar()
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
        yield self.attachments
        yield self.prompt
        yield self.status

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

    def wake(self) -> None:
        """Something came while nothing was expected."""
        if self._frames is not None:
            self._frames.resume()

    def _frame(self) -> None:
        has_come = self.controller.tick()
        if not has_come and not self.controller.is_busy and self._frames is not None and self._mailbox.sleep():
            self._frames.pause()

    # What the user does.

    def _submit(self, text: str) -> None:
        self.note.clear()
        if self.editing.is_on:
            if text.strip():
                self.editing.finish(text)
            return
        match read_message(text):
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
            self.editing.follow()
            self.wake()
            return
        text = self.prompt.text  # Word of an earlier edit may come late.
        self.controller.set_draft(self.prompt.unsent)
        self.controller.attaching.follow(text)
        before = self.prompt.text_before_cursor
        is_at_end = len(before) == len(text)
        offers = slash_offers(before, self.keys, lambda command: command.choices(self)) if is_at_end else []
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

    def action_command(self, name: str) -> None:
        """A key was pressed that calls this command."""
        if (command := command_of(name)) is not None:
            self.run(command)

    def run(self, command: Command, argument: str = "") -> None:
        """Does what a command says, or says why it can't be done now."""
        if not self.editing.is_on:
            self.controller.set_draft(self.prompt.unsent)
            self.controller.save_draft()  # A command is no draft any more: a search would find it.
        call_command(self, command, argument)
        self.wake()

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

    def keep_draft(self) -> None:
        """Takes in what stands in the input now: word of the last key may still be on its way."""
        if self.editing.is_on:
            self.editing.follow()
        else:
            self.controller.set_draft(self.prompt.unsent)

    @property
    def can_stop(self) -> bool:
        """Whether there is something that stopping would end or close, and that is not ending already."""
        return self.offers.is_open or self.editing.is_on or self.controller.can_stop

    def _save_edit(self, turn: Turn, text: str) -> bool:
        sentence = self.controller.refusals.to_change()
        if sentence:
            self.show_note(sentence, is_warning=True)
        else:
            self.controller.revisions.edit(turn, text)
        self.wake()
        return not sentence

    def _keep_edit(self, turn: Turn | None, text: str) -> None:
        self.controller.set_edit(turn.id if turn is not None else None, text)

    def show_keys(self) -> None:
        """Shows what the keys and commands do."""
        self.app.push_screen(KeysScreen(self.keys))

    def show_note(self, text: str, *, is_warning: bool = False) -> None:
        """Says something above the input."""
        self.note.show(text, is_warning=is_warning)
