"""The settings: what is in force, what it would be changed to, and what that costs before it is taken.

Owns the list, the editing of one value, and the choice between applying and keeping. Its result is what the user
decided; it carries nothing out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from app.chat.beside import run_beside
from app.chat.model_desk import ModelDesk, changed_keys
from app.chat.plain_text import columns_of, one_line
from app.chat.screens.answer import AnswerScreen
from app.chat.settings_cost import Cost, cost_of
from app.chat.settings_fields import (
    CARD_KEYS,
    SettingField,
    preset_of,
    shown_value,
    stepped,
    typed_value,
    with_preset,
    with_text,
)
from app.chat.widgets.choice_list import ChoiceList
from app.chat.widgets.plain_title import PlainTitle
from app.errors import AppError
from app.preferences import Preferences

_APPLY, _KEEP, _NEAREST, _NEW_PRESET, _PRESET = "apply", "keep", "nearest", "new preset", "preset "
_TITLE_COLUMNS = 22
_WIDE_ENOUGH = 60  # columns in which titles and values stand side by side without breaking
_EMPTY = "Nothing stands for the default"
_FREE = Cost(sentence="Nothing is changed.")


@dataclass(frozen=True, kw_only=True)
class SettingsOutcome:
    """What the user decided. `is_kept`: also for the next time. `preset`: a name under which to keep it."""

    preferences: Preferences
    is_kept: bool = False
    preset: str = ""


class SettingsScreen(AnswerScreen[SettingsOutcome | None]):
    """Lets the user change settings and see first what that costs."""

    CSS_PATH = "settings.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back", priority=True),
        Binding("left", "step(-1)", "The choice before", show=False),
        Binding("right", "step(1)", "The choice after", show=False),
        Binding("delete,backspace", "reset", "The default", show=False),
    ]

    def __init__(
        self,
        desk: ModelDesk,
        *,
        presets: Mapping[str, Mapping[str, object]],
        forget_preset: Callable[[str], str],
        conversation_tokens: int,
        has_card: bool = False,
        wanted: Preferences | None = None,
    ) -> None:
        """`wanted`: what has been changed already, by a command. `has_card`: there are layers to put on a GPU.

        `presets` changes with `forget_preset`, which takes one away and gives a sentence about it.
        """
        super().__init__()
        self._fields = tuple(field for field in desk.fields if has_card or field.key not in CARD_KEYS)
        self._desk = desk
        self._presets = presets
        self._forget_preset = forget_preset
        self._conversation_tokens = conversation_tokens
        self._wanted = wanted or desk.preferences
        self._cost: Cost | None = _FREE
        self._edited: SettingField | None = None
        self._names_preset = False

    def compose(self) -> ComposeResult:
        with Vertical() as frame:
            frame.border_title = "Settings"
            yield PlainTitle("Settings. Enter changes, Esc goes back.")
            frame.border_subtitle = "Enter changes · Esc back"
            yield ChoiceList()
            yield Static(Content(""), classes="help")
            yield Input()
            yield Static(Content(""), classes="cost")

    def on_mount(self) -> None:
        self._draw()
        options = self.query_one(OptionList)
        first = next((field for field in self._fields if self._is_changed(field)), self._fields[0])
        options.highlighted = options.get_option_index(first.key)
        options.focus()
        self._reckon()

    def on_resize(self, event: events.Resize) -> None:
        self._draw()

    # What the user does.

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        chosen = event.option_id or ""
        if chosen in (_APPLY, _KEEP):
            self._decide(is_kept=chosen == _KEEP)
        elif chosen == _NEAREST and self._cost is not None and self._cost.nearest is not None:
            self._want(self._cost.nearest)
        elif chosen == _NEW_PRESET:
            self._names_preset = True
            self._edit("", "A name for the preset")
        elif chosen.startswith(_PRESET):
            self._want(with_preset(self._presets[chosen.removeprefix(_PRESET)], self._wanted))
        elif (field := self._field(chosen)) is not None and field.choices:
            self._step(field, 1)
        elif field is not None:
            self._edited = field
            words = 'Several between blanks, "in marks" where one holds blanks' if field.is_list else _EMPTY
            self._edit(typed_value(field, self._wanted), words)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        self._say_help(event.option_id or "")

    def action_step(self, step: int) -> None:
        """The choice before or after, where there are few."""
        field = self._chosen_field()
        if field is not None and field.choices:
            self._step(field, step)

    def action_reset(self) -> None:
        """The default in place of what was chosen; a preset goes."""
        option = self.query_one(OptionList).highlighted_option
        if (field := self._chosen_field()) is not None:
            self._take(field, "")
        elif option is not None and (option.id or "").startswith(_PRESET):
            sentence = self._forget_preset((option.id or "").removeprefix(_PRESET))
            self._draw()
            self._say_cost(sentence)

    def action_back(self) -> None:
        """Out of the editing of a value, or out of the settings; nothing is changed."""
        if self._edited is not None or self._names_preset:
            self._end_editing()
        else:
            self.dismiss(None)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        text = event.value
        if self._names_preset:
            if text.strip():
                self.dismiss(SettingsOutcome(preferences=self._wanted, preset=one_line(text)))
        elif self._edited is not None and self._take(self._edited, text):
            self._end_editing()

    def _step(self, field: SettingField, step: int) -> None:
        self._want(stepped(field, step, self._wanted))

    def _take(self, field: SettingField, text: str) -> bool:
        try:
            self._want(with_text(field, text, self._wanted))
        except AppError as error:
            self._say_cost(str(error), is_refused=True)
            return False
        return True

    def _decide(self, *, is_kept: bool) -> None:
        if self._cost is None:
            self._say_cost("A moment: it is being reckoned whether that fits.", is_refused=True)
        elif not self._cost.can_be_paid:
            self._say_cost(self._cost.sentence, is_refused=True)
        else:
            self.dismiss(SettingsOutcome(preferences=self._wanted, is_kept=is_kept))

    # What it costs.

    def _want(self, wanted: Preferences) -> None:
        self._wanted = wanted
        self._reckon()

    def _reckon(self) -> None:
        wanted, tokens = self._wanted, self._conversation_tokens

        def take(cost: Cost) -> None:
            if wanted is self._wanted:  # an answer to an earlier question comes too late
                self._cost = cost
                self._draw()
                self._say_cost(cost.sentence, is_refused=not cost.can_be_paid)

        if not changed_keys(self._desk.preferences, wanted):
            take(_FREE)
            return
        self._cost = None
        self._draw()
        self._say_cost("Reckoning what that costs…")
        run_beside(self, lambda: cost_of(self._desk, wanted, tokens), take, self._fail)

    def _fail(self, sentence: str) -> None:
        self._say_cost(sentence, is_refused=True)

    # What is shown.

    def _draw(self) -> None:
        options = self.query_one(OptionList)
        chosen = options.highlighted_option.id if options.highlighted_option is not None else None
        rows = self._options()
        options.clear_options()
        options.add_options(rows)
        ids = [row.id for row in rows]
        first = next(place for place, row in enumerate(rows) if not row.disabled)
        options.highlighted = ids.index(chosen) if chosen in ids else first

    def _options(self) -> list[Option]:
        rows = [Option(Content("Apply"), id=_APPLY), Option(Content("Apply, and keep for the next time"), id=_KEEP)]
        if self._cost is not None and self._cost.nearest is not None:
            rows.append(Option(Content(self._cost.nearest_words), id=_NEAREST))
        for place, group in enumerate(dict.fromkeys(field.group for field in self._fields)):
            if place == 1:
                rows += self._preset_options()
            rows.append(_heading(group))
            rows += [Option(self._line(field), id=field.key) for field in self._fields if field.group == group]
        return rows

    def _preset_options(self) -> list[Option]:
        now = preset_of(self._wanted)
        rows = [_heading("Presets: the system prompt and how answers are sampled")]
        rows += [
            Option(Content(f"  {one_line(name)}{' (in force)' if values == now else ''}"), id=f"{_PRESET}{name}")
            for name, values in self._presets.items()
        ]
        rows.append(Option(Content("  Keep these as a preset…"), id=_NEW_PRESET))
        return rows

    def _is_changed(self, field: SettingField) -> bool:
        return field.value_in(self._desk.preferences) != field.value_in(self._wanted)

    def _line(self, field: SettingField) -> Content:
        title_columns = _TITLE_COLUMNS if self.app.size.width >= _WIDE_ENOUGH else 0
        gap = " " * max(2, title_columns - columns_of(field.title))
        value = shown_value(field, self._wanted)
        is_default = field.value_in(self._wanted) is None
        if not self._is_changed(field):
            return Content.assemble(f"  {field.title}{gap}", Content.styled(value, "dim" if is_default else ""))
        before = shown_value(field, self._desk.preferences)
        return Content.assemble(f"* {field.title}{gap}", Content.styled(value, "bold"), f"  (was {before})")

    def _chosen_field(self) -> SettingField | None:
        option = self.query_one(OptionList).highlighted_option
        return self._field(option.id or "") if option is not None and self._edited is None else None

    def _field(self, key: str) -> SettingField | None:
        return next((field for field in self._fields if field.key == key), None)

    def _edit(self, text: str, placeholder: str) -> None:
        field = self.query_one(Input)
        field.value, field.placeholder = text, placeholder
        field.cursor_position = len(text)
        field.add_class("-shown")
        field.focus()

    def _end_editing(self) -> None:
        self._edited, self._names_preset = None, False
        self.query_one(Input).remove_class("-shown")
        self.query_one(OptionList).focus()

    def _say_help(self, chosen: str) -> None:
        field = self._field(chosen)
        words = f"{field.title}: {field.help}" if field is not None else ""
        if chosen.startswith(_PRESET):
            words = "Enter takes this preset, Delete removes it"
        if field is not None and field.choices:
            words += f" [{', '.join(field.choices)}]"
        self.query_one(".help", Static).update(Content(words))

    def _say_cost(self, sentence: str, *, is_refused: bool = False) -> None:
        line = self.query_one(".cost", Static)
        line.set_class(is_refused, "-refused")
        words = Content(("! " if is_refused else "") + one_line(sentence))
        # Of two updates before a refresh, the first one's height would stay.
        self.call_after_refresh(line.update, words)


def _heading(text: str) -> Option:
    return Option(Content.styled(text, "bold"), disabled=True)
