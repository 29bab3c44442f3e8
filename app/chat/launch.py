"""From options to a chat on the terminal, and out of it again.

Owns where conversations are kept when nobody says so, and the order in which everything is ended.
"""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from app.chat import ChatOptions
from app.chat.app import ChatApp, ChatSetting
from app.chat.closed_terminal import end_without_terminal
from app.chat.engine_adapter import ModelChoice, loader_of
from app.chat.engine_port import EngineLoader
from app.chat.export import rescue
from app.chat.model_desk import ModelDesk
from app.chat.model_shelf import RuntimeShelf
from app.chat.recorder import Unkept
from app.chat.settings_keeper import FileKeeper
from app.loading import waiting_for_files
from app.output import console_of_process
from app.preferences import Preferences
from app.profiles import with_profile
from app.runtime_options import engine_options, generate_options

_HISTORY_FILE = "conversations.db"
_SWITCH_INTERVAL_S = 0.0001


def launch(options: ChatOptions) -> int:
    """Runs the chat until it is left."""
    app = make_app(options)
    # The engine's thread needs the interpreter for a moment at every step: it must not wait for a long drawing.
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    has_ended = threading.Event()
    keep = app.controller.close
    end_without_terminal(sys.__stdin__, has_ended, keep=lambda: _rescue(keep()))
    try:
        app.run()
    finally:
        app.models.downloads.stop_all()
        unkept = keep()
        has_ended.set()
        with suppress(OSError):  # The terminal may be gone.
            _rescue(unkept)
    if app.controller.conversation.turns and not app.return_code and unkept is None:
        key = app.opening_key
        with suppress(OSError):
            print(f"The conversation is kept: {key} in the next chat, or --continue, opens it.")
    return app.return_code or (1 if unkept is not None else 0)


def _rescue(unkept: Unkept | None) -> None:
    if unkept is not None:
        sentence = rescue(unkept.conversations, unkept.reason)
        print(sentence, file=sys.stderr)


def make_app(options: ChatOptions) -> ChatApp:
    """The chat with the real engine behind it, not begun yet. Whoever runs it closes its controller."""
    from app.loading import model_name

    folder, chosen = options.models_folder, options.preferences

    def make_loader(preferences: Preferences) -> EngineLoader:
        choice = ModelChoice(
            model=model_name(preferences),
            folder=folder,
            offline=bool(preferences.offline),
            engine=engine_options(preferences),
            generate=lambda: generate_options(desk.preferences),
            draft_model=preferences.draft_model,
            engine_for=lambda path: engine_options(with_profile(preferences, path)),
        )
        return loader_of(choice)

    desk = ModelDesk(
        shelf=RuntimeShelf(folder, offline=bool(chosen.offline)),
        preferences=replace(chosen, model=chosen.model or _default_if_here(folder)),
        make_loader=make_loader,
        keeper=FileKeeper(options.settings_path),
        presets=options.presets,
    )
    return ChatApp(
        ChatSetting(
            models=desk,
            history_path=options.history_path or default_history_path(),
            continues_last=options.continue_last,
            first_message=options.first_message,
            keys=options.keys,
        )
    )


def _default_if_here(folder: Path) -> str | None:
    """The model that is meant when none is named; None where it is not on this disk: then the user chooses first."""
    from runtime.catalog import CATALOG, DEFAULT_MODEL, local_path

    with waiting_for_files(console_of_process()):
        is_here = local_path(CATALOG[DEFAULT_MODEL], folder) is not None
    return DEFAULT_MODEL if is_here else None


def default_history_path() -> Path:
    """The file of conversations in the user's folder for data."""
    from platformdirs import user_data_path

    return user_data_path("tandem", appauthor=False) / _HISTORY_FILE
