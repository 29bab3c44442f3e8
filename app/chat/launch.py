"""From options to a chat on the terminal, and out of it again.

Owns where conversations are kept when nobody says so, and the order in which everything is ended.
"""

from __future__ import annotations

import sys
from pathlib import Path

from app.chat import ChatOptions
from app.chat.app import ChatApp, ChatSetting
from app.chat.engine_adapter import ModelChoice, loader_of

_HISTORY_FILE = "conversations.db"
_SWITCH_INTERVAL_S = 0.0005


def launch(options: ChatOptions) -> int:
    """Runs the chat until it is left."""
    choice = ModelChoice(
        model=options.model,
        folder=options.models_folder or _default_models_folder(),
        offline=options.offline,
        engine=options.engine,
        generate=options.generate,
        draft_model=options.draft_model,
    )
    app = ChatApp(
        ChatSetting(
            model=options.model,
            loader=loader_of(choice),
            history_path=options.history_path or default_history_path(),
            system=options.system or "",
            continues_last=options.continue_last,
            keys=options.keys,
        )
    )
    # The engine's thread needs the interpreter for a moment at every step: it must not wait for a long drawing.
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    try:
        app.run()
    finally:
        app.controller.close()
    return app.return_code or 0


def default_history_path() -> Path:
    """The file of conversations in the user's folder for data."""
    from platformdirs import user_data_path

    return user_data_path("tandem", appauthor=False) / _HISTORY_FILE


def _default_models_folder() -> Path:
    from runtime.catalog import models_folder

    return models_folder()
