"""How the next token is chosen: every value a caller may set, and the order of the stages.

Owns names, defaults and ranges.  Does not know how a stage works (sampler_stages.py, repetition.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from runtime.errors import OptionError
from runtime.random_numbers import MAX_SEED
from runtime.validation import check_integer, check_number

# Below this a draw would still be the best token, but for differences that rounding makes.
GREEDY_TEMPERATURE = 1e-3
MAX_TEMPERATURE = 100.0
MAX_TOP_K = 2**31 - 1
MAX_REPEAT_PENALTY = 100.0
MAX_PENALTY = 100.0
MAX_REPEAT_WINDOW = 2**31 - 1
MAX_BIAS = 1e6
MAX_TEXTS = 1024

DEFAULT_CHAIN = (
    "penalties",
    "dry",
    "top_n_sigma",
    "top_k",
    "typical_p",
    "top_p",
    "min_p",
    "xtc",
    "temperature",
)
DEFAULT_BREAKERS = ("\n", ":", '"', "*")
_ALIASES = {"typ_p": "typical_p", "typical": "typical_p", "temp": "temperature", "top_nsigma": "top_n_sigma"}


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """How the next token is chosen.  Refuses values that make no sense with OptionError.

    temperature 0: the best token, always.  top_k 0, top_p 1, typical_p 1, min_p 0, top_n_sigma 0, xtc_probability 0,
    dry_multiplier 0, dynamic_range 0, mirostat 0, repeat_penalty 1 and the other penalties 0 change nothing.
    dynamic_range: how far the temperature moves with the entropy, either way.  repeat_window, dry_window: how many of
    the last tokens are looked at (dry_window None: all).  mirostat 2: takes the place of every stage that drops tokens.
    logit_bias: (token id, what is added to its logit; -inf: never).  banned_strings: texts that the answer never has.
    samplers: the order of the stages; one that is not named does nothing.  seed None: one is drawn.
    """

    temperature: float = 0.8
    dynamic_range: float = 0.0
    dynamic_exponent: float = 1.0
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    top_n_sigma: float = 0.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repeat_window: int = 64
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_window: int | None = None
    dry_breakers: tuple[str, ...] = DEFAULT_BREAKERS
    logit_bias: tuple[tuple[int, float], ...] = ()
    banned_strings: tuple[str, ...] = ()
    samplers: tuple[str, ...] = DEFAULT_CHAIN
    seed: int | None = None

    def __post_init__(self) -> None:
        _check_numbers(self)
        for option, value, flag in (
            ("dry_breakers", self.dry_breakers, "--dry-sequence-breaker"),
            ("banned_strings", self.banned_strings, "--banned-string"),
        ):
            if not _are_texts(value):
                expected = f"up to {MAX_TEXTS} texts that are not empty"
                raise OptionError(option=option, flag=flag, value=value, expected=expected)
        _check_bias(self.logit_bias)
        _check_chain(self.samplers)

    @property
    def is_greedy(self) -> bool:
        """Whether the best token is always taken."""
        return self.temperature < GREEDY_TEMPERATURE and "temperature" in self.samplers

    @property
    def has_penalties(self) -> bool:
        """Whether tokens seen before are treated differently."""
        return self.repeat_window > 0 and (
            self.repeat_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0
        )


def read_chain(text: str) -> tuple[str, ...]:
    """Names of stages between semicolons or commas, as SamplingOptions.samplers wants them.  Raises OptionError."""
    words = text.replace(",", ";").split(";")
    names = [word.strip().lower().replace("-", "_") for word in words if word.strip()]
    chain = tuple(_ALIASES.get(name, name) for name in names)
    _check_chain(chain)
    return chain


def _check_numbers(options: SamplingOptions) -> None:
    for option, high, flag in (
        ("temperature", MAX_TEMPERATURE, "--temp"),
        ("dynamic_range", MAX_TEMPERATURE, "--dynatemp-range"),
        ("dynamic_exponent", 100, "--dynatemp-exp"),
        ("top_p", 1, "--top-p"),
        ("min_p", 1, "--min-p"),
        ("typical_p", 1, "--typical-p"),
        ("top_n_sigma", 100, "--top-n-sigma"),
        ("xtc_probability", 1, "--xtc-probability"),
        ("xtc_threshold", 1, "--xtc-threshold"),
        ("mirostat_tau", 100, "--mirostat-ent"),
        ("mirostat_eta", 1, "--mirostat-lr"),
        ("dry_multiplier", 100, "--dry-multiplier"),
    ):
        check_number(option, getattr(options, option), low=0, high=high, flag=flag)
    check_number("dry_base", options.dry_base, low=1, high=100, flag="--dry-base")
    low, high = 1 / MAX_REPEAT_PENALTY, MAX_REPEAT_PENALTY  # a logit that is divided by less may become infinite
    check_number("repeat_penalty", options.repeat_penalty, low=low, high=high, flag="--repeat-penalty")
    for option, flag in (("presence_penalty", "--presence-penalty"), ("frequency_penalty", "--frequency-penalty")):
        check_number(option, getattr(options, option), low=-MAX_PENALTY, high=MAX_PENALTY, flag=flag)
    check_integer("top_k", options.top_k, low=0, high=MAX_TOP_K, flag="--top-k")
    check_integer("repeat_window", options.repeat_window, low=0, high=MAX_REPEAT_WINDOW, flag="--repeat-last-n")
    length = options.dry_allowed_length
    check_integer("dry_allowed_length", length, low=1, high=MAX_REPEAT_WINDOW, flag="--dry-allowed-length")
    if options.dry_window is not None:
        check_integer("dry_window", options.dry_window, low=0, high=MAX_REPEAT_WINDOW, flag="--dry-penalty-last-n")
    if options.mirostat not in (0, 2) or isinstance(options.mirostat, bool):
        raise OptionError(option="mirostat", flag="--mirostat", value=options.mirostat, expected="0 (off) or 2")
    if options.seed is not None:
        check_integer("seed", options.seed, low=0, high=MAX_SEED, flag="--seed")


def _are_texts(value: object) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) <= MAX_TEXTS
        and all(isinstance(text, str) and bool(text) for text in value)
    )


def _check_bias(pairs: object) -> None:
    is_valid = isinstance(pairs, tuple) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs)
    if is_valid:
        is_valid = all(
            isinstance(token_id, int)
            and not isinstance(token_id, bool)
            and token_id >= 0
            and isinstance(bias, int | float)
            and (abs(bias) <= MAX_BIAS or bias == -math.inf)
            for token_id, bias in pairs  # type: ignore[union-attr]
        )
    if not is_valid:
        expected = f"token ids, each with a number from {-MAX_BIAS:g} to {MAX_BIAS:g} or -inf"
        raise OptionError(option="logit_bias", flag="--logit-bias", value=pairs, expected=expected)


def _check_chain(chain: object) -> None:
    is_valid = isinstance(chain, tuple) and set(chain) <= set(DEFAULT_CHAIN) and len(set(chain)) == len(chain)
    if not is_valid:
        expected = f"stages of {';'.join(DEFAULT_CHAIN)}, each once at most"
        shown = ";".join(map(str, chain)) if isinstance(chain, tuple) else chain
        raise OptionError(option="samplers", flag="--samplers", value=shown, expected=expected)
