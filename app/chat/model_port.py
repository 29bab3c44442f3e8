"""What the chat asks about models that are not loaded: the protocol, and the values that cross it.

Owns names only; `model_shelf.py` fills them with the catalog, the disk and the hub, tests with a fake. Knows nothing of
Textual or threads: whatever takes long is called beside the screen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from app.chat.engine_port import LeaveSignal, MemoryUse
from app.preferences import Preferences


class ModelPlace(StrEnum):
    """Where a model is."""

    DISK = "disk"
    CATALOG = "catalog"
    HUB = "hub"


@dataclass(frozen=True, kw_only=True)
class ModelLine:
    """A model that can be chosen. `name` is what a loader takes for it.

    `refusal` says why this version can't run it; `unfinished_bytes` is what an earlier download left.
    """

    name: str
    title: str
    place: ModelPlace
    size_bytes: int
    quantisation: str = ""
    licence: str = ""
    refusal: str = ""
    unfinished_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class RepositoryLine:
    """A repository that the hub found."""

    name: str
    licence: str = ""
    architecture: str = ""
    num_parameters: int = 0
    num_downloads: int = 0
    is_gated: bool = False


@dataclass(frozen=True, kw_only=True)
class Bill:
    """What a model takes in memory. `context_size` is None where it is only an estimate, and `memory` empty then.

    `fits` is None where nobody knows how much is free; `sentence` says what is wrong where it does not fit.
    """

    needed_bytes: int
    available_bytes: int | None
    fits: bool | None
    context_size: int | None = None
    memory: tuple[MemoryUse, ...] = ()
    gpu_layers: int = 0
    sentence: str = ""


@dataclass(frozen=True, kw_only=True)
class MachineFacts:
    """What this machine is. `devices` names the cards that compute beside it, `models_folder` is where models lie."""

    cpu_name: str
    num_cores: int
    isa: str
    memory_total_bytes: int | None
    memory_available_bytes: int | None
    devices: tuple[str, ...] = ()
    models_folder: str = ""


class ShelfFault(Exception):
    """What was asked can't be had; the message is one sentence for the screen."""


DownloadProgress = Callable[[int, int], None]


class ModelShelf(Protocol):
    """Models on this disk, in the catalog and on the hub. Every method may take seconds and raise ShelfFault."""

    def default_name(self) -> str:
        """The catalog's name of the model that is meant when none is named."""
        ...

    def names_on_disk(self) -> tuple[str, ...]:
        """Their names alone, at once."""
        ...

    def on_disk(self) -> tuple[ModelLine, ...]: ...

    def in_catalog(self) -> tuple[ModelLine, ...]:
        """Those that are not on this disk."""
        ...

    def search(self, text: str) -> tuple[RepositoryLine, ...]: ...

    def in_repository(self, repository: RepositoryLine) -> tuple[ModelLine, ...]: ...

    def bill(self, line: ModelLine, preferences: Preferences, *, freed_bytes: int) -> Bill:
        """What it takes with these preferences, once the model that is loaded has given back `freed_bytes`."""
        ...

    def largest_context(self, line: ModelLine, preferences: Preferences, *, freed_bytes: int) -> int | None:
        """The largest window that fits with the other preferences; None where none does."""
        ...

    def pass_bytes(self, line: ModelLine, preferences: Preferences) -> Callable[[int], int]:
        """What one pass moves when so many positions stand before it."""
        ...

    def variables_of(self, templates: Sequence[str]) -> tuple[str, ...]:
        """What chat templates (their sources) read besides the conversation."""
        ...

    def memory_speed(self, preferences: Preferences) -> float:
        """Bytes a second that this machine's memory gives at most; takes all its cores for a moment."""
        ...

    def fetch(self, name: str, progress: DownloadProgress, leaving: LeaveSignal) -> None:
        """Downloads a model, going on where an earlier download stopped."""
        ...

    def machine(self) -> MachineFacts: ...

    def is_offline(self) -> bool:
        """Whether downloads are off."""
        ...
