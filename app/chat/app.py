"""The Textual application: one chat screen, and how to leave it.

Owns the wiring of screen, rules and threads. Knows neither the real engine (a loader is given) nor any option.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen

from app.chat.controller import ChatController
from app.chat.engine_port import EngineLoader
from app.chat.engine_thread import EngineThread
from app.chat.events import Mailbox
from app.chat.recorder import Recorder
from app.chat.screens.chat import ChatScreen
from app.chat.terminal_driver import TerminalDriver


@dataclass(frozen=True, kw_only=True)
class ChatSetting:
    """What a chat window is made of. `model` is what the user called the model."""

    model: str
    loader: EngineLoader
    history_path: Path
    system: str = ""
    continues_last: bool = False


class ChatApp(App[None]):
    """A chat in a terminal."""

    TITLE = "Tandem"
    # Textual loads the style sheets of screens that are pushed, not that of the first one.
    CSS_PATH = "screens/chat.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+q", "quit", "Leave", priority=True, show=False),
        Binding("ctrl+c", "quit", "Leave", show=False, system=True),
    ]

    def __init__(self, setting: ChatSetting) -> None:
        super().__init__(driver_class=TerminalDriver)
        mailbox = Mailbox(self._wake_screen)
        self._chat = ChatScreen(model=setting.model, mailbox=mailbox)
        self.controller = ChatController(
            view=self._chat,
            engine=EngineThread(setting.loader, mailbox),
            recorder=Recorder(setting.history_path, mailbox),
            mailbox=mailbox,
            system=setting.system,
            continues_last=setting.continues_last,
        )
        self._chat.attach(self.controller)

    def on_mount(self) -> None:
        """A terminal that is closed, or a request to end, ends the chat as its keys do."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._leave)

    async def action_quit(self) -> None:
        """Leaves."""
        self._leave()

    def _leave(self) -> None:
        self._chat.keep_draft()
        self.exit()

    def get_default_screen(self) -> Screen[None]:
        """The chat."""
        return self._chat

    def get_system_commands(self, screen: Screen) -> Iterable[SystemCommand]:
        """What the command palette offers besides themes and the like."""
        chat = self._chat
        yield SystemCommand("New conversation", "Leave this one; it is kept", chat.action_new_conversation)
        yield SystemCommand("Conversations", "Open an earlier conversation", chat.action_conversations)
        yield SystemCommand("Another reply", "Ask the last question again", chat.action_regenerate)
        yield SystemCommand("Go on", "Go on with a reply that was stopped or cut off", chat.action_go_on)
        yield SystemCommand("Copy the reply", "Copy the latest reply as the model wrote it", chat.action_copy_reply)
        yield SystemCommand("Thinking", "Open or fold the thinking of the latest reply", chat.action_toggle_thinking)
        yield from super().get_system_commands(screen)

    def _wake_screen(self) -> None:
        """Called on the thread that posts; never waits."""
        loop = self._loop
        if loop is None:
            return
        try:
            loop.call_soon_threadsafe(self._chat.wake)
        except RuntimeError:
            pass  # The chat has been left: there is no screen to wake.
