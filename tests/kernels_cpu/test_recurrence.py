"""Short convolutions and the delta rule, against float64, and the same bits wherever a run begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cpu_models import Piece, bound, limits_of
from kernels import LEVELS, call, floats, same_bits
from recurrences import convolve, delta_rule
from references import path_of, references_of

from kernels_cpu.binding import CpuOptions, bill
from models.buffers import Buffer
from models.description import load_description
from models.gguf_file import open_model_file
from models.recurrence import DeltaRule, StateLayer
from models.segments import whole
from runtime.options import DEFAULT_KERNEL_FOLDER

Array = np.ndarray[Any, np.dtype[Any]]

TOKENS, INPUTS, CHANNELS = 21, 3, 80
DELTA = DeltaRule(
    x=Buffer(name="x", width=768),
    decay=Buffer(name="g", width=4),
    learn=Buffer(name="b", width=4),
    rate="rate",
    shift="shift",
    out=Buffer(name="o", width=512),
    num_key_heads=1,
    epsilon=1e-6,
    state=StateLayer(num_inputs=0, channels=0, num_heads=4, key_dim=128, value_dim=128),
    layer_idx=0,
)


def runs_of(*lengths: int) -> Array:
    """One sequence in runs one after another: they go on from nothing, then from each other's states, by turns."""
    firsts = np.cumsum([0, *lengths[:-1]])
    sources = [-1, *(idx % 2 for idx in range(len(lengths) - 1))]
    targets = [idx % 2 for idx in range(len(lengths))]
    rows = list(zip(firsts, lengths, sources, targets, strict=True))
    return np.array(rows, np.int32)


def convolved(level: str, x: Array, before: Array, after: Array, weight: Array, *lengths: int, has_silu: int) -> Array:
    memory, out = floats((TOKENS, CHANNELS))
    states_memory, states = floats((2, INPUTS * CHANNELS + 16))
    for run in runs_of(*lengths):
        call(
            level, "recurrence-convolve", 2, x=x, x_stride=x.strides[0], before=before, before_stride=before.strides[0],
            after=after, after_stride=after.strides[0], out=out, out_stride=out.strides[0], weight=weight,
            num_inputs=INPUTS, channels=CHANNELS, channels_per_chunk=48, has_silu=has_silu, runs=run, states=states,
            state_bytes=states.strides[0],
        )  # fmt: skip
    memory.check()
    states_memory.check()
    last = states[(len(lengths) - 1) % 2, : INPUTS * CHANNELS].reshape(INPUTS, CHANNELS)
    np.testing.assert_array_equal(last, (x * before)[-INPUTS:])
    return out


@pytest.mark.parametrize("has_silu", [0, 1])
@pytest.mark.parametrize("level", LEVELS)
def test_convolution(level: str, has_silu: int) -> None:
    rng = np.random.default_rng(1)
    x, before, after = (rng.standard_normal((TOKENS, CHANNELS)).astype(np.float32) for _ in range(3))
    weight = rng.standard_normal((INPUTS + 1, CHANNELS)).astype(np.float32)
    rows = np.concatenate([np.zeros((INPUTS, CHANNELS)), x.astype(np.float64) * before])
    expected = convolve(rows, weight.T.astype(np.float64))
    expected = expected / (1.0 + np.exp(-expected)) if has_silu else expected
    found = convolved(level, x, before, after, weight, TOKENS, has_silu=has_silu)
    np.testing.assert_allclose(found, expected * after, rtol=1e-5, atol=1e-5)
    for lengths in ((1,) * TOKENS, (2, 1, 18), (20, 1)):
        again = convolved(level, x, before, after, weight, *lengths, has_silu=has_silu)
        assert same_bits(again, found)
    assert same_bits(convolved(LEVELS[0], x, before, after, weight, TOKENS, has_silu=has_silu), found)


def learnt(level: str, x: Array, decay: Array, learn: Array, rate: Array, shift: Array, *lengths: int) -> Array:
    state = DELTA.state
    memory, out = floats((TOKENS, DELTA.out.width))
    states_memory, states = floats((2, state.num_values))
    for run in runs_of(*lengths):
        call(
            level, "recurrence-delta", state.num_heads, x=x, x_stride=x.strides[0], decay=decay,
            decay_stride=decay.strides[0], learn=learn, learn_stride=learn.strides[0], out=out,
            out_stride=out.strides[0], rate=rate, shift=shift, epsilon=DELTA.epsilon, scale=state.key_dim**-0.5,
            num_heads=state.num_heads, num_key_heads=DELTA.num_key_heads, key_dim=state.key_dim,
            value_dim=state.value_dim, runs=run, states=states, state_bytes=states.strides[0], offset=0,
            is_grouped=0,
        )  # fmt: skip
    memory.check()
    states_memory.check()
    return out


