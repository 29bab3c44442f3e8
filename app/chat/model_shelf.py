"""Models on the disk, in the catalog and on the hub, as the chat asks for them.

Owns the translation between the runtime's façades and the chat's values. Knows nothing of the screen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from app.chat.engine_port import LeaveSignal, MemoryUse
from app.chat.model_port import (
    Bill,
    DownloadProgress,
    MachineFacts,
    ModelLine,
    ModelPlace,
    RepositoryLine,
    ShelfFault,
)
from app.chat.settings_cost import MOST_CONTEXT_SIZE
from app.drafts import add_draft
from app.errors import report_of
from app.loading import STALLED_AFTER_S
from app.preferences import Preferences
from app.profiles import with_profile
from app.runtime_options import engine_options

if TYPE_CHECKING:
    from runtime import EngineOptions
    from runtime.catalog import CatalogEntry, LocalModel
    from runtime.memory import DeviceBill


class RuntimeShelf:
    """See model_port.ModelShelf."""

    def __init__(self, folder: Path, *, offline: bool) -> None:
        self._folder = folder
        self._offline = offline

    def default_name(self) -> str:
        """The catalog's."""
        from runtime.catalog import DEFAULT_MODEL

        return DEFAULT_MODEL

    def names_on_disk(self) -> tuple[str, ...]:
        """The folder's models, those of the catalog first."""
        from runtime.catalog import list_local

        with _faults():
            return tuple(model.name for model in list_local(self._folder))

    def on_disk(self) -> tuple[ModelLine, ...]:
        """The same with what their files or the catalog tell."""
        from runtime.catalog import list_local

        with _faults():
            return tuple(map(_local_line, list_local(self._folder)))

    def in_catalog(self) -> tuple[ModelLine, ...]:
        """The rest of the catalog, what can be run first."""
        from runtime.catalog import CATALOG, list_unfinished, local_path

        with _faults():
            left = {unfinished.file_name: unfinished.size_bytes for unfinished in list_unfinished(self._folder)}
            missing = [entry for entry in CATALOG.values() if local_path(entry, self._folder) is None]
            lines = [_catalog_line(entry, left.get(entry.local_name, 0)) for entry in missing]
        return tuple(sorted(lines, key=lambda line: (bool(line.refusal), line.size_bytes)))

    def search(self, text: str) -> tuple[RepositoryLine, ...]:
        """Repositories with GGUF files, the most downloaded first."""
        from runtime.catalog import search_hub

        with _faults():
            found = search_hub(text, offline=self._offline)
        return tuple(
            RepositoryLine(
                name=repository.name,
                licence=repository.licence,
                architecture=repository.architecture,
                num_parameters=repository.num_parameters,
                num_downloads=repository.num_downloads,
                is_gated=repository.is_gated,
            )
            for repository in found
        )

    def in_repository(self, repository: RepositoryLine) -> tuple[ModelLine, ...]:
        """Its models, the smallest first."""
        from runtime.catalog import list_unfinished, models_of_repository

        with _faults():
            found = models_of_repository(repository.name, offline=self._offline)
            left = {unfinished.file_name: unfinished.size_bytes for unfinished in list_unfinished(self._folder)}
        return tuple(
            ModelLine(
                name=model.reference,
                title="",
                place=ModelPlace.HUB,
                size_bytes=model.size_bytes,
                quantisation=model.quantisation,
                licence=repository.licence,
                unfinished_bytes=sum(left.get(f"{repository.name}/{name}", 0) for name in model.file_names),
            )
            for model in found
        )

    def bill(self, line: ModelLine, preferences: Preferences, *, freed_bytes: int) -> Bill:
        """Exact for a file that is here, an estimate for one that is not."""
        if line.place is not ModelPlace.DISK:
            return self._estimate(line, freed_bytes)
        from runtime import CapacityError
        from runtime.bills import bill_of

        with _faults():
            path, options = self._to_load(line, preferences)
            try:
                bill = bill_of(path, options, freed_bytes=freed_bytes)
            except CapacityError as error:
                return Bill(
                    needed_bytes=error.needed_bytes,
                    available_bytes=error.available_bytes,
                    fits=False,
                    sentence=str(error),
                )
        return Bill(
            needed_bytes=bill.total_bytes,
            available_bytes=bill.devices[0].free_bytes,
            fits=True,
            context_size=bill.context_size,
            memory=tuple(map(_use, bill.devices)),
            gpu_layers=bill.gpu_layers,
        )

    def largest_context(self, line: ModelLine, preferences: Preferences, *, freed_bytes: int) -> int | None:
        """Up to a million tokens; None for a file that is not here."""
        if line.place is not ModelPlace.DISK:
            return None
        from runtime.bills import largest_context

        with _faults():
            path, options = self._to_load(line, replace(preferences, ctx_size=None))
            return largest_context(path, options, most=MOST_CONTEXT_SIZE, freed_bytes=freed_bytes)

    def pass_bytes(self, line: ModelLine, preferences: Preferences) -> Callable[[int], int]:
        """By the sums of the tensors and the cache."""
        from runtime.device_speed import pass_reads

        with _faults():
            return pass_reads(*self._to_load(line, preferences)).bytes_at

    def variables_of(self, templates: Sequence[str]) -> tuple[str, ...]:
        """By reading them, not by rendering."""
        from runtime.files import variables_read_by

        return variables_read_by(templates)

    def memory_speed(self, preferences: Preferences) -> float:
        """Measured now."""
        from runtime.device_speed import memory_speed

        with _faults():
            return memory_speed(engine_options(preferences))

    def fetch(self, name: str, progress: DownloadProgress, leaving: LeaveSignal) -> None:
        """Fetches what is missing."""
        from runtime.catalog import resolve_model

        with _faults():
            resolve_model(name, folder=self._folder, offline=self._offline, progress=progress, cancel=leaving)

    def machine(self) -> MachineFacts:
        """The facts as they are now."""
        from runtime.cards import read_cards
        from runtime.catalog import size_text
        from runtime.machine import read_machine

        machine, cards = read_machine(), read_cards().cards
        return MachineFacts(
            cpu_name=machine.cpu_name,
            num_cores=machine.num_cores,
            isa=machine.isa,
            memory_total_bytes=machine.memory_total_bytes,
            memory_available_bytes=machine.memory_available_bytes,
            devices=tuple(f"{card.name}, {size_text(card.free_bytes)} free" for card in cards if card.is_usable),
            models_folder=str(self._folder),
        )

    def is_offline(self) -> bool:
        """By the command line or the environment."""
        from runtime.catalog import access_from_environment

        return access_from_environment(offline=self._offline).is_offline

    def _to_load(self, line: ModelLine, preferences: Preferences) -> tuple[Path, EngineOptions]:
        """The file, and the options with the draft model that would guess for it, if that is here."""

        def resolve(name: str) -> Path:
            return self._path(name)

        path = self._path(line.name)
        options = engine_options(with_profile(preferences, path))
        return path, add_draft(options, preferences.draft_model, path, self._folder, resolve)

    def _path(self, name: str) -> Path:
        from runtime.catalog import resolve_model

        return resolve_model(name, folder=self._folder, offline=True)

    @staticmethod
    def _estimate(line: ModelLine, freed_bytes: int) -> Bill:
        from runtime.bills import estimate

        rough = estimate(line.size_bytes)
        available = None if rough.available_bytes is None else rough.available_bytes + freed_bytes
        fits = None if available is None else rough.needed_bytes <= available
        return Bill(needed_bytes=rough.needed_bytes, available_bytes=available, fits=fits)


