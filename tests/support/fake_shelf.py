"""Models to choose from that a test made up: sizes, fits, downloads that wait for a word.

Owns the fake shelf and where settings are kept meanwhile. Knows no real model, disk or network.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from app.chat.engine_port import EngineLoader, LeaveSignal, MemoryUse
from app.chat.model_desk import ModelDesk
from app.chat.model_port import (
    Bill,
    DownloadProgress,
    MachineFacts,
    ModelLine,
    ModelPlace,
    RepositoryLine,
    ShelfFault,
)
from app.preferences import Preferences
from app.settings_file import Value

if TYPE_CHECKING:
    from chat_stage import FakeEngine

MB = 10**6
DISK = (
    ModelLine(
        name="tiny-1m",
        title="Tiny 1M, Q8_0",
        place=ModelPlace.DISK,
        size_bytes=2 * MB,
        quantisation="Q8_0",
        licence="MIT",
    ),
    ModelLine(
        name="other-2m",
        title="Other 2M, Q4_0",
        place=ModelPlace.DISK,
        size_bytes=3 * MB,
        quantisation="Q4_0",
        licence="Apache-2.0",
    ),
)
CATALOG = (
    ModelLine(
        name="large-1b",
        title="Large 1B, Q4_K_M",
        place=ModelPlace.CATALOG,
        size_bytes=800 * MB,
        quantisation="Q4_K_M",
        licence="MIT",
    ),
    ModelLine(
        name="giant-70b",
        title="Giant 70B, Q4_K_M",
        place=ModelPlace.CATALOG,
        size_bytes=40_000 * MB,
        quantisation="Q4_K_M",
        licence="Giant Community",
    ),
    ModelLine(
        name="strange-1b",
        title="Strange 1B",
        place=ModelPlace.CATALOG,
        size_bytes=900 * MB,
        refusal="strange-1b has the architecture [strange]",
    ),
)
FREE_BYTES = 8_000 * MB
MOST_CONTEXT = 65_536


@dataclass(kw_only=True)
class FakeShelf:
    """A disk, a catalog and a hub. A download waits for `gate` when half of it is there."""

    disk: tuple[ModelLine, ...] = DISK
    catalog: tuple[ModelLine, ...] = CATALOG
    repositories: tuple[RepositoryLine, ...] = ()
    files: Mapping[str, tuple[ModelLine, ...]] = field(default_factory=dict)
    fault: str = ""
    disk_fault: str = ""
    disk_gate: threading.Event | None = None
    gate: threading.Event | None = None
    fetch_fault: str = ""
    offline: bool = False
    devices: tuple[str, ...] = ()
    default: str = "tiny-1m"
    searches: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)

    def default_name(self) -> str:
        return self.default

    def names_on_disk(self) -> tuple[str, ...]:
        return tuple(line.name for line in self.disk)

    def on_disk(self) -> tuple[ModelLine, ...]:
        if self.disk_gate is not None:
            self.disk_gate.wait()
        if self.disk_fault:
            raise ShelfFault(self.disk_fault)
        return self.disk

    def in_catalog(self) -> tuple[ModelLine, ...]:
        return self.catalog

    def search(self, text: str) -> tuple[RepositoryLine, ...]:
        self.searches.append(text)
        if self.fault:
            raise ShelfFault(self.fault)
        return self.repositories

    def in_repository(self, repository: RepositoryLine) -> tuple[ModelLine, ...]:
        return self.files[repository.name]

    def bill(self, line: ModelLine, preferences: Preferences, *, freed_bytes: int) -> Bill:
        available = FREE_BYTES + freed_bytes
        if line.place is not ModelPlace.DISK:
            needed = line.size_bytes * 5 // 4
            return Bill(needed_bytes=needed, available_bytes=available, fits=needed <= available)
        context_size = preferences.ctx_size or 4096
        bits = {"f16": 16, "q8_0": 8, "q4_0": 4}[preferences.cache_type_k or "f16"]
        memory = MemoryUse(
            device="CPU", weights_bytes=100 * MB, kv_bytes=context_size * 100 * bits, workspace_bytes=10 * MB
        )
        if context_size > MOST_CONTEXT:
            sentence = "The model needs too much."
            return Bill(needed_bytes=memory.total_bytes, available_bytes=available, fits=False, sentence=sentence)
        return Bill(
            needed_bytes=memory.total_bytes,
            available_bytes=available,
            fits=True,
            context_size=context_size,
            memory=(memory,),
        )

    def largest_context(self, line: ModelLine, preferences: Preferences, *, freed_bytes: int) -> int | None:
        return MOST_CONTEXT

    def pass_bytes(self, line: ModelLine, preferences: Preferences) -> Callable[[int], int]:
        return lambda position: 100 * MB + 1000 * position

    def variables_of(self, templates: Sequence[str]) -> tuple[str, ...]:
        return tuple(" ".join(templates).split())

    def memory_speed(self, preferences: Preferences) -> float:
        return 30e9

    def fetch(self, name: str, progress: DownloadProgress, leaving: LeaveSignal) -> None:
        line = next(
            line
            for line in (*self.catalog, *(one for many in self.files.values() for one in many))
            if line.name == name
        )
        progress(line.size_bytes // 2, line.size_bytes)
        while self.gate is not None and not self.gate.wait(0.005):
            if leaving.is_set():
                raise ShelfFault("The download was stopped.")
        if self.fetch_fault:
            raise ShelfFault(self.fetch_fault)
        progress(line.size_bytes, line.size_bytes)
        self.fetched.append(name)
        self.disk = (*self.disk, replace(line, place=ModelPlace.DISK))
        self.catalog = tuple(line for line in self.catalog if line.name != name)

    def machine(self) -> MachineFacts:
        return MachineFacts(
            cpu_name="Fast [CPU] 9000",
            num_cores=2,
            isa="avx512",
            memory_total_bytes=16_000 * MB,
            memory_available_bytes=FREE_BYTES,
            devices=self.devices,
            models_folder="/models/here",
        )

    def is_offline(self) -> bool:
        return self.offline


@dataclass(kw_only=True)
class FakeKeeper:
    """Remembers what was kept."""

    saved: dict[str, Value] = field(default_factory=dict)
    presets: dict[str, Mapping[str, Value] | None] = field(default_factory=dict)

    def save(self, values: Mapping[str, Value]) -> None:
        self.saved |= values

    def save_preset(self, name: str, values: Mapping[str, Value] | None) -> None:
        self.presets[name] = values


def desk_for(
    engine: FakeEngine,
    preferences: Preferences,
    *,
    shelf: FakeShelf | None = None,
    keeper: FakeKeeper | None = None,
    loaded: list[Preferences] | None = None,
) -> ModelDesk:
    """A desk whose every model is this engine; `loaded` gathers what it was loaded with."""

    first_name = engine.facts.name

    def make_loader(wanted: Preferences) -> EngineLoader:
        def load(progress, leaving):  # type: ignore[no-untyped-def]
            if loaded is not None:
                loaded.append(wanted)
            name = first_name if wanted.model == preferences.model else wanted.model or ""
            engine.facts = replace(engine.facts, name=name)
            if wanted.ctx_size is not None:
                engine.facts = replace(engine.facts, context_size=wanted.ctx_size)
            return engine.load(progress, leaving)

        return load

    return ModelDesk(
        shelf=shelf or FakeShelf(), preferences=preferences, make_loader=make_loader, keeper=keeper or FakeKeeper()
    )
