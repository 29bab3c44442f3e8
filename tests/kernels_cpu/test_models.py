"""Whole tiny models on the real kernels: right against float64, and the same bits however they are fed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cpu_models import KINDS, BoundModel, Kind, Piece, bound, expected_logits, limits_of
from kernels import LEVELS, same_bits

from kernels_cpu.activations import PRECISIONS, Precision

IDS = [5 + index * 7 % 300 for index in range(150)]


PathOf = Callable[[Kind], Path]


@pytest.fixture(scope="module")
def path_of(tmp_path_factory: pytest.TempPathFactory) -> PathOf:
    """Writes each kind once."""
    folder, written = tmp_path_factory.mktemp("models"), {}

    def path(kind: Kind) -> Path:
        if kind not in written:
            written[kind] = kind.write(folder)
        return written[kind]

    return path


@pytest.fixture(scope="module")
def expected_of(path_of: PathOf) -> Callable[[Kind], np.ndarray]:
    found: dict[Kind, np.ndarray] = {}

    def expected(kind: Kind) -> np.ndarray:
        if kind not in found:
            found[kind] = expected_logits(path_of(kind), IDS)
        return found[kind]

    return expected


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("level", LEVELS)
def test_logits_are_those_of_the_float64_oracle(
    level: str, kind: Kind, path_of: PathOf, expected_of: Callable[[Kind], np.ndarray]
) -> None:
    expected = expected_of(kind)
    with bound(path_of(kind), isa=level, threads=2) as model:
        found = model.logits(IDS)
    error = found - expected
    assert found.shape == expected.shape and np.isfinite(found).all()
    assert np.sqrt((error**2).mean()) < 5e-4 * expected.std() and np.abs(error).max() < 5e-3
    assert (found.argmax(axis=1) == expected.argmax(axis=1)).all()


def test_rounding_activations_costs_what_it_should(path_of: PathOf, expected_of: Callable[[Kind], np.ndarray]) -> None:
    """fast is coarser than balanced, and that than exact; none is far off."""
    kind = KINDS[0]
    errors = {}
    for precision in PRECISIONS:
        with bound(path_of(kind), activations=precision) as model:
            errors[precision] = np.sqrt(((model.logits(IDS) - expected_of(kind)) ** 2).mean())
    assert errors["exact"] < errors["balanced"] / 5 < errors["fast"] / 6 < 0.01


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_prompt_gives_the_same_bits_however_it_is_cut(kind: Kind, precision: Precision, path_of: PathOf) -> None:
    with bound(path_of(kind), activations=precision, limits=limits_of(tokens=150, outputs=150)) as model:
        whole = model.logits(IDS, size=150)
    for threads, size in ((1, 1), (2, 7), (2, 64), (3, 150), (2, 1)):
        limits = limits_of(tokens=max(size, 2), outputs=size)
        with bound(path_of(kind), activations=precision, threads=threads, limits=limits, seed=size) as model:
            assert same_bits(model.logits(IDS, size=size), whole)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("level", LEVELS[1:])
def test_levels_agree_to_the_bit(level: str, kind: Kind, path_of: PathOf) -> None:
    found = []
    for name in (level, LEVELS[0]):
        with bound(path_of(kind), isa=name, activations="balanced") as model:
            found.append(model.logits(IDS[:70]))
    assert same_bits(*found)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_sequences_do_not_see_each_other(kind: Kind, path_of: PathOf) -> None:
    """Three sequences of different depths, fed together in batches, get what each gets alone."""
    prompts = [IDS[:130], IDS[40:60], IDS[20:110]]
    with bound(path_of(kind), threads=2) as model:
        alone = [model.logits(prompt, slot=slot) for slot, prompt in enumerate(prompts)]
    with bound(path_of(kind), threads=2, seed=3) as model:
        together = feed_together(model, prompts, sizes=(9, 1, 4))
    for found, expected in zip(together, alone, strict=True):
        assert same_bits(found, expected)


def feed_together(model: BoundModel, prompts: list[list[int]], sizes: tuple[int, ...]) -> list[np.ndarray]:
    """Logits of prompts fed side by side, so many tokens of each a batch, in changing order of slots."""
    done = [0] * len(prompts)
    rows: list[list[np.ndarray]] = [[] for _ in prompts]
    number = 0
    while any(count < len(prompt) for count, prompt in zip(done, prompts, strict=True)):
        number += 1
        order = [(slot + number) % len(prompts) for slot in range(len(prompts))]
        order = [slot for slot in order if done[slot] < len(prompts[slot])]
        pieces = [
            Piece(ids=prompts[slot][done[slot] : done[slot] + sizes[slot]], start=done[slot], slot=slot)
            for slot in order
        ]
        found = model.run(*pieces)
        assert found is not None
        ends = np.cumsum([len(piece.ids) for piece in pieces])
        for slot, piece, part in zip(order, pieces, np.split(found, ends[:-1]), strict=True):
            rows[slot].append(part)
            done[slot] += len(piece.ids)
    return [np.concatenate(parts) for parts in rows]


@pytest.mark.parametrize("shared", [64, 100, 128])
@pytest.mark.parametrize("kind", [KINDS[0], KINDS[4]], ids=str)
def test_a_copied_prefix_goes_on_like_a_cold_run(kind: Kind, shared: int, path_of: PathOf) -> None:
    """Whole pages are shared; the last, half-filled one is copied, and both sequences then go their own ways."""
    ends = IDS[shared:], [9 + index * 5 % 200 for index in range(40)]
    with bound(path_of(kind)) as model:
        cold = [model.logits(IDS[:shared] + end, slot=slot)[shared:] for slot, end in enumerate(ends)]
    with bound(path_of(kind), seed=1) as model:
        model.logits(IDS[:shared])
        full, tables = shared // 64, model.tables
        tables[1, :full] = tables[0, :full]
        if shared % 64:
            model.model.copy_page(int(tables[0, full]), int(tables[1, full]))
        for slot, end in enumerate(ends):
            assert same_bits(model.logits(end, start=shared, slot=slot, size=17), cold[slot])


@pytest.mark.parametrize("kind", [KINDS[0], KINDS[4]], ids=str)
def test_rolling_back_is_feeding_again(kind: Kind, path_of: PathOf) -> None:
    """Positions that were fed with other tokens are forgotten when they are fed again."""
    with bound(path_of(kind)) as model:
        cold = model.logits(IDS)
    with bound(path_of(kind)) as model:
        model.logits(IDS[:50])
        model.logits([7] * 60, start=50)
        assert same_bits(model.logits(IDS[50:], start=50), cold[50:])


@pytest.mark.parametrize("outputs", [[], [63], [0, 31, 32, 63], [5, 6, 7]])
def test_only_the_wanted_rows_are_computed_and_are_the_same(outputs: list[int], path_of: PathOf) -> None:
    for kind in (KINDS[0], KINDS[5]):
        with bound(path_of(kind)) as model:
            whole = model.logits(IDS[:64])
            some = model.run(Piece(ids=IDS[:64]), outputs=outputs)
            assert some is not None and same_bits(some, whole[outputs])


@pytest.mark.parametrize("cache_types", [("q8_0", "q4_0"), ("q4_0", "q8_0")], ids="-".join)
def test_a_cache_of_few_bits_keeps_every_promise(cache_types: tuple[str, str], path_of: PathOf) -> None:
    for kind in (KINDS[1], KINDS[4]):
        with bound(path_of(kind), cache_types=cache_types, threads=2) as model:
            whole = model.logits(IDS)
        with bound(path_of(kind), cache_types=cache_types, seed=2) as model:
            assert same_bits(model.logits(IDS, size=3), whole)
        expected = expected_logits(path_of(kind), IDS, cache_types)
        assert np.sqrt(((whole - expected) ** 2).mean()) < 1e-2
