"""The Textual application: one chat screen, and how to leave it.

Owns the wiring of screen, rules and threads. Knows neither the real engine (a loader is given) nor any option.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, cast

from rich.console import RenderableType
from textual._compositor import CompositorUpdate
from textual.actions import SkipAction
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.screen import Screen
from textual.types import CSSPathType
from textual.widgets import Input, TextArea

from app.chat.commands.command import Command
from app.chat.commands.key_table import key_table
from app.chat.commands.registry import COMMANDS
from app.chat.controller import ChatController
from app.chat.downloads import Download
from app.chat.drawn_screen import DrawnScreen
from app.chat.engine_thread import EngineThread
from app.chat.events import Mailbox
from app.chat.model_desk import ModelDesk
from app.chat.recorder import Recorder
from app.chat.screens.chat import ChatScreen
from app.chat.screens.model_actions import ModelActions
from app.chat.terminal_driver import TerminalDriver

_SECOND_INTERRUPT_S = 5.0
_LAST_KEYS_S = 0.2


@dataclass(frozen=True, kw_only=True)
class ChatSetting:
    """What a chat window is made of. `keys` are those of the settings; `first_message` is sent at once."""

    models: ModelDesk
    history_path: Path
    continues_last: bool = False
    first_message: str = ""
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class ChatApp(App[None]):
    """A chat in a terminal."""

    TITLE = "Tandem"
    # Textual loads the style sheets of screens that are pushed, not that of the first one.
    CSS_PATH: ClassVar[CSSPathType | None] = ["screens/chat.tcss", "screens/plain.tcss"]
    ENABLE_COMMAND_PALETTE = False  # Textual would bind a key of its own: the table of keys has that one too.
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+c", "interrupt", "Stop", show=False, priority=True)]

    def __init__(self, setting: ChatSetting) -> None:
        super().__init__(driver_class=TerminalDriver)
        self.use_command_palette = True
        self._leaves_until_s = 0.0
        self._drawn = DrawnScreen()
        keys = key_table(setting.keys)
        self.opening_key = keys.hint("open")
        # Textual's own key for leaving counts only where the table says so.
        self._bindings.key_to_bindings.pop("ctrl+q", None)
        for command in COMMANDS:
            if command.is_global and (own := keys.keys_of(command)):
                action = f"command({command.name!r})"
                self._bindings.bind(",".join(own), action, command.title, show=False, priority=True)
        mailbox = Mailbox(self._wake_screen)
        desk = self.models = setting.models
        self._chat = ChatScreen(models=desk, mailbox=mailbox, keys=keys, redraw=self.redraw)
        self.controller = ChatController(
            view=self._chat.view,
            engine=EngineThread(desk.loader(), mailbox),
            recorder=Recorder(setting.history_path, mailbox),
            mailbox=mailbox,
            keys=keys,
            system=desk.preferences.system or "",
            continues_last=setting.continues_last,
            first_message=setting.first_message,
        )
        self._chat.attach(self.controller)
        desk.when_download_ended = lambda download: self._tell_download(mailbox, download)

    def on_mount(self) -> None:
        """A terminal that is closed, or a request to end, ends the chat as its keys do."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._leave)
        loop.add_signal_handler(signal.SIGHUP, self.leave_soon)
        self._dress()

    def _dress(self) -> None:
        """Puts on the theme that was chosen, and keeps another one that the user chooses later."""
        preferences = self.models.preferences
        if preferences.screen_reader:
            self.add_class("-plain")
            self.animation_level = "none"
        if preferences.theme in self.available_themes:
            self.theme = preferences.theme
        elif preferences.theme is not None:
            names = ", ".join(sorted(self.available_themes))
            self._chat.show_note(f"There is no theme {preferences.theme}; there are {names}.", is_warning=True)
        self.theme_changed_signal.subscribe(self, lambda theme: self._chat.models.keep_theme(theme.name))

    def on_resize(self, event: Resize) -> None:
        """The terminal has another size, or was taken again after a stop."""
        self._drawn.forget()

    def redraw(self) -> None:
        """Draws everything anew, whatever stands on the terminal."""
        self._drawn.forget()
        self.screen.refresh()

    def _display(self, screen: Screen, renderable: RenderableType | None) -> None:
        """Textual's: writes an update to the terminal."""
        if isinstance(renderable, CompositorUpdate):
            renderable = cast("RenderableType", self._drawn.narrowed(renderable))
        super()._display(screen, renderable)

    async def action_quit(self) -> None:
        """Leaves."""
        self._leave()

    async def action_interrupt(self) -> None:
        """Ctrl+C: what is open is closed, a reply stops; where there is nothing of that, the second one leaves.

        What is selected is copied instead, by whoever shows it.
        """
        now_s = time.monotonic()
        focused = self.focused
        has_text = isinstance(focused, Input | TextArea) and focused.selected_text
        if has_text or self.screen.get_selected_text():
            raise SkipAction
        if self.screen is not self._chat:
            self.simulate_key("escape")
        elif self._chat.can_stop:
            self._chat.action_command("stop")
        elif now_s < self._leaves_until_s:
            self._leave()
        else:
            self._leaves_until_s = now_s + _SECOND_INTERRUPT_S
            self._chat.show_note("Ctrl+C once more leaves. Nothing is lost.")

    def leave_soon(self) -> None:
        """Leaves a terminal that is gone, once the last that it sent has been taken in."""
        self.set_timer(_LAST_KEYS_S, self._leave)

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
                usage = command.usage.replace("[", "\\[")  # the palette reads markup
                yield SystemCommand(command.title, f"{command.help} ({usage})", self._caller_of(command))
        yield from super().get_system_commands(screen)

    def _caller_of(self, command: Command) -> Callable[[], None]:
        return lambda: self._chat.run(command)

    def action_command(self, name: str) -> None:
        """A key of the whole program was pressed that calls this command."""
        self._chat.action_command(name)

    @staticmethod
    def _tell_download(mailbox: Mailbox, download: Download) -> None:
        """Called on the download's thread."""
        if (event := ModelActions.event_of(download)) is not None:
            mailbox.post(event)

    def _wake_screen(self) -> None:
        """Called on the thread that posts; never waits."""
        loop = self._loop
        if loop is None:
            return
        try:
            loop.call_soon_threadsafe(self._chat.wake)
        except RuntimeError:
            pass  # The chat has been left: there is no screen to wake.
