"""A device without a model, for tests of the engine.

Its "K and V" are the token ids themselves, kept in pages and read back through the page tables; the logits are a
function of all the ids up to a position.  A wrong page, a stale page or a mixed-up batch gives another answer than
`plain_ids`, which needs no pages.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from runtime.devices.binding import PAGE_SIZE, Batch, Best, BestRows, DeviceMemory, Limits, pages_for
from runtime.engine import EngineDescription
from runtime.errors import Cancelled

DESCRIPTION = EngineDescription(
    name="Fake",
    architecture="none",
    num_parameters=0,
    formats=("F32",),
    size_bytes=0,
    trained_context_size=512,
    context_size=512,
    threads=1,
    path=Path("fake.gguf"),
    fingerprint="0",
)
VOCAB_SIZE = 400
_ROWS = np.random.default_rng(7).standard_normal((257, VOCAB_SIZE)).astype(np.float32) * 3


def make_limits(
    *,
    context_size: int = 512,
    max_sequences: int = 1,
    max_batch_tokens: int = 32,
    max_outputs: int = 8,
    num_pages: int | None = None,
    num_states: int = 0,
) -> Limits:
    """Limits for a small device; as many pages as all sequences need, unless said otherwise."""
    return Limits(
        context_size=context_size,
        max_sequences=max_sequences,
        max_batch_tokens=max_batch_tokens,
        max_outputs=max_outputs,
        num_pages=num_pages if num_pages is not None else max_sequences * pages_for(context_size),
        num_states=num_states,
    )


def row_after(token_ids: Sequence[int] | np.ndarray) -> np.ndarray:
    """float32 [VOCAB_SIZE]: the logits after these tokens."""
    key = zlib.crc32(np.asarray(token_ids, dtype=np.int32).tobytes())
    return np.roll(_ROWS[key % 257], key // 257)


def plain_ids(prompt: Sequence[int], count: int, *, num_tokens: int = VOCAB_SIZE) -> list[int]:
    """The `count` greedy ids below num_tokens after a prompt, without pages, batches or caches."""
    ids = list(prompt)
    for _ in range(count):
        ids.append(int(row_after(ids)[:num_tokens].argmax()))
    return ids[len(prompt) :]


class FakeBinding:
    """Satisfies runtime.devices.binding.Binding.  Where its limits say so it keeps states: the tokens so far.

    hold() makes runs wait until release() or cancel(), hold_at_run(n) those after the first n; `entered` is set when a
    run begins to wait.
    fail_next: raised by the next run.  num_tokens, num_runs: what was computed.  largest_run: tokens.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or make_limits()
        self.vocab_size = VOCAB_SIZE
        self.memory = DeviceMemory(
            weights_bytes=1000, kv_bytes=self.limits.num_pages * PAGE_SIZE * 4, workspace_bytes=10
        )
        self.notes: tuple[str, ...] = ()
        self.entered = threading.Event()
        self.fail_next: Exception | None = None
        self.num_tokens = 0
        self.num_runs = 0
        self.num_copies = 0
        self.largest_run = 0
        self.largest_outputs = 0
        self.is_closed = False
        self.threads: set[int] = set()
        self._pages = np.full((self.limits.num_pages, PAGE_SIZE), -1, dtype=np.int32)
        self._states: dict[int, tuple[int, ...]] = {}
        self._logits = np.zeros((self.limits.max_outputs, VOCAB_SIZE), dtype=np.float32)
        self._held_from = 0
        self._open = threading.Event()
        self._open.set()
        self._cancel = threading.Event()

    def hold(self) -> None:
        """Makes runs wait."""
        self.hold_at_run(self.num_runs)

    def hold_at_run(self, num_runs: int) -> None:
        """Makes runs wait once so many were done."""
        self.entered.clear()
        self._held_from = num_runs
        self._open.clear()

    def release(self) -> None:
        """Lets them go on."""
        self._open.set()

    def run(self, batch: Batch) -> np.ndarray:
        assert not self.is_closed
        self.threads.add(threading.get_ident())
        self._check(batch)
        while self.num_runs >= self._held_from and not self._open.is_set() and not self._cancel.is_set():
            self.entered.set()
            self._open.wait(0.001)
        if self._cancel.is_set():
            self._cancel.clear()
            raise Cancelled("stopped")
        if self.fail_next is not None:
            error, self.fail_next = self.fail_next, None
            raise error
        num_outputs = len(batch.outputs)
        for token_id, position, slot in zip(batch.token_ids, batch.positions, batch.slots, strict=True):
            self._pages[batch.page_tables[slot, position // PAGE_SIZE], position % PAGE_SIZE] = token_id
        self._advance_states(batch)
        for row, index in enumerate(batch.outputs):
            self._logits[row] = row_after(self._history(batch, int(index)))
        self.num_runs += 1
        self.num_tokens += len(batch.token_ids)
        self.largest_run = max(self.largest_run, len(batch.token_ids))
        self.largest_outputs = max(self.largest_outputs, num_outputs)
        return self._logits[:num_outputs]

    def _advance_states(self, batch: Batch) -> None:
        """A state holds the tokens that led to it; what a run goes on from must end where the run begins."""
        if not self.limits.num_states:
            return
        slots = dict.fromkeys(batch.slots.tolist())
        pairs = {slot: batch.states[slot].tolist() for slot in slots}
        assert len({target for _, target in pairs.values()}) == len(pairs), "two runs leave one state"
        assert not {source for source, _ in pairs.values()} & {target for _, target in pairs.values()}
        for slot, (source, target) in pairs.items():
            places = np.flatnonzero(batch.slots == slot)
            text = () if source < 0 else self._states[source]
            assert len(text) == batch.positions[places[0]], "a state of another position"
            self._states[target] = text + tuple(batch.token_ids[places].tolist())
            assert self._states[target] == tuple(self._history(batch, int(places[-1])).tolist()), "of another text"

    def copy_page(self, source: int, target: int) -> None:
        assert source != target
        self.num_copies += 1
        self._pages[target] = self._pages[source]

    def cancel(self) -> None:
        self._cancel.set()

    def close(self) -> None:
        self.is_closed = True

    def _history(self, batch: Batch, index: int) -> np.ndarray:
        slot, length = int(batch.slots[index]), int(batch.positions[index]) + 1
        pages = batch.page_tables[slot, : pages_for(length)]
        assert (pages >= 0).all(), "a position has no page"
        token_ids = self._pages[pages].reshape(-1)[:length]
        assert (token_ids >= 0).all(), "a position was never written"
        return token_ids

    def _check(self, batch: Batch) -> None:
        limits = self.limits
        count = len(batch.token_ids)
        assert 0 < count <= limits.max_batch_tokens
        assert len(batch.outputs) <= limits.max_outputs
        assert len(batch.positions) == len(batch.slots) == count
        assert batch.page_tables.shape == (limits.max_sequences, pages_for(limits.context_size))
        for array in (batch.token_ids, batch.positions, batch.slots, batch.page_tables, batch.outputs):
            assert array.dtype == np.int32
        assert (np.diff(batch.outputs) > 0).all()
        assert batch.positions.max() < limits.context_size
        for slot in set(batch.slots.tolist()):
            places = np.flatnonzero(batch.slots == slot)
            assert (np.diff(places) == 1).all(), "tokens of a sequence stand together"
            assert (np.diff(batch.positions[places]) == 1).all(), "positions ascend without gaps"


class FindingBinding(FakeBinding):
    """One that also finds the best of a row.  found: how many were asked for, of each run that did."""

    most_best = 64

    def __init__(self, limits: Limits | None = None) -> None:
        super().__init__(limits)
        self.found: list[int] = []

    def run_best(self, batch: Batch, best: Best) -> BestRows:
        assert 0 < best.count <= self.most_best
        rows = self.run(batch)[:, : best.num_tokens]
        ids = np.argsort(-rows, axis=1, kind="stable")[:, : best.count + 1].astype(np.int32)
        self.found.append(best.count)
        return BestRows(ids=ids, logits=np.take_along_axis(rows, ids, axis=1))
