"""Random numbers that depend on nothing but a key and a counter.

Owns the generator.  Does not know what is drawn: the number for (seed, position, draw) is the same alone or in a
batch, cold or from the prefix cache, whatever was drawn before.

Philox4x64-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.  The finaliser that
spreads its words over many ids: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
"""

from __future__ import annotations

import secrets

import numpy as np

MAX_SEED = 2**64 - 1

_MASK = 2**64 - 1
_MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_WEYL = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
_ROUNDS = 10
_STEP = np.uint64(0x9E3779B97F4A7C15)
_SPREADS = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))
_LAST_SHIFT = np.uint64(31)
_UNUSED_BITS = np.uint64(11)


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Four 64-bit words for a 256-bit counter and a 128-bit key."""
    word_0, word_1, word_2, word_3 = counter
    key_0, key_1 = key
    for _ in range(_ROUNDS):
        product_0 = word_0 * _MULTIPLIERS[0]
        product_1 = word_2 * _MULTIPLIERS[1]
        word_0, word_1, word_2, word_3 = (
            (product_1 >> 64) ^ word_1 ^ key_0,
            product_1 & _MASK,
            (product_0 >> 64) ^ word_3 ^ key_1,
            product_0 & _MASK,
        )
        key_0 = (key_0 + _WEYL[0]) & _MASK
        key_1 = (key_1 + _WEYL[1]) & _MASK
    return word_0, word_1, word_2, word_3


def uniform(*, seed: int, position: int, draw: int = 0) -> float:
    """A number in [0, 1) with 53 random bits, for the draw-th draw at a position."""
    return (philox((position, draw, 0, 0), (seed, 0))[0] >> 11) * 2.0**-53


def exponentials(token_ids: np.ndarray, *, seed: int, position: int) -> np.ndarray:
    """float64 [n], exponentially distributed with mean 1: one for each id, depending on (seed, position, id) alone."""
    first, second, _, _ = philox((position, 0, 1, 0), (seed, 0))
    words = (token_ids.astype(np.uint64) + np.uint64(1)) * _STEP ^ np.uint64(first)
    for key in (second, 0):
        for shift, factor in _SPREADS:
            words = (words ^ (words >> shift)) * factor
        words = words ^ (words >> _LAST_SHIFT) ^ np.uint64(key)
    return -np.log(((words >> _UNUSED_BITS).astype(np.float64) + 0.5) * 2.0**-53)


def new_seed() -> int:
    """A seed nobody chose, short enough to be typed again."""
    return secrets.randbits(32)
