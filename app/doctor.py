"""`tandem doctor`: what a bug report needs, as text or as one JSON object.

Owns the choice of facts and their names.  Does not know how a fact is found out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.errors import EXIT_SUCCESS
from app.output import Console
from app.versions import package_versions, tandem_version

if TYPE_CHECKING:
    from runtime.cards import Cards

_VARIABLES = ("TANDEM_", "HF_", "NUMBA_", "OMP_", "PIP_", "XDG_", "LANG", "LC_", "TERM", "COLORTERM", "NO_COLOR")
_SECRETS = ("TOKEN", "PASSWORD", "SECRET", "KEY", "INDEX_URL", "PROXY")


@dataclass(frozen=True, kw_only=True)
class Folders:
    """Where Tandem looks."""

    models: Path
    kernels: Path
    settings_file: Path


@dataclass(frozen=True, kw_only=True)
class KernelsFacts:
    """Compiled kernels.  num_kernels: by the set they belong to (instruction set and fingerprint)."""

    folder: str
    is_writable: bool
    num_kernels: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class ModelsFacts:
    """The models folder."""

    folder: str
    num_models: int
    size_bytes: int
    free_bytes: int | None


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Everything that is shown; the JSON object has these names."""

    tandem: str
    versions: Mapping[str, str]
    machine: Mapping[str, Any]
    default_threads: int
    kernels: KernelsFacts
    devices: tuple[str, ...]
    models: ModelsFacts
    settings_file: str
    settings_file_exists: bool
    environment: Mapping[str, str]


def run(folders: Folders, console: Console, *, as_json: bool) -> int:
    """Look at everything and print it."""
    diagnosis = diagnose(folders)
    if as_json:
        console.json(asdict(diagnosis))
    else:
        console.text("".join(f"{line}\n" for line in _lines(diagnosis)))
    return EXIT_SUCCESS


def diagnose(folders: Folders, environment: Mapping[str, str] = os.environ) -> Diagnosis:
    """The facts as they are now."""
    from runtime.cards import read_cards
    from runtime.machine import default_threads, read_machine

    machine = read_machine()
    return Diagnosis(
        tandem=tandem_version(),
        versions=package_versions(),
        machine=asdict(machine),
        default_threads=default_threads(machine),
        kernels=_kernels_facts(folders.kernels),
        devices=(f"cpu: {machine.cpu_name}, {machine.isa}", *gpu_lines(read_cards())),
        models=_models_facts(folders.models),
        settings_file=str(folders.settings_file),
        settings_file_exists=folders.settings_file.is_file(),
        environment=_shown_variables(environment),
    )


def gpu_lines(cards: Cards) -> list[str]:
    """Every card with what decides whether and how it is used, or why there is none."""
    from runtime.catalog import size_text

    driver = f", driver {cards.driver_version}" if cards.driver_version else ""
    lines = [
        f"gpu {card.index}: {card.name}, compute capability {card.capability_text}, {size_text(card.free_bytes)} of "
        f"{size_text(card.total_bytes)} free{driver}"
        for card in cards.cards
    ]
    if sum(card.is_usable for card in cards.cards) > 1:
        lines.append(
            "gpu: layers are not spread over several: one is used, with most memory free, or which --device NUMBER says"
        )
    return [*lines, *([f"gpu: {cards.fault}"] if cards.fault else [])]


def _kernels_facts(folder: Path) -> KernelsFacts:
    sets = sorted(place for place in folder.iterdir() if place.is_dir()) if folder.is_dir() else []
    existing = _existing(folder)
    return KernelsFacts(
        folder=str(folder),
        is_writable=existing is not None and os.access(existing, os.W_OK),
        num_kernels={place.name: len(list(place.glob("*.o"))) for place in sets},
    )


def _existing(folder: Path) -> Path | None:
    """The folder, or the nearest above it that is there."""
    return next((place for place in (folder, *folder.parents) if place.is_dir()), None)


def _models_facts(folder: Path) -> ModelsFacts:
    import shutil

    from runtime.catalog import list_local

    models = list_local(folder)
    existing = _existing(folder)
    return ModelsFacts(
        folder=str(folder),
        num_models=len(models),
        size_bytes=sum(model.size_bytes for model in models),
        free_bytes=shutil.disk_usage(existing).free if existing else None,
    )


def _shown_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that change what happens; secrets only as being set."""
    return {
        name: "(set)" if any(word in name.upper() for word in _SECRETS) else value
        for name, value in sorted(environment.items())
        if name.startswith(_VARIABLES)
    }


def _lines(diagnosis: Diagnosis) -> list[str]:
    from runtime.catalog import size_text

    models, kernels = diagnosis.models, diagnosis.kernels
    free = f", {size_text(models.free_bytes)} free" if models.free_bytes is not None else ""
    exists = "" if diagnosis.settings_file_exists else " (not there)"
    return [
        f"tandem {diagnosis.tandem}",
        "",
        *_section("Versions", diagnosis.versions),
        "",
        *_section("Machine", diagnosis.machine),
        f"  default_threads: {diagnosis.default_threads}",
        "",
        *_section("Kernels", {"folder": kernels.folder, "is_writable": kernels.is_writable, **kernels.num_kernels}),
        "",
        "Devices",
        *(f"  {device}" for device in diagnosis.devices),
        "",
        "Files",
        f"  models: {models.folder} ({models.num_models}, {size_text(models.size_bytes)}{free})",
        f"  settings: {diagnosis.settings_file}{exists}",
        "",
        *_section("Environment", diagnosis.environment),
    ]


def _section(title: str, facts: Mapping[str, Any]) -> list[str]:
    from runtime.catalog import size_text

    def told(name: str, value: Any) -> str:
        if value is None:
            return "-"
        return size_text(value) if name.endswith("_bytes") else str(value)

    return [title, *(f"  {name}: {told(name, value)}" for name, value in facts.items())]