def _local_line(model: LocalModel) -> ModelLine:
    from runtime.catalog import quantisation_of, why_not_runnable
    from runtime.files import read_facts

    entry = model.entry
    if entry is not None:
        title, licence, refusal = entry.title, entry.licence, why_not_runnable(entry) or ""
    else:
        try:
            facts = read_facts(model.paths[0])
            title, licence, refusal = facts.name or "", facts.licence or "", facts.refusal or ""
        except Exception as fault:  # One bad file must not hide the others.
            title, licence, refusal = "", "", report_of(fault).message
    return ModelLine(
        name=model.name,
        title=title,
        place=ModelPlace.DISK,
        size_bytes=model.size_bytes,
        quantisation=quantisation_of(model.paths[0].name) or "",
        licence=licence,
        refusal=refusal,
    )


def _use(device: DeviceBill) -> MemoryUse:
    memory = device.memory
    return MemoryUse(
        device="CPU" if device.kind == "cpu" else device.name,
        weights_bytes=memory.weights_bytes,
        kv_bytes=memory.kv_bytes,
        workspace_bytes=memory.workspace_bytes,
        own_bytes=device.graph_bytes,
        draft_bytes=device.draft.total_bytes if device.draft is not None else 0,
    )


def _catalog_line(entry: CatalogEntry, unfinished_bytes: int) -> ModelLine:
    from runtime.catalog import quantisation_of, why_not_runnable

    return ModelLine(
        name=entry.name,
        title=entry.title,
        place=ModelPlace.CATALOG,
        size_bytes=entry.size_bytes,
        quantisation=quantisation_of(entry.file_name) or "",
        licence=entry.licence,
        refusal=why_not_runnable(entry) or "",
        unfinished_bytes=unfinished_bytes,
    )


def _give_up(label: str, waited_s: float) -> None:
    if waited_s >= STALLED_AFTER_S:
        raise ShelfFault(
            f"{label} has not answered for {waited_s:.0f} s: look whether the disk or network share is there."
        )


@contextmanager
def _faults() -> Iterator[None]:
    """What the rooms raise, and files that do not answer, as one sentence."""
    from runtime.patience import patient_files

    try:
        with patient_files(_give_up):
            yield
    except ShelfFault:
        raise
    except Exception as fault:
        report = report_of(fault)
        raise ShelfFault(f"{report.message} {report.hint or ''}".strip()) from fault
