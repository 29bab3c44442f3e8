"""What a bench finds: a row for each test, and the machine that it was found on; to plain values and back.

Owns the names that JSON files have, which scripts rely on.  Does not know formats, files or measuring.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from runtime.benchmark.statistics import Spread, spread_of
from runtime.benchmark.workloads import Workload

TANDEM = "tandem"
FORMAT_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How a model was loaded and on which file: what must be equal for two rows to be compared, with the workload.

    variant: how another engine was called ("default", "--repack 0"); "" for Tandem.  batch_size and activations are
    None for engines that have their own.
    """

    engine: str
    variant: str
    model: str
    model_file: str
    model_fingerprint: str
    model_size_bytes: int
    threads: int
    batch_size: int | None
    cache_type_k: str
    cache_type_v: str
    activations: str | None
    isa: str | None
    gpu_layers: int = 0
    cpu_experts: int = 0


@dataclass(frozen=True, kw_only=True)
class DeviceShare:
    """One device's part in a token, and how near it came to its limit.

    limit_share: the time that the device's limits allow over the time it took; limited_by: "memory" or "multiplier".
    The limits were measured right after each repeat; their medians count.
    """

    device: str
    moved_bytes_per_token: float
    byte_multiply_adds_per_token: float
    float_multiply_adds_per_token: float
    read_bytes_per_s: float
    byte_multiply_adds_per_s: float
    float_multiply_adds_per_s: float
    limit_tokens_per_s: float
    limit_share: float
    limited_by: str


@dataclass(frozen=True, kw_only=True)
class PeerRatio:
    """How many times faster than the better variant of another engine, repeat by repeat, measured in turn."""

    peer: str
    variant: str
    ratio: Spread
    ratio_samples: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class SpeculationFigures:
    """What guessing brought, against the same answers without it, in turn.

    ratio: tokens/s with guesses over those without, of whole repeats; prompt_ratios: prompt by prompt, medians.
    same_answers: of `answers`, those whose tokens are all the same both ways.  accepted, rounds, tokens_per_round,
    plain_tokens: see SpeculationReport, summed up.  *_ms_per_token: of a token that was decoded with guesses: passes of
    the draft model, the model's passes that checked drafts, and the time that the model waited for guesses.
    """

    plain_tokens_per_s: float
    plain_tokens_per_s_samples: tuple[float, ...]
    ratio: Spread
    ratio_samples: tuple[float, ...]
    prompt_ratios: tuple[float, ...]
    answers: int
    same_answers: int
    drafted: int
    accepted: int
    acceptance_by_position: tuple[float, ...]
    rounds: int
    plain_tokens: int
    tokens_per_round: float | None
    draft_ms_per_token: float
    verify_ms_per_token: float
    wait_ms_per_token: float
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Row:
    """One test's result.  tokens_per_s: the median of the samples; of decode alone in a test through the engine.

    step_time_ratio: time of a pass of `width` tokens (or sequences) over that of one token; inter_token_*: of all
    repeats; ttft_s, overhead_ms (what a token costs beside the device's run): medians.  is_complete: all repeats were
    made.  *_ms_per_token: where the time went, with layers on a GPU.  load: processes that ran or waited in the minute
    before the end.
    """

    engine_version: str
    setting: Setting
    workload: Workload
    tokens_per_s: float
    tokens_per_s_samples: tuple[float, ...]
    is_complete: bool = True
    step_time_ratio: float | None = None
    step_time_ratio_samples: tuple[float, ...] = ()
    cpu_ms_per_token: float | None = None
    gpu_ms_per_token: float | None = None
    transfer_ms_per_token: float | None = None
    prefill_tokens_per_s: float | None = None
    ttft_s: float | None = None
    inter_token_p50_ms: float | None = None
    inter_token_p95_ms: float | None = None
    inter_token_p99_ms: float | None = None
    overhead_ms: float | None = None
    devices: tuple[DeviceShare, ...] = ()
    peer_ratio: PeerRatio | None = None
    speculation: SpeculationFigures | None = None
    date: str = ""
    load: float | None = None

    @property
    def spread(self) -> Spread:
        """Of the repeats' rates."""
        return spread_of(self.tokens_per_s_samples)


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Where and when.  machine: runtime.machine's facts; options: the command's; load_*: at the start and the end."""

    tandem: str
    versions: Mapping[str, str]
    machine: Mapping[str, Any]
    options: Mapping[str, Any]
    date: str
    load_start: float | None
    load_end: float | None


@dataclass(frozen=True, kw_only=True)
class Results:
    """A whole run."""

    environment: Environment
    rows: tuple[Row, ...]


def row_values(row: Row) -> dict[str, Any]:
    """A row as JSON has it: flat but for devices, the ratio and what guessing brought."""
    values = asdict(row)
    setting, workload = values.pop("setting"), values.pop("workload")
    spread = row.spread
    return {
        **setting,
        "engine_version": values.pop("engine_version"),
        **workload,
        "test_name": row.workload.name,
        "repeats": len(row.tokens_per_s_samples),
        "tokens_per_s": values.pop("tokens_per_s"),
        "tokens_per_s_least": spread.least,
        "tokens_per_s_most": spread.most,
        "tokens_per_s_deviation": spread.deviation,
        **values,
    }


def results_values(results: Results) -> dict[str, Any]:
    """The whole run as JSON has it."""
    return {
        "format_version": FORMAT_VERSION,
        "environment": asdict(results.environment),
        "rows": [row_values(row) for row in results.rows],
    }


def read_row(values: Mapping[str, Any]) -> Row:
    """A row from what row_values made.  Raises KeyError, TypeError or ValueError for anything else."""
    devices = tuple(DeviceShare(**_own(DeviceShare, device)) for device in values["devices"])
    ratio, guessing = values["peer_ratio"], values.get("speculation")
    samples = tuple(float(sample) for sample in values["tokens_per_s_samples"])
    if not samples or min(samples) <= 0:
        raise ValueError("a row needs repeats, all of them above 0")
    own = {
        **_own(Row, values),
        "setting": Setting(**_own(Setting, values)),
        "workload": Workload(**_own(Workload, values)),
        "tokens_per_s_samples": samples,
        "step_time_ratio_samples": tuple(values["step_time_ratio_samples"]),
        "devices": devices,
        "peer_ratio": None if ratio is None else _read_ratio(ratio),
        "speculation": None if guessing is None else _read_speculation(guessing),
    }
    return Row(**own)


def _read_speculation(values: Mapping[str, Any]) -> SpeculationFigures:
    own = _own(SpeculationFigures, values)
    lists = {name: tuple(value) for name, value in own.items() if isinstance(value, list)}
    return SpeculationFigures(**{**own, **lists, "ratio": Spread(**_own(Spread, values["ratio"]))})


def _read_ratio(values: Mapping[str, Any]) -> PeerRatio:
    return PeerRatio(
        peer=values["peer"],
        variant=values["variant"],
        ratio=Spread(**_own(Spread, values["ratio"])),
        ratio_samples=tuple(values["ratio_samples"]),
    )


def read_environment(values: Mapping[str, Any]) -> Environment:
    """The environment from what results_values made."""
    return Environment(**_own(Environment, values))


def _own(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """What belongs to a dataclass."""
    return {field.name: values[field.name] for field in fields(kind) if field.name in values}
