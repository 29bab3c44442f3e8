"""Runs tests on a device: batches of random tokens at a depth, each run timed from outside.

Owns the batches.  Does not know models, sampling, repeats or what a time means.  What the tokens are does not matter to
the time, as in other engines' benchmarks; K and V of the depth are real ones, computed once and used by every test.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from runtime.devices.binding import PAGE_SIZE, Batch, Binding, pages_for

_SEED = 20_240_817


class DeviceDriver:
    """Drives one binding; nobody else may use it meanwhile.  What the binding raises passes through."""

    def __init__(self, binding: Binding) -> None:
        limits = binding.limits
        self._binding = binding
        pages_each = pages_for(limits.context_size)
        assert limits.num_pages >= pages_each * limits.max_sequences, "every sequence has pages of its own"
        self._tables = np.arange(pages_each * limits.max_sequences, dtype=np.int32).reshape(-1, pages_each)
        random = np.random.default_rng(_SEED)
        self._ids = random.integers(0, binding.vocab_size, limits.context_size, dtype=np.int32)
        self._filled = [0] * limits.max_sequences
        # Two states a sequence by turns: what they hold doesn't matter to the time.
        self._states = 2 * np.arange(limits.max_sequences, dtype=np.int32)[:, None] + np.arange(2, dtype=np.int32)

    @property
    def max_batch_tokens(self) -> int:
        """Tokens of a full chunk."""
        return self._binding.limits.max_batch_tokens

    def fill(self, depth: int, num_sequences: int = 1) -> None:
        """Makes sure that positions below depth hold K and V, in the first sequences."""
        self._prefill(self._filled[0], depth, has_output=False)
        num_pages = pages_for(depth)
        for slot in range(1, num_sequences):
            for page in range(self._filled[slot] // PAGE_SIZE, num_pages):
                self._binding.copy_page(int(self._tables[0, page]), int(self._tables[slot, page]))
            self._filled[slot] = max(self._filled[slot], depth)

    def prefill(self, count: int, depth: int) -> float:
        """Seconds that `count` prompt tokens take behind `depth` others, the last one's logits included."""
        start_s = time.perf_counter()
        self._prefill(depth, depth + count, has_output=True)
        return time.perf_counter() - start_s

    def decode(self, count: int, depth: int) -> list[float]:
        """Seconds of each of `count` steps of one token."""
        return [self._pass(depth + idx, 1, 1) for idx in range(count)]

    def verify(self, width: int, num_passes: int, depth: int) -> tuple[list[float], list[float]]:
        """Seconds of passes of `width` tokens with all their logits, and of one token at the same places, in turn."""
        many_s, one_s = [], []
        for idx in range(num_passes):
            position = depth + idx * width
            many_s.append(self._pass(position, width, 1))
            one_s.append(self._pass(position, 1, 1))
        return many_s, one_s

    def parallel(self, num_sequences: int, count: int, depth: int) -> tuple[list[float], list[float]]:
        """Seconds of steps of one token in each sequence, and of one sequence at the same places, in turn."""
        many_s, one_s = [], []
        for idx in range(count):
            many_s.append(self._pass(depth + idx, 1, num_sequences))
            one_s.append(self._pass(depth + idx, 1, 1))
        return many_s, one_s

    def _prefill(self, first: int, last: int, *, has_output: bool) -> None:
        for start in range(first, last, self.max_batch_tokens):
            end = min(start + self.max_batch_tokens, last)
            outputs = [end - start - 1] if has_output and end == last else []
            self._binding.run(self._batch(range(start, end), 1, outputs, is_prompt=True))
            self._filled[0] = max(self._filled[0], end)

    def _pass(self, position: int, width: int, num_sequences: int) -> float:
        """Seconds of one run with the logits of all its tokens."""
        batch = self._batch(
            range(position, position + width), num_sequences, range(width * num_sequences), is_prompt=False
        )
        start_s = time.perf_counter()
        self._binding.run(batch)
        return time.perf_counter() - start_s

    def _batch(self, positions: range, num_sequences: int, outputs: Sequence[int], *, is_prompt: bool) -> Batch:
        """The same positions in each of the first sequences."""
        self._states = self._states[:, ::-1]
        return Batch(
            token_ids=np.tile(self._ids[positions.start : positions.stop], num_sequences),
            positions=np.tile(np.arange(positions.start, positions.stop, dtype=np.int32), num_sequences),
            slots=np.repeat(np.arange(num_sequences, dtype=np.int32), len(positions)),
            is_prompt=np.full(len(positions) * num_sequences, is_prompt),
            page_tables=self._tables,
            outputs=np.array(outputs, dtype=np.int32),
            states=self._states,
        )
