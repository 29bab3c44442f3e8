"""Rotary frequency tables against the published formulas, written a second way."""

from __future__ import annotations

import math

import numpy as np
import pytest

from models.errors import ArchitectureError
from models.rope import RopeFactors, make_rope
from models.rope_numbers import RopeScaling

Table = np.ndarray


def plain_table(dimensions: int, base: float) -> Table:
    return 1.0 / base ** (np.arange(0, dimensions, 2) / dimensions)


def test_the_plain_table() -> None:
    rope = make_rope(dimensions=64, pairing="halves", base=10_000.0)
    assert rope.frequencies == pytest.approx(plain_table(64, 10_000.0), rel=1e-12)
    assert rope.frequencies[0] == 1.0
    assert (rope.dimensions, rope.pairing, rope.magnitude) == (64, "halves", 1.0)


def test_linear_scaling_divides_every_frequency() -> None:
    scaling = RopeScaling(kind="linear", factor=8.0, original_context_length=4096)
    rope = make_rope(dimensions=128, pairing="halves", base=1e6, scaling=scaling)
    assert rope.frequencies == pytest.approx(plain_table(128, 1e6) / 8.0, rel=1e-12)


def test_yarn_keeps_fast_pairs_divides_slow_ones_and_ramps_between() -> None:
    """The ramp runs from the pair whose wavelength fits 32 times into the original context to that which fits once."""
    scaling = RopeScaling(kind="yarn", factor=4.0, original_context_length=32768)
    rope = make_rope(dimensions=128, pairing="halves", base=1e6, scaling=scaling)
    plain = plain_table(128, 1e6)

    def pair(wavelength: float) -> float:
        return 64 * math.log(wavelength / (2 * math.pi), 1e6)

    low, high = math.floor(pair(32768 / 32)), math.ceil(pair(32768))
    assert (low, high) == (23, 40)
    expected = []
    for index, frequency in enumerate(plain):
        share = np.interp(index, [low, high], [0.0, 1.0])
        expected.append(share * frequency / 4.0 + (1 - share) * frequency)
    assert rope.frequencies == pytest.approx(expected, rel=1e-12)
    assert rope.frequencies[:24] == pytest.approx(plain[:24], rel=1e-12)
    assert rope.frequencies[40:] == pytest.approx(plain[40:] / 4.0, rel=1e-12)
    assert rope.magnitude == pytest.approx(1.1386294361, rel=1e-9)


def test_yarn_multiplies_the_files_attention_factor_and_honours_its_betas() -> None:
    scaling = RopeScaling(
        kind="yarn", factor=2.0, original_context_length=2048, attention_factor=0.5, beta_fast=4.0, beta_slow=2.0
    )
    rope = make_rope(dimensions=64, pairing="halves", base=1e4, scaling=scaling)
    plain = plain_table(64, 1e4)
    turns = 2048 * plain / (2 * np.pi)
    kept = np.isclose(rope.frequencies, plain, rtol=1e-12)
    halved = np.isclose(rope.frequencies, plain / 2, rtol=1e-12)
    assert kept[turns > 4.0].all() and halved[turns < 1.5].all()
    assert rope.magnitude == pytest.approx(0.5 * (1 + 0.1 * math.log(2.0)))


def test_llama3_scaling_by_wavelength() -> None:
    """Llama 3.1's parameters; wavelengths under 2048 stay, over 8192 are eight times longer."""
    scaling = RopeScaling(kind="llama3", factor=8.0, original_context_length=8192)
    rope = make_rope(dimensions=128, pairing="neighbours", base=500_000.0, scaling=scaling)
    plain = plain_table(128, 500_000.0)
    wavelengths = 2 * np.pi / plain
    smooth = (8192 / wavelengths - 1.0) / (4.0 - 1.0)
    between = (1 - smooth) * plain / 8.0 + smooth * plain
    expected = np.where(wavelengths < 2048, plain, np.where(wavelengths > 8192, plain / 8.0, between))
    assert rope.frequencies == pytest.approx(expected, rel=1e-12)
    assert 0 < ((wavelengths > 2048) & (wavelengths < 8192)).sum() < 64


def test_a_files_factors_replace_the_formula_of_llama3() -> None:
    factors = RopeFactors(always=tuple(np.linspace(1.0, 8.0, 32)))
    scaling = RopeScaling(kind="llama3", factor=8.0, original_context_length=8192)
    for given in (scaling, RopeScaling(kind="none", factor=1.0, original_context_length=8192)):
        rope = make_rope(dimensions=64, pairing="neighbours", base=1e4, scaling=given, factors=factors)
        assert rope.frequencies == pytest.approx(plain_table(64, 1e4) / np.linspace(1.0, 8.0, 32), rel=1e-12)


def test_the_long_table_is_chosen_beyond_the_original_context() -> None:
    scaling = RopeScaling(kind="longrope", factor=32.0, original_context_length=4096, attention_factor=1.19)
    factors = RopeFactors(short=(1.0,) * 48, long=tuple(np.linspace(1.0, 64.0, 48)))
    tables = {
        size: make_rope(dimensions=96, pairing="halves", base=1e4, scaling=scaling, factors=factors, context_size=size)
        for size in (4096, 4097)
    }
    plain = plain_table(96, 1e4)
    assert tables[4096].frequencies == pytest.approx(plain, rel=1e-12)
    assert tables[4097].frequencies == pytest.approx(plain / np.linspace(1.0, 64.0, 48), rel=1e-12)
    assert tables[4096].magnitude == tables[4097].magnitude == 1.19


def test_long_scaling_without_its_tables_is_refused() -> None:
    scaling = RopeScaling(kind="longrope", factor=32.0, original_context_length=4096)
    with pytest.raises(ArchitectureError, match=r"rope_factors_long\.weight nor rope_factors_short\.weight"):
        make_rope(dimensions=96, pairing="halves", base=1e4, scaling=scaling, factors=RopeFactors())


def test_a_table_of_the_wrong_length_is_named() -> None:
    with pytest.raises(ArchitectureError, match=r"rope_freqs\.weight holds 31 factors; 32"):
        make_rope(dimensions=64, pairing="halves", base=1e4, factors=RopeFactors(always=(1.0,) * 31))


@pytest.mark.parametrize("factor", [0.0, -1.0, math.nan, math.inf, 5e-324])
def test_a_table_with_a_damaged_value_is_refused(factor: float) -> None:
    with pytest.raises(ArchitectureError, match=r"rope_freqs\.weight holds|no finite frequencies"):
        make_rope(dimensions=4, pairing="halves", base=1e4, factors=RopeFactors(always=(factor, 1.0)))
