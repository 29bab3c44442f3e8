"""Where another engine's benchmark is.

Owns the places that are looked at.  Does not know how it is run (runtime.benchmark.peers).
"""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from app.errors import AppError
from runtime.benchmark import llama_cpp_child
from runtime.benchmark.peers import LlamaBench

_PROGRAM = "llama-bench"
_IN_FOLDERS = (_PROGRAM, f"bin/{_PROGRAM}", f"build/bin/{_PROGRAM}", "bin/python", "bin/python3")


def find_peer(name: str, place: str | None) -> LlamaBench:
    """The engine called `name`: at `place` (a llama-bench, a Python, or a folder with one), or on the PATH.

    Raises AppError when there is none, PeerError when what is there can't be used.
    """
    path = _path(place) if place is not None else _installed()
    if path is None:
        where = (
            f"{place} is neither a program nor a folder with one" if place else f"there is no {_PROGRAM} on the PATH"
        )
        raise AppError(
            f"{name} can't be measured: {where}.",
            hint="--peer PATH names a llama-bench, or a Python that has llama_cpp (pip install llama-cpp-python).",
        )
    if path.name.startswith("python"):
        return LlamaBench([str(path), str(Path(llama_cpp_child.__file__).resolve())], name)
    return LlamaBench([str(path)], name)


def _installed() -> Path | None:
    found = shutil.which(_PROGRAM)
    if found is not None:
        return Path(found)
    return Path(sys.executable) if find_spec("llama_cpp") is not None else None


def _path(place: str) -> Path | None:
    path = Path(place).expanduser()
    candidates = [path / name for name in _IN_FOLDERS] if path.is_dir() else [path]
    for candidate in candidates:
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return candidate.absolute()
    found = shutil.which(place)
    return Path(found) if found is not None else None
