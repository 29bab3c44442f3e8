"""Making what was said before less likely: penalties for single tokens, and DRY for whole phrases.

Owns which tokens are concerned and by how much.  Does not know candidates, seeds or the order of stages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from runtime.sampling_options import SamplingOptions

TokenBytes = Callable[[int], bytes]

# base ** exponent stays far from infinity, and no logit comes near this.
_MAX_DRY = 1e9
_MAX_MATCH = 4096


def seen(history: Sequence[int], window: int) -> tuple[np.ndarray, np.ndarray]:
    """(ids int64 [n] ascending, counts int64 [n]) of the last `window` tokens."""
    recent = np.asarray(history[-window:] if window else (), dtype=np.int64)
    return np.unique(recent, return_counts=True)


def penalized(values: np.ndarray, counts: np.ndarray, options: SamplingOptions) -> np.ndarray:
    """Logits, float64 [n], of tokens that were seen so many times.

    A positive logit is divided, a negative one multiplied by repeat_penalty (Keskar et al., "CTRL", 2019); then
    count * frequency_penalty + presence_penalty are taken off.
    """
    values = values.astype(np.float64)
    values = np.where(values > 0, values / options.repeat_penalty, values * options.repeat_penalty)
    return values - counts * options.frequency_penalty - options.presence_penalty


def phrase_penalties(
    history: Sequence[int], options: SamplingOptions, token_bytes: TokenBytes
) -> tuple[np.ndarray, np.ndarray]:
    """(ids int64 [n] ascending, what is taken off float64 [n]): tokens that would go on with a phrase said before.

    "Don't repeat yourself" (p-e-w, text-generation-webui, 2024): where the last n tokens stand earlier too, the token
    that followed there loses multiplier * base ** (n - allowed_length), once n reaches the allowed length.  A phrase
    does not reach back over a sequence breaker.
    """
    window = len(history) if options.dry_window is None else options.dry_window
    ids = np.asarray(history[-window:] if window else (), dtype=np.int64)
    longest = min(len(ids) - 1, _MAX_MATCH)
    nothing = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float64)
    if longest < options.dry_allowed_length:
        return nothing
    ends = np.flatnonzero(ids[:-1] == ids[-1])  # where an earlier phrase may end
    lengths = np.ones(len(ends), dtype=np.int64)
    going = np.arange(len(ends))
    for length in range(1, longest):
        going = going[ends[going] >= length]
        going = going[ids[ends[going] - length] == ids[-1 - length]]
        if not len(going):
            break
        lengths[going] = length + 1
    most = int(lengths.max(initial=0))
    if most >= options.dry_allowed_length:
        np.minimum(lengths, _before_breaker(history, options, token_bytes, most), out=lengths)
    found = lengths >= options.dry_allowed_length
    if not found.any():
        return nothing
    next_ids = ids[ends[found] + 1]
    unique, places = np.unique(next_ids, return_inverse=True)
    best = np.zeros(len(unique), dtype=np.int64)
    np.maximum.at(best, places, lengths[found])
    exponents = (best - options.dry_allowed_length).astype(np.float64)
    if options.dry_base > 1:
        exponents = np.minimum(exponents, math.log(_MAX_DRY) / math.log(options.dry_base))
    return unique, np.minimum(options.dry_multiplier * options.dry_base**exponents, _MAX_DRY)


def _before_breaker(history: Sequence[int], options: SamplingOptions, token_bytes: TokenBytes, most: int) -> int:
    """How many of the last tokens, at most `most`, come after the last token in which a sequence breaker ends."""
    breakers = [text.encode("utf-8", "surrogateescape") for text in options.dry_breakers]
    reach = max(map(len, breakers), default=0)
    text = b""  # the last tokens', as far as a breaker that begins before them could reach
    # A breaker may begin before the phrase and end in it: at most `reach` tokens that say something before it.
    for count in range(min(len(history), most + reach)):
        text = token_bytes(history[-1 - count]) + text
        ends = [text.rfind(breaker) + len(breaker) for breaker in breakers if breaker in text]
        if ends:
            return min(most, _last_token_of(max(ends), count, history, token_bytes))
        text = text[: reach - 1] if reach > 1 else b""
    return most


def _last_token_of(end: int, count: int, history: Sequence[int], token_bytes: TokenBytes) -> int:
    """Which token from the end holds the byte before `end`, counted from the beginning of the count-th from the end."""
    while (length := len(token_bytes(history[-1 - count]))) < end:
        end -= length
        count -= 1
    return count
