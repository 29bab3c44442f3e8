"""Where figures are measured: versions and machine, and a warning where others use it too.

Owns which versions count and what a busy machine is.  Does not know what is measured.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from app.output import Console
from app.versions import package_versions, tandem_version
from runtime.benchmark.results import Environment
from runtime.machine import Machine

_VERSIONS = ("python", "numpy", "numba", "llvmlite")
_BUSY_SHARE = 0.5  # of the cores


def environment_of(machine: Machine, options: dict[str, Any]) -> Environment:
    """As it is now, before anything is measured.  options: what was asked for, as plain values."""
    versions = package_versions()
    return Environment(
        tandem=tandem_version(),
        versions={name: versions[name] for name in _VERSIONS if name in versions},
        machine={name: value for name, value in asdict(machine).items() if name != "load"},
        options=options,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        load_start=machine.load,
        load_end=None,
    )


def warn_if_busy(machine: Machine, console: Console, consequence: str) -> None:
    """consequence: what that does to the figures, the end of the sentence."""
    if machine.load is not None and machine.load > _BUSY_SHARE * machine.num_cores:
        console.note(
            f"warning: this machine is busy (load {machine.load:g} on {machine.num_cores} cores); {consequence}."
        )
