"""From what a person chose about sampling to the runtime's options.

Owns the texts that stand for several values: a chain of stages, biases of logits.  Does not know flags (options.py) nor
what a stage does.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from app.errors import UsageError
from app.preferences import Preferences

if TYPE_CHECKING:
    from runtime.sampling import SamplingOptions

NO_LIMIT = -1
"""What -n, -s, --repeat-last-n and --dry-penalty-last-n take for "no limit" and "any seed", as llama.cpp does."""

_BIAS = re.compile(r"\s*(\d+)\s*([+-](?:\d+\.?\d*|\.\d+|inf))\s*", re.ASCII)
_NO_BREAKERS = "none"


def sampling_options(preferences: Preferences) -> SamplingOptions:
    """How tokens are to be chosen.  Raises UsageError or OptionError for values out of range."""
    from runtime.sampling import SamplingOptions

    return SamplingOptions(**_values(preferences))


def _values(preferences: Preferences) -> dict[str, Any]:
    from runtime.sampling_options import MAX_REPEAT_WINDOW, read_chain

    breakers = preferences.dry_sequence_breaker
    named = {
        "temperature": preferences.temp,
        "dynamic_range": preferences.dynatemp_range,
        "dynamic_exponent": preferences.dynatemp_exp,
        "top_k": preferences.top_k,
        "top_p": preferences.top_p,
        "min_p": preferences.min_p,
        "typical_p": preferences.typical_p,
        "top_n_sigma": preferences.top_n_sigma,
        "xtc_probability": preferences.xtc_probability,
        "xtc_threshold": preferences.xtc_threshold,
        "mirostat": preferences.mirostat,
        "mirostat_tau": preferences.mirostat_ent,
        "mirostat_eta": preferences.mirostat_lr,
        "repeat_penalty": preferences.repeat_penalty,
        "presence_penalty": preferences.presence_penalty,
        "frequency_penalty": preferences.frequency_penalty,
        "repeat_window": MAX_REPEAT_WINDOW if preferences.repeat_last_n == NO_LIMIT else preferences.repeat_last_n,
        "dry_multiplier": preferences.dry_multiplier,
        "dry_base": preferences.dry_base,
        "dry_allowed_length": preferences.dry_allowed_length,
        "dry_window": None if preferences.dry_penalty_last_n == NO_LIMIT else preferences.dry_penalty_last_n,
        "dry_breakers": () if breakers == (_NO_BREAKERS,) else breakers,
        "logit_bias": None if preferences.logit_bias is None else tuple(map(_bias, preferences.logit_bias)),
        "banned_strings": preferences.banned_string,
        "samplers": None if preferences.samplers is None else read_chain(preferences.samplers),
        "seed": None if preferences.seed == NO_LIMIT else preferences.seed,
    }
    return {name: value for name, value in named.items() if value is not None}


def _bias(text: str) -> tuple[int, float]:
    found = _BIAS.fullmatch(text)
    if found is None:
        raise UsageError(
            f"--logit-bias is {ascii(text)}; expected a token id and what is added, such as 42+1.5, 42-3 or 42-inf."
        )
    return int(found[1]), float(found[2])
