"""`tandem doctor`: what a bug report needs, as text or as one JSON object.

Owns the choice of facts and their names.  Does not know how a fact is found out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from app.errors import EXIT_SUCCESS
from app.output import Console
from app.versions import package_versions, tandem_version

_VARIABLES = ("TANDEM_", "HF_", "NUMBA_", "OMP_", "PIP_", "XDG_", "LANG", "LC_", "TERM", "COLORTERM", "NO_COLOR")
_SECRETS = ("TOKEN", "PASSWORD", "SECRET", "KEY", "INDEX_URL", "PROXY")


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
    kernels: Mapping[str, Any]
    devices: tuple[str, ...]
    models: ModelsFacts
    settings_file: str
    settings_file_exists: bool
    environment: Mapping[str, str]


def run(models_folder: Path, settings_file: Path, console: Console, *, as_json: bool) -> int:
    """Look at everything and print it."""
    diagnosis = diagnose(models_folder, settings_file)
    if as_json:
        console.json(asdict(diagnosis))
    else:
        console.text("".join(f"{line}\n" for line in _lines(diagnosis)))
    return EXIT_SUCCESS


def diagnose(models_folder: Path, settings_file: Path, environment: Mapping[str, str] = os.environ) -> Diagnosis:
    """The facts as they are now."""
    from runtime.machine import default_threads, read_machine

    machine = read_machine()
    return Diagnosis(
        tandem=tandem_version(),
        versions=package_versions(),
        machine=asdict(machine),
        default_threads=default_threads(machine),
        kernels={},
        devices=(f"cpu: {machine.cpu_name}, {machine.isa}",),
        models=_models_facts(models_folder),
        settings_file=str(settings_file),
        settings_file_exists=settings_file.is_file(),
        environment=_shown_variables(environment),
    )


def _models_facts(folder: Path) -> ModelsFacts:
    import shutil

    from runtime.catalog import list_local

    models = list_local(folder)
    existing = next((place for place in (folder, *folder.parents) if place.is_dir()), None)
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

    models = diagnosis.models
    free = f", {size_text(models.free_bytes)} free" if models.free_bytes is not None else ""
    exists = "" if diagnosis.settings_file_exists else " (not there)"
    return [
        f"tandem {diagnosis.tandem}",
        "",
        *_section("Versions", diagnosis.versions),
        *_section("Machine", diagnosis.machine),
        f"  default_threads: {diagnosis.default_threads}",
        "",
        *_section("Kernels", diagnosis.kernels),
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
