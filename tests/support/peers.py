"""What llama.cpp computes for the tiny models, and where it computes something else (see scripts/make_peer_logits.py).

Owns tests/data/llama_cpp and the known differences, each as a change of our side that must bring both together again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from gated_products import activate
from oracle import FileWeights, Oracle
from references import path_of

from models.architectures import ARCHITECTURES
from models.description import load_description
from models.gguf_file import ModelFile, open_model_file
from models.hyperparameters import read_hyperparameters
from models.lowering import lower
from models.program import Activation, Attend, Normalize, Program

Array = np.ndarray[Any, np.dtype[Any]]

FOLDER = Path(__file__).resolve().parents[1] / "data" / "llama_cpp"


@dataclass(frozen=True, kw_only=True)
class PeerLogits:
    """plain, rounded: logits [T, vocabulary] with the weights as float32 and with the file as it is."""

    source: str
    plain: Array
    rounded: Array


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Where llama.cpp computes something else than the reference: in words, and as a change of our side."""

    words: str
    program: Callable[[ModelFile], Program] | None = None
    activate: Callable[[Array, Activation], Array] = activate


def peer_of(name: str) -> PeerLogits | None:
    """llama.cpp's logits of a tiny model; None where they were not made."""
    path = FOLDER / f"{name}.npz"
    if not path.exists():
        return None
    with np.load(path) as data:
        return PeerLogits(source=str(data["source"]), plain=data["plain"], rounded=data["rounded"])


def peer_like_logits(name: str, ids: Array) -> Array:
    """Our logits in float64, with what llama.cpp is known to do differently done as it does."""
    difference = DIFFERENCES.get(name, Difference(words=""))
    with open_model_file(path_of(name)) as file:
        program = (difference.program or (lambda file: load_description(file).program))(file)
        return Oracle(program, FileWeights(file), activate=difference.activate).logits(ids.tolist())


def _without_window(file: ModelFile) -> Program:
    program = load_description(file).program
    operations = (
        replace(operation, cache=replace(operation.cache, window=None)) if isinstance(operation, Attend) else operation
        for operation in program.operations
    )
    return replace(program, operations=tuple(operations))


def _without_epsilon(file: ModelFile) -> Program:
    program = load_description(file).program
    operations = (
        replace(operation, epsilon=0.0) if isinstance(operation, Normalize) else operation
        for operation in program.operations
    )
    return replace(program, operations=tuple(operations))


def _with_truncated_yarn(file: ModelFile) -> Program:
    architecture = replace(ARCHITECTURES["gpt-oss"], truncates_yarn=True)
    shapes = {name: tensor.shape for name, tensor in file.tensors.items()}
    return lower(architecture, read_hyperparameters(file.metadata, architecture.mathematics), shapes)


def _gelu_of_halves(x: Array, activation: Activation) -> Array:
    """Looked up in a table by a float16, as a float16; beyond 10 it is x itself, or nothing."""
    if activation != "gelu_tanh":
        return activate(x, activation)
    looked_up = activate(x.astype(np.float16).astype(np.float64), activation).astype(np.float16).astype(x.dtype)
    return np.where(x <= -10.0, 0.0, np.where(x >= 10.0, x, looked_up))


_GELU = Difference(words="looks the GELU up in a table of float16 numbers", activate=_gelu_of_halves)
_WINDOW = Difference(words="attends to everything: it leaves this family's window out", program=_without_window)
DIFFERENCES: Mapping[str, Difference] = {
    "gemma": _GELU,
    "gemma2": _GELU,
    "gemma3": _GELU,
    "gemma4": _GELU,
    "gemma4-moe": _GELU,
    "gpt-oss": Difference(
        words="rounds the ends of YaRN's ramp to whole pairs, which this family's configuration says not to do",
        program=_with_truncated_yarn,
    ),
    "phi2": _GELU,
    "phi3": _WINDOW,
    "qwen2vl": Difference(words="reads no epsilon of this family's norms: it takes 0", program=_without_epsilon),
    "starcoder2": replace(_GELU, words=f"{_WINDOW.words}; it {_GELU.words}", program=_without_window),
}
"""By the model's name."""
