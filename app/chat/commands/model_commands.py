"""Commands for models, settings and what the machine does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.chat.commands.command import Argument, Command

if TYPE_CHECKING:
    from app.chat.screens.chat import ChatScreen


def _models(desk: ChatScreen, argument: str) -> None:
    desk.models.show_models(argument)


def _model(desk: ChatScreen, argument: str) -> None:
    desk.models.use_or_look(argument)


def _settings(desk: ChatScreen, argument: str) -> None:
    desk.models.show_settings()


def _set(desk: ChatScreen, argument: str) -> None:
    desk.models.set_value(argument)


def _settings_titles(desk: ChatScreen) -> tuple[str, ...]:
    return tuple(field.title for field in desk.models.desk.fields)


def _reasoning(desk: ChatScreen, argument: str) -> None:
    desk.models.switch_thinking(argument)


def _forget(desk: ChatScreen, argument: str) -> None:
    desk.show_note(desk.models.forget_preset(argument))


def _own_presets(desk: ChatScreen) -> tuple[str, ...]:
    models = desk.models.desk
    return tuple(name for name in models.presets if models.is_own_preset(name))


def _preset(desk: ChatScreen, argument: str) -> None:
    desk.models.take_preset(argument)


def _system(desk: ChatScreen, argument: str) -> None:
    desk.models.set_value(f"system {argument}")


def _theme(desk: ChatScreen, argument: str) -> None:
    if argument in desk.app.available_themes:
        desk.app.theme = argument
    else:
        names = ", ".join(sorted(desk.app.available_themes))
        desk.show_note(f"There is no theme {argument}; there are {names}.", is_warning=True)


def _device(desk: ChatScreen, argument: str) -> None:
    desk.models.toggle_device()


def _guesses(desk: ChatScreen, argument: str) -> None:
    desk.device.toggle_tint()


MODEL_COMMANDS = (
    Command(
        name="models",
        title="Models",
        help="models here, in the catalog and on Hugging Face",
        handler=_models,
        argument=Argument(word="WORDS", is_optional=True),
        keys=("f2",),
    ),
    Command(
        name="model",
        title="Another model",
        help="talk with another model; the conversation stays",
        handler=_model,
        argument=Argument(
            word="NAME",
            question="The model's name",
            choices=lambda desk: desk.models.local_names(),
        ),
        in_palette=False,
    ),
    Command(
        name="settings",
        title="Settings",
        help="settings, and what a change costs",
        handler=_settings,
        keys=("f3",),
    ),
    Command(
        name="set",
        title="Set a value",
        help="change one setting: /set temp 0.3",
        handler=_set,
        argument=Argument(word="NAME VALUE", question="A setting and its value", choices=_settings_titles),
        in_palette=False,
    ),
    Command(
        name="preset",
        title="Take a preset",
        help="a system prompt and a way of sampling, by its name",
        handler=_preset,
        argument=Argument(
            word="NAME", question="The preset's name", choices=lambda desk: tuple(desk.models.desk.presets)
        ),
    ),
    Command(
        name="forget",
        title="Forget a preset",
        help="take a preset away that you kept; undo brings it back",
        handler=_forget,
        argument=Argument(word="NAME", question="The preset's name", choices=_own_presets),
        refusal=lambda desk: "" if _own_presets(desk) else "No preset was kept yet.",
    ),
    Command(
        name="reason",
        title="Thinking on or off",
        help="whether the model thinks before it answers, where its template has a switch",
        handler=_reasoning,
        argument=Argument(word="on|off", is_optional=True, choices=lambda _: ("on", "off")),
    ),
    Command(
        name="system",
        title="System prompt",
        help="another system prompt; without one, none",
        handler=_system,
        argument=Argument(
            word="TEXT",
            is_optional=True,
            initial=lambda desk: desk.models.desk.preferences.system or "",
        ),
        in_palette=False,
    ),
    Command(
        name="theme",
        title="Take a theme",
        help="other colours; kept for the next time",
        handler=_theme,
        argument=Argument(
            word="NAME", question="The theme's name", choices=lambda desk: tuple(sorted(desk.app.available_themes))
        ),
        in_palette=False,
    ),
    Command(
        name="device",
        title="What the machine does",
        help="time a token, memory, guesses, beside the conversation",
        handler=_device,
        keys=("f4",),
    ),
    Command(
        name="guesses",
        title="Mark guessed tokens",
        help="show the latest tokens, those that had been guessed marked",
        handler=_guesses,
    ),
)
