"""Models bound to the CPU's kernels, fed token by token, in pieces or in batches of several sequences.

Owns page tables and batches as an engine would make them, in plain sight.  Does not know what logits should be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from kernels import KERNEL_FOLDER
from kv_types import hadamard, round_to
from oracle import FileWeights, Oracle
from tiny_models import write_tiny_model

from kernels_cpu.activations import Precision
from kernels_cpu.binding import CpuModel, CpuOptions, bind
from kernels_cpu.kv_layout import PAGE_SIZE, CacheTypes
from kernels_cpu.plan import CpuLimits
from models.description import load_description
from models.gguf_file import open_model_file
from models.program import RotateAndStore
from models.segments import whole

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A tiny model to write.  others: formats of some matrices, by a part of their names."""

    architecture: Literal["llama", "qwen2", "gemma3"]
    format: str
    others: tuple[tuple[str, str], ...] = ()
    is_tied: bool = True

    def write(self, folder: Path) -> Path:
        """The model as a file in a folder."""
        path, formats = folder / f"{self}.gguf", dict(self.others)
        return write_tiny_model(
            path, architecture=self.architecture, format=self.format, formats=formats, is_tied=self.is_tied
        )

    def __str__(self) -> str:
        return "-".join([self.architecture, self.format, *(name for _, name in self.others)])


KINDS = (
    Kind(architecture="llama", format="Q4_0", is_tied=False),
    Kind(architecture="llama", format="Q4_K", others=(("attn_v", "Q6_K"), ("ffn_down", "Q6_K"))),
    Kind(architecture="qwen2", format="Q5_K", others=(("ffn_up", "Q3_K"), ("token_embd", "Q2_K"))),
    Kind(architecture="qwen2", format="Q4_1", others=(("attn_q", "Q5_1"), ("attn_k", "F32"), ("output", "BF16"))),
    Kind(architecture="gemma3", format="Q8_0"),
    Kind(architecture="gemma3", format="Q5_0", others=(("ffn_gate", "F16"), ("ffn_up", "BF16"), ("token_embd", "F16"))),
)


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Tokens of one sequence that stand together in a batch."""

    ids: Sequence[int]
    start: int = 0
    slot: int = 0


@dataclass(frozen=True, kw_only=True)
class BoundModel:
    """A bound model with page tables int32 [sequences, pages of a context]; one page is left over.

    states: by slot, the state that its sequence left last.
    """

    model: CpuModel
    tables: Array
    states: dict[int, int] = field(default_factory=dict)

    def run(self, *pieces: Piece, outputs: Sequence[int] | None = None) -> Array | None:
        """A copy of the logits of one batch at `outputs`, all tokens unless given; None when it was cancelled."""
        ids = np.concatenate([np.asarray(piece.ids, np.int32) for piece in pieces])
        positions = np.concatenate([np.arange(p.start, p.start + len(p.ids), dtype=np.int32) for p in pieces])
        slots = np.repeat(np.array([p.slot for p in pieces], np.int32), [len(p.ids) for p in pieces])
        wanted = np.asarray(range(len(ids)) if outputs is None else outputs, np.int32)
        pairs = self._pairs(pieces)
        rows = self.model.run(ids, positions, slots, self.tables, wanted, pairs)
        if rows is None:
            return None
        for piece in pieces:
            self.states[piece.slot] = pairs[piece.slot, 1]
        return rows.copy()

    def _pairs(self, pieces: Sequence[Piece]) -> Array:
        """The state that each slot goes on from, and the other one of its two, which it leaves."""
        pairs = np.full((len(self.tables), 2), -1, np.int32)
        for piece in pieces:
            now = -1 if piece.start == 0 else self.states.get(piece.slot, -1)
            pairs[piece.slot] = now, 2 * piece.slot + (now == 2 * piece.slot)
        return pairs

    def logits(self, ids: Sequence[int], *, size: int = 64, start: int = 0, slot: int = 0) -> Array:
        """Logits at every position of a sequence from `start` on, fed `size` tokens at a time."""
        rows = []
        for first in range(0, len(ids), size):
            found = self.run(Piece(ids=ids[first : first + size], start=start + first, slot=slot))
            assert found is not None
            rows.append(found)
        return np.concatenate(rows)


@dataclass
class CacheOracle(Oracle):
    """The oracle with keys and values rounded to a cache's types when they are stored."""

    cache_types: tuple[str, str] = ("f16", "f16")

    def _rotate_and_store(self, operation: RotateAndStore, buffers: Any, tokens: Any, typed: Any) -> None:
        super()._rotate_and_store(operation, buffers, tokens, typed)
        for slot, indexes in tokens.sequences():
            place, start = (operation.layer_idx, slot), tokens.positions[indexes[0]]
            for kind, kept, is_key in zip(self.cache_types, (self._keys, self._values), (True, False), strict=True):
                kept[place][start:] = _rounded(kind, kept[place][start:], is_turned=is_key and kind == "q4_0")


def _rounded(kind: str, x: Array, *, is_turned: bool) -> Array:
    """x [..., head_dim] as a type holds it; is_turned: by way of the Hadamard transform, and back."""
    turn = np.eye(1)
    if is_turned:
        size = x.shape[-1] & -x.shape[-1]
        turn = np.kron(np.eye(x.shape[-1] // size), hadamard(size))
        x = x @ turn
    values = round_to(kind, x.astype(np.float32)).values().astype(np.float64)
    return values @ turn if is_turned else values


def expected_logits(path: Path, ids: Sequence[int], cache_types: tuple[str, str] = ("f16", "f16")) -> Array:
    """float64 logits of a file's model at every position of a sequence."""
    with open_model_file(path) as file:
        oracle = CacheOracle(load_description(file).program, FileWeights(file), cache_types=cache_types)
        return oracle.logits(ids)


@contextmanager
def bound(
    path: Path,
    *,
    isa: str = "auto",
    activations: Precision = "exact",
    threads: int = 1,
    limits: CpuLimits | None = None,
    cache_types: tuple[str, str] = ("f16", "f16"),
    context_size: int | None = None,
    seed: int | None = None,
    requantize: bool = False,
) -> Iterator[BoundModel]:
    """A file's model with a seed's page tables, or pages in order; closed at the end.

    context_size: for which the model chooses its tables; None: for all that it was trained for.
    """
    limits = limits or limits_of(cache_types=cache_types)
    options = CpuOptions(
        threads=threads, activations=activations, isa=isa, kernel_folder=KERNEL_FOLDER, requantize=requantize
    )
    with open_model_file(path) as file:
        segment = whole(load_description(file, context_size=context_size).program)
        model = bind(segment, file, limits, options)
    try:
        pages = (
            np.arange(limits.num_pages) if seed is None else np.random.default_rng(seed).permutation(limits.num_pages)
        )
        shape = (limits.max_sequences, -(-limits.context_size // PAGE_SIZE))
        tables = pages[: shape[0] * shape[1]].reshape(shape).astype(np.int32)
        yield BoundModel(model=model, tables=tables)
    finally:
        model.close()


def limits_of(
    *,
    tokens: int = 64,
    outputs: int = 64,
    sequences: int = 3,
    context: int = 512,
    cache_types: tuple[str, str] = ("f16", "f16"),
) -> CpuLimits:
    """Room for so much, and pages for every sequence's whole context and one more."""
    return CpuLimits(
        max_batch_tokens=tokens,
        max_outputs=outputs,
        max_sequences=sequences,
        context_size=context,
        num_pages=sequences * -(-context // PAGE_SIZE) + 1,
        num_states=2 * sequences,
        cache_types=CacheTypes.named(*cache_types),
    )
