"""The Textual chat: what it needs to start, and its entry point.

Owns `ChatOptions` and `run`. Knows nothing of flags, files of settings or the environment (the command line fills
the options), and imports Textual only when a chat really starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runtime import EngineOptions, GenerateOptions


@dataclass(frozen=True, kw_only=True)
class ChatOptions:
    """Everything `tandem chat` was asked for.

    `model` is a catalog name, a path or `owner/repo[:quant]`; `models_folder` is where models are kept (None: the
    default folder). `draft_model` names the model that guesses for it (None: the catalog's, if it is on the disk).
    `history_path` is the SQLite file of the conversations (None: the user's data folder). `keys` gives commands other
    keys than their own, by the command's name.
    """

    model: str
    engine: EngineOptions
    generate: GenerateOptions
    models_folder: Path | None = None
    offline: bool = False
    draft_model: str | None = None
    system: str | None = None
    history_path: Path | None = None
    continue_last: bool = False
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def run(options: ChatOptions) -> int:
    """Opens the chat and returns the exit status once the user left it (0, or 1 where the screen could not run)."""
    from app.chat.launch import launch

    return launch(options)
