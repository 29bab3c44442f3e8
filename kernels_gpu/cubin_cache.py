"""Compiled kernels on disk: a .cu file, its layout and an architecture in, the path of a cubin out.

Owns the one way in which kernels are compiled, and the cache.  A cubin's name is a hash of everything that it was made
from: the source, every file that it can include, the layout, the options, the architecture, the compiler's version.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernels_gpu.nvrtc import Compiled, load_nvrtc

LAYOUT_NAME = "layout.h"
# No contraction behind our back: where a multiplication and an addition are one, the source says fmaf, and so a sum
# does not depend on how many tokens a kernel was made for.
OPTIONS = ("-std=c++17", "--fmad=false", "--device-as-default-execution-space", "--ptxas-options=-v")


@dataclass(frozen=True, kw_only=True)
class Unit:
    """What is compiled at once: a file, the lines of its layout.h, an architecture ("86")."""

    source: Path
    defines: tuple[str, ...]
    architecture: str

    def headers(self) -> dict[str, str]:
        """Every header beside the source, and the layout, by name."""
        beside = {path.name: path.read_text("utf-8") for path in sorted(self.source.parent.glob("*.cuh"))}
        return {**beside, LAYOUT_NAME: layout_text(self.defines)}


def layout_text(defines: Sequence[str]) -> str:
    """The generated header."""
    return "".join(f"#define {line}\n" for line in defines)


def compile_unit(unit: Unit) -> Compiled:
    """Compiles, whatever the cache holds.  Raises GpuError."""
    options = (f"-arch=sm_{unit.architecture}", *OPTIONS)
    return load_nvrtc().compile(unit.source.name, unit.source.read_text("utf-8"), unit.headers(), options)


def key_of(unit: Unit, version: tuple[int, int]) -> str:
    """32 hex digits."""
    facts = (unit.source.name, unit.source.read_text("utf-8"), unit.headers(), unit.architecture, OPTIONS, version)
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:32]


def cubin_path(unit: Unit, folder: Path) -> Path:
    """Where the unit's cubin lies; it is compiled first where the folder lacks it.  Raises GpuError, OSError."""
    name = f"{unit.source.stem}-sm_{unit.architecture}-{key_of(unit, load_nvrtc().version)}.cubin"
    path = folder / name
    if not path.exists():
        cubin = compile_unit(unit).cubin
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, suffix=".tmp", delete=False) as file:
            file.write(cubin)
        os.replace(file.name, path)  # whole or not at all, also when two programs compile at once
    return path
