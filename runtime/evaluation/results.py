"""What an evaluation finds: a row for each way of loading, beside what it was compared with.

Owns the names that JSON files have.  Does not know formats, files or measuring.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from runtime.devices.binding import DeviceMemory
from runtime.evaluation.summaries import Divergence, Perplexity

FORMAT_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Which file, and how it was loaded.

    adapters: names and scales.  context_size: positions for which the KV cache has room.
    """

    model: str
    model_file: str
    model_fingerprint: str
    model_size_bytes: int
    formats: tuple[str, ...]
    cache_type_k: str
    cache_type_v: str
    activations: str
    adapters: tuple[str, ...] = ()
    threads: int
    context_size: int


@dataclass(frozen=True, kw_only=True)
class Speed:
    """On the bare device: reading a prompt of prompt_tokens, then decoding behind it, one sequence."""

    prompt_tokens: int
    prefill_tokens_per_s: float
    decode_tokens_per_s: float


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One answer's token where two answers part, and what follows.

    probability: by the model that chose it; of_other: by the other model; None: less than its twenty likeliest have.
    """

    token_id: int
    text: str
    continuation: str
    probability: float | None
    of_other: float | None


@dataclass(frozen=True, kw_only=True)
class Parting:
    """A prompt's greedy answers.  place: the index of the first token that differs; None: none of num_tokens does.

    shared_text: what both begin with.  own and reference: None where an answer has ended already.
    """

    prompt: str
    num_tokens: int
    place: int | None
    shared_text: str
    own: Choice | None = None
    reference: Choice | None = None


@dataclass(frozen=True, kw_only=True)
class Row:
    """One way of loading.  reference_perplexity: of the reference, over the same tokens.

    is_complete: the whole text was read.  None: not measured.
    """

    setting: Setting
    memory: DeviceMemory
    perplexity: Perplexity | None = None
    reference_perplexity: Perplexity | None = None
    divergence: Divergence | None = None
    speed: Speed | None = None
    partings: tuple[Parting, ...] = ()
    is_complete: bool = True


@dataclass(frozen=True, kw_only=True)
class Results:
    """A whole run.  num_tokens: of the text; window and stride in tokens; reference: what rows were compared with."""

    window: int
    stride: int
    num_tokens: int
    start_token: str | None
    reference: Setting | None
    rows: tuple[Row, ...]


def results_values(results: Results, environment: Mapping[str, Any]) -> dict[str, Any]:
    """The whole run as JSON has it."""
    return {"format_version": FORMAT_VERSION, "environment": dict(environment), **asdict(results)}
