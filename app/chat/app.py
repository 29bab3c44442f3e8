"""The Textual application: one chat screen, and how to leave it.

Owns the wiring of screen, rules and threads. Knows neither the real engine (a loader is given) nor any option.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen

from app.chat.commands.command import Command
from app.chat.commands.key_table import key_table
from app.chat.commands.registry import COMMANDS
from app.chat.controller import ChatController
from app.chat.engine_port import EngineLoader
from app.chat.engine_thread import EngineThread
from app.chat.events import Mailbox
from app.chat.recorder import Recorder
from app.chat.screens.chat import ChatScreen
from app.chat.terminal_driver import TerminalDriver


@dataclass(frozen=True, kw_only=True)
class ChatSetting:
    """What a chat window is made of. `model` is what the user called the model, `keys` are those of the settings."""

    model: str
    loader: EngineLoader
    history_path: Path
    system: str = ""
    continues_last: bool = False
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class ChatApp(App[None]):
    """A chat in a terminal."""

    TITLE = "Tandem"
    # Textual loads the style sheets of screens that are pushed, not that of the first one.
    CSS_PATH = "screens/chat.tcss"
    ENABLE_COMMAND_PALETTE = False  # Textual would bind a key of its own: the table of keys has that one too.
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+c", "quit", "Leave", show=False, system=True)]

    def __init__(self, setting: ChatSetting) -> None:
        super().__init__(driver_class=TerminalDriver)
        self.use_command_palette = True
        keys = key_table(setting.keys)
        # Textual's own key for leaving counts only where the table says so.
        self._bindings.key_to_bindings.pop("ctrl+q", None)
        for command in COMMANDS:
            if command.is_global and (own := keys.keys_of(command)):
                action = f"command({command.name!r})"
                self._bindings.bind(",".join(own), action, command.title, show=False, priority=True)
        mailbox = Mailbox(self._wake_screen)
        self._chat = ChatScreen(model=setting.model, mailbox=mailbox, keys=keys)
        self.controller = ChatController(
            view=self._chat,
            engine=EngineThread(setting.loader, mailbox),
            recorder=Recorder(setting.history_path, mailbox),
            mailbox=mailbox,
            keys=keys,
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
        """What the command palette offers besides themes and the like: the commands that can be done now."""
        for command in COMMANDS:
            if command.in_palette and not command.refusal(self._chat):
                yield SystemCommand(command.title, f"{command.help} ({command.usage})", self._caller_of(command))
        yield from super().get_system_commands(screen)

    def _caller_of(self, command: Command) -> Callable[[], None]:
        return lambda: self._chat.run(command)

    def action_command(self, name: str) -> None:
        """A key of the whole program was pressed that calls this command."""
        self._chat.action_command(name)

    def _wake_screen(self) -> None:
        """Called on the thread that posts; never waits."""
        loop = self._loop
        if loop is None:
            return
        try:
            loop.call_soon_threadsafe(self._chat.wake)
        except RuntimeError:
            pass  # The chat has been left: there is no screen to wake.
