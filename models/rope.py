"""Rotary frequency tables: plain, linear, YaRN, llama3, and the factor tables that a file brings.

Owns the formulas.  Does not know which layer turns by which table (attentions.py), nor how a head is turned (a device).

Pair i of d dimensions turns by position * base ** (-2 i / d) (Su et al., RoFormer).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from models.errors import ArchitectureError
from models.program import Pairing, Rope
from models.rope_numbers import RopeScaling


@dataclass(frozen=True, kw_only=True)
class RopeFactors:
    """Divisors of the frequencies, one for each pair, as the file's tensors give them.

    always: rope_freqs.weight; short, long: for contexts up to the original length, and beyond.
    """

    always: tuple[float, ...] | None = None
    short: tuple[float, ...] | None = None
    long: tuple[float, ...] | None = None

    def chosen(self, *, context_size: int, original_context_length: int) -> tuple[str, tuple[float, ...]] | None:
        """The table for a context of context_size positions, with its tensor's name; None where there is none."""
        by_length = (ROPE_LONG, self.long) if context_size > original_context_length else (ROPE_SHORT, self.short)
        for name, factors in (by_length, (ROPE_FREQS, self.always)):
            if factors is not None:
                return name, factors
        return None


ROPE_FREQS = "rope_freqs.weight"
ROPE_SHORT = "rope_factors_short.weight"
ROPE_LONG = "rope_factors_long.weight"

UNSCALED = RopeScaling(kind="none", factor=1.0, original_context_length=1)


def make_rope(
    *,
    dimensions: int,
    pairing: Pairing,
    base: float,
    scaling: RopeScaling = UNSCALED,
    factors: RopeFactors | None = None,
    context_size: int = 1,
    truncates_yarn: bool = True,
) -> Rope:
    """The table of one kind of layer.  A table of factors in the file replaces the formula of llama3 and longrope."""
    plain = [base ** (-2.0 * i / dimensions) for i in range(dimensions // 2)]
    chosen = factors and factors.chosen(
        context_size=context_size, original_context_length=scaling.original_context_length
    )
    magnitude = scaling.attention_factor
    if chosen:
        plain = _divided(plain, *chosen)
    match scaling.kind:
        case "linear":
            frequencies = [frequency / scaling.factor for frequency in plain]
        case "yarn":
            rounds = (math.floor, math.ceil) if truncates_yarn else (float, float)
            frequencies = _yarn(plain, dimensions=dimensions, base=base, scaling=scaling, rounds=rounds)
            stretch = 0.1 * math.log(max(1.0, scaling.factor))
            magnitude *= (1.0 + stretch) / (1.0 + scaling.log_multiplier * stretch)
        case "llama3" if not chosen:
            frequencies = _llama3(plain, scaling)
        case "longrope" if not chosen:
            raise ArchitectureError(
                f"The file's rope.scaling.type is longrope, but it holds neither {ROPE_LONG} nor {ROPE_SHORT}."
            )
        case _:
            frequencies = plain
    if not all(map(math.isfinite, frequencies)):
        raise ArchitectureError(f"The file's rope.* values give no finite frequencies (base {base:g}, {scaling}).")
    return Rope(dimensions=dimensions, pairing=pairing, frequencies=tuple(frequencies), magnitude=magnitude)


def _divided(frequencies: Sequence[float], name: str, factors: Sequence[float]) -> list[float]:
    if len(factors) != len(frequencies):
        raise ArchitectureError(f"{name} holds {len(factors)} factors; {len(frequencies)}, one a pair, were expected.")
    for index, factor in enumerate(factors):
        if not 0.0 < factor < math.inf:
            raise ArchitectureError(f"{name} holds {factor!r} at {index}; a positive finite factor was expected.")
    return [frequency / factor for frequency, factor in zip(frequencies, factors, strict=True)]


def _yarn(
    plain: Sequence[float],
    *,
    dimensions: int,
    base: float,
    scaling: RopeScaling,
    rounds: tuple[Callable[[float], float], Callable[[float], float]],
) -> list[float]:
    """YaRN (Peng et al. 2023): fast pairs keep their frequency, slow ones are divided by factor, a ramp between.

    A pair is fast where it turns beta_fast times or more within the original context, slow where beta_slow or less.
    """

    def pair_that_turns(times: float) -> float:
        return dimensions * math.log(scaling.original_context_length / (times * 2 * math.pi)) / (2 * math.log(base))

    low = max(0.0, rounds[0](pair_that_turns(scaling.beta_fast)))
    high = min(dimensions - 1.0, rounds[1](pair_that_turns(scaling.beta_slow)))
    frequencies = []
    for index, frequency in enumerate(plain):
        ramp = min(1.0, max(0.0, (index - low) / max(0.001, high - low)))
        kept = (1.0 - ramp) * scaling.extrapolation
        frequencies.append(frequency * kept + frequency / scaling.factor * (1.0 - kept))
    return frequencies


def _llama3(plain: Sequence[float], scaling: RopeScaling) -> list[float]:
    """Llama 3.1: kept or divided by how often a pair turns within the original context, a ramp between."""
    low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
    frequencies = []
    for frequency in plain:
        turns = scaling.original_context_length * frequency / (2 * math.pi)
        kept = min(1.0, max(0.0, (turns - low) / max(1e-9, high - low)))
        frequencies.append(frequency * kept + frequency / scaling.factor * (1.0 - kept))
    return frequencies
