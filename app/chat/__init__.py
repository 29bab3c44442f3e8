"""The Textual chat: what it needs to start, and its entry point.

Owns `ChatOptions` and `run`. Knows nothing of flags, files of settings or the environment (the command line fills
the options), and imports Textual only when a chat really starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from app.preferences import Preferences


@dataclass(frozen=True, kw_only=True)
class ChatOptions:
    """Everything `tandem chat` was asked for.

    `preferences` say which model (none: the default one, or what the user chooses at a first start), how it is loaded
    and how it answers. `settings_path` is where changes are kept, `presets` are those that stand there. `models_folder`
    is where models are kept, `history_path` the SQLite file of the conversations (None: the user's data folder).
    `first_message` is sent at once. `keys` gives commands other keys than their own, by the command's name.
    """

    preferences: Preferences
    settings_path: Path
    models_folder: Path
    presets: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    history_path: Path | None = None
    continue_last: bool = False
    first_message: str = ""
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def run(options: ChatOptions) -> int:
    """Opens the chat and returns the exit status once the user left it (0, or 1 where the screen could not run)."""
    from app.chat.launch import launch

    return launch(options)
