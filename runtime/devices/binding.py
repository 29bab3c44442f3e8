"""The seam between the engine and a device: a batch of tokens in, logits out.

Owns the shape of that exchange.  Does not know models, kernels, sampling or text.

A binding holds K and V in `num_pages` pages of PAGE_SIZE positions each.  Which page belongs to which sequence is the
engine's business: it sends page tables with every batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

import numpy as np

from models.transfers import size_text

PAGE_SIZE = 64

Activations = Literal["fast", "balanced", "exact"]
CacheType = Literal["f16", "q8_0", "q4_0"]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a binding reserved room for when it was made.

    max_batch_tokens: tokens a run; max_outputs: rows of logits a run; max_sequences: sequences (slots) a run;
    context_size: positions a sequence; num_pages: pages of PAGE_SIZE positions, for all sequences together.
    num_states: of models that keep some, for all sequences together; 0 where the model keeps none.
    """

    max_batch_tokens: int
    max_outputs: int
    max_sequences: int
    context_size: int
    num_pages: int
    num_states: int = 0


@dataclass(frozen=True, kw_only=True)
class DeviceOptions:
    """How a program is bound.

    threads: on a CPU; activations: how inputs of products are rounded; isa: the instruction set; kernel_folder: where
    compiled kernels are kept; requantize: on a CPU, weights of products that take more than 4.5 bits become Q4_0.
    """

    limits: Limits
    threads: int
    cache_type_k: CacheType
    cache_type_v: CacheType
    activations: Activations
    isa: str
    kernel_folder: Path
    requantize: bool = False


@dataclass(frozen=True, kw_only=True)
class CardPlace:
    """Which card: its bus id, None for the first.  free_bytes: as the driver said before anything was loaded."""

    bus_id: str | None = None
    free_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class DeviceMemory:
    """Bytes that a binding reserves: nothing is allocated after it was made.  States are part of kv_bytes."""

    weights_bytes: int
    kv_bytes: int
    workspace_bytes: int

    @property
    def total_bytes(self) -> int:
        """All of it."""
        return self.weights_bytes + self.kv_bytes + self.workspace_bytes

    def plus(self, other: DeviceMemory) -> DeviceMemory:
        """Both together."""
        return DeviceMemory(
            weights_bytes=self.weights_bytes + other.weights_bytes,
            kv_bytes=self.kv_bytes + other.kv_bytes,
            workspace_bytes=self.workspace_bytes + other.workspace_bytes,
        )

    def __str__(self) -> str:
        return (
            f"weights {size_text(self.weights_bytes)}, KV cache {size_text(self.kv_bytes)}, "
            f"workspace {size_text(self.workspace_bytes)}"
        )


@dataclass(frozen=True, kw_only=True)
class DeviceTimes:
    """Milliseconds since a program was bound: computing on the CPU and on the GPU, copying between them."""

    cpu_ms: float
    gpu_ms: float
    transfer_ms: float

    def since(self, before: DeviceTimes) -> DeviceTimes:
        """What came to an earlier state."""
        return DeviceTimes(
            cpu_ms=self.cpu_ms - before.cpu_ms,
            gpu_ms=self.gpu_ms - before.gpu_ms,
            transfer_ms=self.transfer_ms - before.transfer_ms,
        )


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What a run computes.  Tokens of one sequence stand together, at ascending positions without gaps.

    token_ids, positions, slots: int32 [T].  slots[t] is the row of page_tables that belongs to token t's sequence.
    is_prompt: bool [T], whether a token belongs to a prompt.  A device may compute a prompt in another way than what
    follows it: by this alone, never by the number of tokens, so that the result doesn't depend on the batch.
    page_tables: int32 [max_sequences, ceil(context_size / PAGE_SIZE)], -1 where there is no page.
    outputs: int32 [n], ascending indexes of the tokens whose logits are wanted.
    states: int32 [max_sequences, 2], where the model keeps states: for each slot in the batch the one to go on from (-1
    at position 0) and the one to leave.
    The arrays belong to the engine and hold only until the run returns.
    """

    token_ids: np.ndarray
    positions: np.ndarray
    slots: np.ndarray
    is_prompt: np.ndarray
    page_tables: np.ndarray
    outputs: np.ndarray
    states: np.ndarray


class Binding(Protocol):
    """A step program bound to a device.  One thread calls everything but cancel()."""

    @property
    def limits(self) -> Limits:
        """What a batch may hold."""
        ...

    @property
    def vocab_size(self) -> int:
        """The width of a row of logits."""
        ...

    @property
    def memory(self) -> DeviceMemory:
        """What was really reserved."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the user on what was met while binding."""
        ...

    def run(self, batch: Batch) -> np.ndarray:
        """float32 [n, vocab_size], valid until the next run; the caller may write into it.

        A state that the batch names to go on from is left as it is, unless it is named to be left as well.
        K and V of token t are written to page_tables[slots[t]][positions[t] // PAGE_SIZE] before attention reads them.
        Raises Cancelled when cancel() was called during the run; pages named by the batch then hold anything at its
        positions, and what they held at earlier positions.
        """
        ...

    def copy_page(self, source: int, target: int) -> None:
        """Copies K and V of every layer and position of one page to another."""
        ...

    def cancel(self) -> None:
        """From any thread: the run in progress stops at its next step and raises Cancelled.

        When no run is in progress, the next one stops instead, so that a cancel just before it is not lost.
        """
        ...

    def close(self) -> None:
        """Gives everything back.  May be called twice."""
        ...


@dataclass(frozen=True, kw_only=True)
class Best:
    """What is wanted of every row of logits: so many of the best among the first num_tokens."""

    count: int
    num_tokens: int


@dataclass(frozen=True, kw_only=True)
class BestRows:
    """The best of rows of logits: ids int32, logits float32, both [n, count or more], best first.

    Among equals the smaller id comes first; what is no number comes first of all.
    """

    ids: np.ndarray
    logits: np.ndarray


@runtime_checkable
class FindsBest(Protocol):
    """A binding that finds the best of the logits where they are, so that whole rows need not leave the device."""

    @property
    def most_best(self) -> int:
        """How many of a row it can find; 0: none, for now."""
        ...

    def run_best(self, batch: Batch, best: Best) -> BestRows:
        """As Binding.run(), whose rows' best these are.  best.count: at most most_best."""
        ...


@dataclass(frozen=True, kw_only=True)
class DeviceUse:
    """What one device really holds of a binding, counted as it was allocated.

    own_bytes: what a card's driver, kernels and recorded steps took beside that, by its free memory before and now, so
    that whatever other programs took meanwhile is in it; None where it is not known, and on a CPU.
    """

    kind: Literal["cpu", "gpu"]
    memory: DeviceMemory
    own_bytes: int | None = None


@runtime_checkable
class HasUses(Protocol):
    """A binding that says what is where."""

    @property
    def uses(self) -> tuple[DeviceUse, ...]:
        """A device each, the CPU first.  From any thread."""
        ...


def uses_of(binding: Binding) -> tuple[DeviceUse, ...]:
    """The same for any binding: one that says nothing is a CPU's."""
    return binding.uses if isinstance(binding, HasUses) else (DeviceUse(kind="cpu", memory=binding.memory),)


@runtime_checkable
class HasTimes(Protocol):
    """A binding that says where its time went."""

    @property
    def times(self) -> DeviceTimes: ...


def pages_for(num_positions: int) -> int:
    """How many pages hold that many positions."""
    return -(-num_positions // PAGE_SIZE)
