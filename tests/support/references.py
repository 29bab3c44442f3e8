"""Tiny models with the logits that another implementation gives for them (see scripts/make_references.py).

Owns tests/data/architectures.  Does not know how Tandem's logits are made.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

FOLDER = Path(__file__).resolve().parents[1] / "data" / "architectures"
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.gguf")))
CPU_ONLY = frozenset(
    (
        *("cohere2", "command-r", "command-r-plus", "hunyuan-dense", "starcoder2", "stablelm", "stablelm-12b"),
        *("nemotron", "arcee", "phi2"),
        *("gemma4", "gemma4-moe", "lfm2", "lfm2moe", "qwen35", "qwen35moe", "qwen3next", "qwen2moe", "olmoe"),
        *("granitemoe", "glm4moe"),
    )
)
"""Those with operations that no GPU kernel does."""


@dataclass(frozen=True, kw_only=True)
class Reference:
    """ids of a text and the logits [T, vocabulary] at each position, as `source` gave them.

    context_size: that the model is loaded for.
    """

    source: str
    ids: Array
    logits: Array
    context_size: int | None = None


def path_of(name: str) -> Path:
    """The model as a file."""
    return FOLDER / f"{name}.gguf"


def references_of(name: str) -> tuple[Reference, ...]:
    """A text, and where the model treats short contexts in another way, a short one loaded for so short a context."""
    with np.load(FOLDER / f"{name}.npz") as data:
        source = str(data["source"])
        whole = Reference(source=source, ids=data["ids"], logits=data["logits"])
        if "short_length" not in data:
            return (whole,)
        length = int(data["short_length"])
        ids, logits = data["ids"][:length], data["short_logits"]
        return whole, Reference(source=source, ids=ids, logits=logits, context_size=length)


def relative_error(found: Array, expected: Array) -> float:
    """Root mean square of the difference, in standard deviations of what is expected."""
    return float(np.sqrt(((found - expected) ** 2).mean()) / expected.std())
