"""One launch of a kernel, as data, and all that it depends on.

Owns these shapes.  Does not know which launches a program needs (steps.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kernels_gpu.device import Region, Shape


@dataclass(frozen=True, kw_only=True)
class Module:
    """What is compiled at once, and the kernels in it."""

    source: str
    defines: tuple[str, ...]
    kernels: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One launch of a kernel."""

    module: Module
    kernel: str
    grid: Shape
    block: int
    arguments: tuple[np.generic, ...]
    shared_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class Best:
    """What is wanted of a row of logits: so many of the best among the first `columns`."""

    kept: int
    columns: int


@dataclass(frozen=True, kw_only=True)
class BatchShape:
    """All that launches depend on.

    run_idx: of the segment's runs.  spans: pieces of 128 positions that attention looks at.  best: of the logits, None
    where all are wanted.
    is_prefill: products before the head run on tensor cores, whose sums have another order than those of decode; so a
    prompt's tokens all go one way, however it is cut.
    """

    num_tokens: int
    num_outputs: int
    spans: int
    run_idx: int = 0
    is_prefill: bool = False
    best: Best | None = None


@dataclass(frozen=True, kw_only=True)
class Places:
    """Regions of everything a launch touches."""

    matrices: Mapping[str, Region]
    vectors: Mapping[str, Region]
    caches: Mapping[int, Region]
    workspace: Mapping[str, Region]


Argument = Region | int | float | None


def scalars(values: Sequence[Argument]) -> tuple[np.generic, ...]:
    """As a device takes them; None: no address."""

    def scalar(value: Argument) -> np.generic:
        match value:
            case None:
                return np.uint64(0)
            case Region():
                return value.pointer
            case float():
                return np.float32(value)
            case _:
                return np.int32(value)

    return tuple(map(scalar, values))


def launch(module: Module, kernel: str, grid: Shape, block: int, *arguments: Argument, shared_bytes: int = 0) -> Launch:
    """One with these arguments."""
    return Launch(
        module=module, kernel=kernel, grid=grid, block=block, arguments=scalars(arguments), shared_bytes=shared_bytes
    )
