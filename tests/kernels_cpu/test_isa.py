"""Which instruction-set levels a machine has, and which one is chosen."""

from __future__ import annotations

import pytest

from kernels_cpu import isa
from kernels_cpu.isa import IsaError, choose, compile_target, host_features, supported

AVX2 = frozenset({"sse4.2", "avx", "avx2", "fma", "f16c"})
VNNI_256 = AVX2 | {"avxvnni"}
SKYLAKE = AVX2 | {"avx512f", "avx512bw", "avx512vl", "avx512dq"}
ICE_LAKE = SKYLAKE | {"avx512vnni"}


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        (ICE_LAKE, ["avx512", "avxvnni", "avx2", "portable"]),
        (SKYLAKE, ["avx2", "portable"]),
        (VNNI_256, ["avxvnni", "avx2", "portable"]),
        (AVX2, ["avx2", "portable"]),
        (AVX2 - {"f16c"}, ["portable"]),
        (frozenset[str](), ["portable"]),
    ],
)
def test_levels_of_x86_processors(
    features: frozenset[str], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isa, "is_x86", lambda: True)
    assert [level.name for level in supported(features)] == expected


@pytest.mark.parametrize(
    ("features", "expected"),
    [({"neon", "dotprod", "fp-armv8"}, ["neon", "portable"]), ({"neon"}, ["portable"]), (set(), ["portable"])],
)
def test_levels_of_arm_processors(features: set[str], expected: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isa, "is_x86", lambda: False)
    assert [level.name for level in supported(frozenset(features))] == expected


def test_this_machine() -> None:
    levels = supported()
    assert levels == supported(host_features()) and levels[-1].name == "portable"
    assert choose() == choose("auto") == levels[0]
    assert all(choose(level.name) == level for level in levels)


@pytest.mark.parametrize("name", ["avx512", "neon", "sse2", "", "AVX2"])
def test_a_level_that_the_machine_lacks_is_one_sentence(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isa, "is_x86", lambda: True)
    monkeypatch.setattr(isa, "host_features", lambda: AVX2)
    with pytest.raises(IsaError) as caught:
        choose(name)
    assert str(caught.value) == (
        f"instruction set {name!r} is not available on this machine: it has avx2, portable; choose one of them or auto"
    )


def test_a_compiler_is_told_its_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(isa.TARGET_VARIABLE, raising=False)
    assert compile_target() == choose()
    monkeypatch.setenv(isa.TARGET_VARIABLE, "portable")
    assert compile_target().name == "portable"


def test_levels_are_what_their_dot_products_need() -> None:
    """A vector of the dot product is as wide as the lanes are many."""
    for level in (isa.AVX512, isa.AVXVNNI, isa.AVX2, isa.NEON, isa.PORTABLE_X86, isa.PORTABLE):
        assert level.lanes * 32 == level.vector_bits
        assert level.name in isa.NAMES
    assert len({level.dot for level in supported()}) == len(supported())
