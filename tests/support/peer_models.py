"""Real models beside llama.cpp, with the weights as float32 and as they are, with and without a LoRA adapter.

Owns the real part of tests/data/llama_cpp (see scripts/make_peer_logits.py) and how our kernels are asked for the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cpu_models import BoundModel, limits_of
from golden import divergences, log_softmax
from kernels import KERNEL_FOLDER
from peers import FOLDER
from random_adapter import SCALE, write_random_adapter

from kernels_cpu.activations import Precision
from kernels_cpu.binding import CpuOptions, bind
from models.catalog import CATALOG
from models.description import load_description
from models.segments import whole
from runtime.adapters import AdapterChoice, open_adapted

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, kw_only=True)
class Distance:
    """From llama.cpp with float32 weights: mean and largest KL divergence in nats, how often the best tokens are equal.

    The first position is left out of the mean and largest: see docs/quality.md.
    """

    mean_kl: float
    max_kl: float
    same_best: float


@dataclass(frozen=True, kw_only=True)
class PeerModel:
    """What llama.cpp gave: see the script for the arrays."""

    source: str
    text: str
    ids: Array
    best_ids: Array
    plain: Array
    rounded: Array
    rounded_best: Array
    adapter_sha256: str | None

    @property
    def own_rounding(self) -> Distance:
        """How far llama.cpp itself is from that, with the file as people run it."""
        return _distance(self, self.rounded.astype(np.float64), self.rounded_best)


def peer_model(name: str, *, with_lora: bool = False) -> PeerModel | None:
    """llama.cpp's answers for a model of the catalog; None where they were not made."""
    path = FOLDER / f"{Path(CATALOG[name].file_name).stem}{'-lora' if with_lora else ''}.npz"
    if not path.exists():
        return None
    with np.load(path) as data:
        return PeerModel(
            source=str(data["source"]), text=str(data["text"]), ids=data["ids"], best_ids=data["best_ids"],
            plain=data["plain"], rounded=data["rounded"], rounded_best=data["rounded_best"],
            adapter_sha256=str(data["adapter_sha256"]) if with_lora else None,
        )  # fmt: skip


def own_distance(path: Path, peer: PeerModel, activations: Precision, folder: Path | None = None) -> Distance:
    """How far our kernels are; folder: where the adapter is written, if the peer had one."""
    choices: Sequence[AdapterChoice] = ()
    if peer.adapter_sha256 is not None:
        assert folder is not None
        adapter = write_random_adapter(path, folder / "random.gguf")
        assert hashlib.sha256(adapter.read_bytes()).hexdigest() == peer.adapter_sha256, "another adapter than theirs"
        choices = [AdapterChoice(path=adapter, scale=SCALE)]
    limits = limits_of(sequences=1)
    options = CpuOptions(threads=2, activations=activations, isa="auto", kernel_folder=KERNEL_FOLDER)
    with open_adapted(path, choices) as file:
        model = bind(whole(load_description(file).program), file, limits, options)
    try:
        tables = np.arange(limits.num_pages - 1, dtype=np.int32).reshape(1, -1)
        logits = BoundModel(model=model, tables=tables).logits(peer.ids.tolist())
    finally:
        model.close()
    found = np.take_along_axis(log_softmax(logits), peer.best_ids.astype(np.int64), axis=1)
    return _distance(peer, found, logits.argmax(axis=1))


def _distance(peer: PeerModel, logprobs: Array, best: Array) -> Distance:
    """logprobs [T, kept]: of the peer's best tokens."""
    kls = divergences(
        np.arange(logprobs.shape[1])[None].repeat(len(logprobs), 0), peer.plain.astype(np.float64), logprobs
    )
    return Distance(
        mean_kl=float(kls[1:].mean()),
        max_kl=float(kls[1:].max()),
        same_best=float((best == peer.best_ids[:, 0]).mean()),
    )
