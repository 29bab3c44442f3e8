"""Passes of answers and ends of prompts at once: a token has the same bits whatever else its pass holds."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import numpy as np
import pytest
from cpu_models import BoundModel, Piece, bound, limits_of
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels import same_bits
from tiny_models import TinyShape, write_tiny_model

NUM_ROWS, LONGEST_END, WARM = 9, 28, 60
PROMPTS = [[5 + (7 * index + 31 * row) % 300 for index in range(200)] for row in range(NUM_ROWS)]
SHAPE = TinyShape(width=256, num_heads=6, num_kv_heads=1, head_dim=128, feed_forward_width=512)
"""Six query heads a KV head, and rows that fill the super-blocks of Q4_K."""


@pytest.fixture(scope="module", params=["fast", "balanced"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BoundModel]:
    path = write_tiny_model(
        tmp_path_factory.mktemp("mixed") / "tiny.gguf", format="Q4_K", shape=SHAPE, formats={"ffn_down": "Q6_K"}
    )
    room = NUM_ROWS * LONGEST_END
    limits = limits_of(tokens=room, outputs=room, sequences=NUM_ROWS, context=256)
    with bound(path, activations=request.param, threads=2, limits=limits, seed=4) as model:
        yield model


@pytest.fixture(scope="module")
def alone(model: BoundModel) -> list[np.ndarray]:
    """Logits of every position of each prompt, read by itself; they stay in the cache."""
    return [model.logits(prompt, slot=row) for row, prompt in enumerate(PROMPTS)]


passes = st.lists(st.lists(st.integers(0, LONGEST_END) | st.just(1), min_size=NUM_ROWS, max_size=NUM_ROWS), max_size=5)


@settings(max_examples=30)
@given(passes, st.randoms(use_true_random=False))
def test_a_token_has_the_same_bits_whatever_its_pass_holds(
    model: BoundModel, alone: list[np.ndarray], passes: list[list[int]], random: Random
) -> None:
    """Rows go on from places of their own, by one token or by up to 28, in any order, at most nine in a pass."""
    at = [WARM - 5 * row for row in range(NUM_ROWS)]
    for counts in passes:
        order = [row for row, count in enumerate(counts) if count]
        if not order:
            continue
        random.shuffle(order)
        pieces = [Piece(ids=PROMPTS[row][at[row] : at[row] + counts[row]], start=at[row], slot=row) for row in order]
        found = model.run(*pieces)
        assert found is not None
        wanted = np.concatenate([alone[row][at[row] : at[row] + counts[row]] for row in order])
        assert same_bits(found, wanted)
        for row in order:
            at[row] += counts[row]
