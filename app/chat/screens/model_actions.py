"""What the user does about models, settings and devices, carried out on the chat's screen.

Owns the screens that are opened for it and what follows from their results. The rules stand in the desk (what is in
force), the controller (the conversation) and `settings_cost.py` (what a change costs).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from app.chat.beside import run_beside
from app.chat.downloads import Download, DownloadState
from app.chat.events import DownloadEnded, WindowFull
from app.chat.model_desk import ModelDesk, left_behind, needs_load, with_model
from app.chat.plain_text import one_line
from app.chat.screens.models import ModelsScreen
from app.chat.screens.settings import SettingsOutcome, SettingsScreen
from app.chat.screens.welcome import ANOTHER, WelcomeScreen
from app.chat.settings_cost import LargerWindow, larger_window
from app.chat.settings_fields import PRESET_KEYS, field_of, preset_of, shown_value, with_preset, with_text
from app.chat.template_fields import thinking_field
from app.chat.view import Phase
from app.errors import AppError
from app.preferences import Preferences
from app.settings_file import Value

if TYPE_CHECKING:
    from app.chat.screens.chat import ChatScreen


class ModelActions:
    """Belongs to one screen."""

    def __init__(self, screen: ChatScreen, desk: ModelDesk) -> None:
        self._screen = screen
        self.desk = desk
        self._is_first_start = not desk.model
        self._larger: LargerWindow | None = None
        self._names: tuple[str, ...] = ()
        self._is_looking = False

    # The first start.

    def welcome(self, fault: str = "") -> None:
        """Where no model was ever chosen: says what this machine is and offers some."""
        if not self._is_first_start or not self._screen.is_running:
            return

        def chosen(name: str | None) -> None:
            if name == ANOTHER:
                self.show_models()
            elif name is not None:
                self.use(name)

        self._screen.app.push_screen(WelcomeScreen(self.desk, fault=fault), chosen)

    def note_ready(self) -> None:
        """A model is loaded: the first one that was chosen is the one for the next time too."""
        desk = self.desk
        self.local_names()
        if desk.facts is not None and (templates := desk.facts.chat_templates):
            run_beside(self._screen, lambda: desk.shelf.variables_of(templates), desk.take_variables, _ignore)
        if self._is_first_start:
            self._is_first_start = False
            try:
                self.desk.keep()
            except AppError as error:
                self._warn(str(error))

    # Models.

    def show_models(self, search: str = "") -> None:
        """Lets the user choose a model."""

        def chosen(name: str | None) -> None:
            if name is not None:
                self.use(name)

        self._screen.app.push_screen(ModelsScreen(self.desk, search=search), chosen)

    def use(self, name: str) -> None:
        """Loads a model in place of the one that is there."""
        if name == self.desk.loaded_name:
            self._screen.show_note(f"{one_line(name)} is loaded already.")
            return
        before = self.desk.preferences
        wanted = with_model(before, name)
        if self.take(wanted) and (gone := left_behind(before, wanted)):
            self._screen.show_note(
                f"Left out, since it was given for {one_line(before.model or '')}: {', '.join(gone)}."
            )

    def local_names(self) -> tuple[str, ...]:
        """What could be used at once when that was last looked for; begins to look again, beside the screen."""

        def take(names: tuple[str, ...]) -> None:
            self._names, self._is_looking = names, False

        if not self._is_looking:
            self._is_looking = True
            run_beside(self._screen, self.desk.local_names, take, _ignore)
        return self._names

    def use_or_look(self, name: str) -> None:
        """Uses a model that is here; looks for any other."""

        def take(names: tuple[str, ...]) -> None:
            if name in names:
                self.use(name)
            else:
                self.show_models(name)

        run_beside(self._screen, self.desk.local_names, take, _ignore)

    @staticmethod
    def event_of(download: Download) -> DownloadEnded | None:
        """What the chat says about a download that has ended; nothing where the user stopped it."""
        if download.state is DownloadState.DONE:
            return DownloadEnded(sentence=f"{one_line(download.name)} is here: /models shows it.", is_warning=False)
        if download.state is DownloadState.FAILED:
            return DownloadEnded(sentence=download.sentence, is_warning=True)
        return None

    # Settings.

    def show_settings(self, wanted: Preferences | None = None) -> None:
        """Shows the settings; `wanted`: with these changes made already."""

        def decided(outcome: SettingsOutcome | None) -> None:
            if outcome is not None:
                self._carry_out(outcome)

        self._screen.app.push_screen(
            SettingsScreen(
                self.desk,
                presets=self.desk.presets,
                forget_preset=self.forget_preset,
                conversation_tokens=self._screen.used_tokens or 0,
                has_card=bool(self.desk.shelf.machine().devices),
                wanted=wanted,
            ),
            decided,
        )

    def set_value(self, text: str) -> None:
        """`temp 0.3`: at once where it costs nothing, else the settings say first what it costs."""
        word, _, value = text.strip().partition(" ")
        field = field_of(word, self.desk.fields)
        if field is None:
            titles = ", ".join(field.title for field in self.desk.fields)
            self._warn(f"There is no setting {one_line(word)}; there are {titles}.")
            return
        try:
            wanted = with_text(field, value, self.desk.preferences)
        except AppError as error:
            self._warn(str(error))
            return
        if needs_load(self.desk.preferences, wanted):
            self.show_settings(wanted)
        elif self.take(wanted):
            self._screen.show_note(f"{field.title} is {shown_value(field, wanted)} from the next reply on.")

    def switch_thinking(self, text: str) -> None:
        """Lets the model think before it answers, or not; without a word the other of both than was chosen."""
        field = thinking_field(self.desk.variable_fields)
        if field is None:
            self._warn("This model's chat template has no switch for thinking.")
            return
        chosen = {"on": "true", "off": "false"}.get(text.strip().lower(), text)
        now = field.value_in(self.desk.preferences)
        self.set_value(f"{field.title} {chosen or ('true' if now == 'false' else 'false')}")

    def take_preset(self, name: str) -> None:
        """Puts a preset in force."""
        values = self.desk.presets.get(name)
        if values is None:
            self._warn(f"There is no preset {one_line(name)}; there are {', '.join(map(one_line, self.desk.presets))}.")
        elif self.take(with_preset(values, self.desk.preferences)):
            self._screen.show_note(f"The preset {one_line(name)} holds from the next reply on.")

    def forget_preset(self, name: str) -> str:
        """Takes a preset away until that is undone; a sentence about it."""
        desk, values = self.desk, self.desk.presets.get(name)
        shown = one_line(name)
        if values is None:
            return f"There is no preset {shown}."
        if not desk.is_own_preset(name):
            return f"The preset {shown} belongs to Tandem and stays."
        try:
            desk.forget_preset(name)
        except AppError as error:
            return f"{error} {error.hint or ''}".strip()
        kept = {key: value for key, value in values.items() if key in PRESET_KEYS}
        self._screen.controller.revisions.remember_step(
            f"the removal of the preset {shown}", lambda: desk.keep_preset(name, cast("Mapping[str, Value]", kept))
        )
        return f"The preset {shown} is gone. {self._screen.keys.hint('undo')} brings it back."

    def take(self, wanted: Preferences) -> bool:
        """Puts preferences in force, loading the model anew where that is needed; False where it can't be done now."""
        desk, controller = self.desk, self._screen.controller
        before = desk.preferences
        if needs_load(before, wanted) or (desk.facts is None and controller.phase is Phase.FAILED):
            desk.preferences = wanted
            loader = desk.loader()
            if loader is None or not controller.load_model(loader, desk.model):
                desk.preferences = before
                self._warn(f"The reply is still being written: {self._screen.keys.hint('stop')} stops it.")
                return False
        desk.preferences = wanted
        if wanted.system != before.system:
            controller.set_system(wanted.system or "")
        self._screen.wake()
        return True

    def keep_theme(self, name: str) -> None:
        """Another theme was chosen: for the next time too."""
        desk = self.desk
        if name != desk.preferences.theme:
            desk.preferences = replace(desk.preferences, theme=name)
            try:
                desk.keep(frozenset({"theme"}))
            except AppError as error:
                self._warn(str(error))

    # A window that is full.

    def reckon_larger_window(self, window: WindowFull) -> None:
        """Asks what a larger window would cost, and tells the question."""
        question, desk = self._screen.question, self.desk
        self._larger = None

        def take(larger: LargerWindow) -> None:
            self._larger = larger
            question.offer_larger(larger.words, is_possible=larger.preferences is not None)

        def fail(sentence: str) -> None:
            question.offer_larger(f"Enlarging can't be reckoned: {sentence}", is_possible=False)

        run_beside(self._screen, lambda: larger_window(desk, window), take, fail)

    def enlarge_window(self) -> None:
        """Loads the model anew with the window that was reckoned; the reply goes on by itself."""
        if self._larger is not None and self._larger.preferences is not None:
            self.take(self._larger.preferences)

    def _carry_out(self, outcome: SettingsOutcome) -> None:
        try:
            if outcome.preset:
                self.desk.keep_preset(outcome.preset, preset_of(outcome.preferences))
                self._screen.show_note(f"Kept as the preset {outcome.preset}.")
            if self.take(outcome.preferences) and outcome.is_kept:
                kept = self.desk.keep()
                self._screen.show_note(f"Kept for the next time: {', '.join(kept)}." if kept else "Kept as it was.")
        except AppError as error:
            self._warn(f"{error} {error.hint or ''}")

    def _warn(self, sentence: str) -> None:
        self._screen.show_note(sentence.strip(), is_warning=True)

    # Devices.

    def toggle_device(self) -> None:
        """Opens or closes the panel that shows what the machine does."""
        panel = self._screen.device
        panel.toggle()
        if panel.is_open:
            self.measure()

    def measure(self) -> None:
        """Asks what a pass reads, and once what the memory gives; the latter only while nothing is computed."""
        desk, screen = self.desk, self._screen
        if desk.facts is None or desk.facts.uses_gpu:  # what two devices read, each at its own speed, is not one sum
            return
        if desk.pass_bytes is None:
            line, preferences = desk.own_line(), desk.preferences
            run_beside(screen, lambda: desk.shelf.pass_bytes(line, preferences), desk.take_pass_bytes, _ignore)
        if desk.limit_bytes_per_s is None and not screen.controller.is_busy:
            preferences = desk.preferences
            run_beside(screen, lambda: desk.shelf.memory_speed(preferences), desk.take_limit, _ignore)


def _ignore(sentence: str) -> None:
    """What is not known is not shown."""