@pytest.mark.parametrize("level", LEVELS)
def test_delta_rule(level: str) -> None:
    """Heads of the size that models have, with gates from hardly any forgetting to nearly all."""
    rng, state = np.random.default_rng(2), DELTA.state
    x = rng.standard_normal((TOKENS, DELTA.x.width)).astype(np.float32)
    decay, learn = (3 * rng.standard_normal((TOKENS, 4)).astype(np.float32) for _ in range(2))
    rate, shift = -np.exp(rng.standard_normal(4)).astype(np.float32), rng.standard_normal(4).astype(np.float32)
    exact = [values.astype(np.float64) for values in (x, decay + shift, learn, rate)]
    matrices = np.zeros((state.num_heads, state.key_dim, state.value_dim))
    expected = delta_rule(DELTA, exact[0], exact[1], exact[2], exact[3], matrices)
    found = learnt(level, x, decay, learn, rate, shift, TOKENS)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    for lengths in ((1,) * TOKENS, (16, 5), (3, 17, 1)):
        assert same_bits(learnt(level, x, decay, learn, rate, shift, *lengths), found)
    assert same_bits(learnt(LEVELS[0], x, decay, learn, rate, shift, TOKENS), found)


@pytest.mark.parametrize("level", LEVELS)
def test_runs_are_dealt_out_by_turns(level: str) -> None:
    memory, parts = floats((2, 3, 64))
    x = np.arange(3 * 128, dtype=np.float32).reshape(3, 128)
    call(
        level, "row-separate", 3, x=x, x_stride=x.strides[0], first=parts[0], first_stride=parts.strides[1],
        second=parts[1], second_stride=parts.strides[1], run=32, num_runs=2,
    )  # fmt: skip
    memory.check()
    assert (parts == x.reshape(3, 2, 2, 32).transpose(2, 0, 1, 3).reshape(2, 3, 64)).all()


@pytest.mark.parametrize("name", ["lfm2", "qwen35"])
def test_sequences_of_a_batch_have_states_of_their_own(name: str) -> None:
    """Together and alone give the same bits, and a run made twice from one state gives them twice."""
    ids = references_of(name)[0].ids.tolist()
    with bound(path_of(name), limits=limits_of(context=128)) as model:
        alone = [model.logits(ids[: 30 + slot]) for slot in range(3)]
    with bound(path_of(name), limits=limits_of(context=128), threads=2) as model:
        first = model.run(*(Piece(ids=ids[: 15 + slot], slot=slot) for slot in range(3)))
        states = dict(model.states)
        rest = [Piece(ids=ids[15 + slot : 30 + slot], start=15 + slot, slot=slot) for slot in (2, 0, 1)]
        second = model.run(*rest)
        model.states.update(states)
        again = model.run(*rest)
    assert first is not None and second is not None and again is not None
    assert same_bits(first, np.concatenate([alone[slot][: 15 + slot] for slot in range(3)]))
    assert same_bits(second, np.concatenate([alone[slot][15 + slot :] for slot in (2, 0, 1)]))
    assert same_bits(second, again)


@pytest.mark.parametrize("name", ["lfm2", "qwen35"])
def test_the_bill_counts_states_to_the_byte(name: str) -> None:
    options = CpuOptions(threads=1, activations="exact", isa="auto", kernel_folder=Path(DEFAULT_KERNEL_FOLDER))
    limits = limits_of(context=128)
    with open_model_file(path_of(name)) as file:
        segment = whole(load_description(file).program)
        promised = bill(segment, file, limits, options)
    with bound(path_of(name), limits=limits) as model:
        used = tuple(arena.used_bytes for arena in model.model._arenas)
    assert used == (promised.weights_bytes, promised.kv_bytes, promised.workspace_bytes)
    each = {"lfm2": 2 * 64 * 4, "qwen35": (3 * 256 + 4 * 32 * 32) * 4}[name]
    pages = limits.num_pages * 2 * 64 * 2 * (16 if name == "lfm2" else 32) * 2
    assert promised.kv_bytes == 2 * (limits.num_states * each + pages)
