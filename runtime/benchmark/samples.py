"""The repeats of one test as they come, and the row that is made of them.

Owns the making of rates, ratios and shares of the limit from times.  Does not know how a time was taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from statistics import median

from runtime.benchmark.end_to_end import Generated
from runtime.benchmark.guessing import GuessingSamples
from runtime.benchmark.loading import LoadedModel
from runtime.benchmark.results import TANDEM, DeviceShare, PeerRatio, Row, Setting
from runtime.benchmark.statistics import spread_of
from runtime.benchmark.workloads import Workload
from runtime.devices.binding import DeviceTimes
from runtime.devices.costs import MachineLimits, RunCost, StepCosts, run_cost
from runtime.engine import EngineDescription
from runtime.options import EngineOptions
from runtime.timings import percentile


@dataclass
class Samples:
    """What was measured of one test so far, one entry a repeat; steps_s: every step of every repeat."""

    tokens_per_s: list[float] = field(default_factory=list)
    step_time_ratios: list[float] = field(default_factory=list)
    steps_s: list[float] = field(default_factory=list)
    generated: list[Generated] = field(default_factory=list)
    peers: dict[str, list[float]] = field(default_factory=dict)
    spent: list[DeviceTimes] = field(default_factory=list)

    def add_run(self, num_tokens: int, elapsed_s: float) -> None:
        """One prefill."""
        self.tokens_per_s.append(num_tokens / elapsed_s)

    def add_steps(self, tokens_a_step: int, steps_s: list[float]) -> None:
        """One repeat of decoding."""
        self.tokens_per_s.append(tokens_a_step * len(steps_s) / sum(steps_s))
        self.steps_s += steps_s

    def add_against_one(self, tokens_a_step: int, many_s: list[float], one_s: list[float]) -> None:
        """One repeat of passes of several tokens and of one, in turn."""
        self.add_steps(tokens_a_step, many_s)
        self.step_time_ratios.append(median(many_s) / median(one_s))

    def add_generated(self, generated: Generated) -> None:
        """One answer of the engine."""
        self.tokens_per_s.append(generated.decode_tokens_per_s)
        self.generated.append(generated)


@dataclass(frozen=True, kw_only=True)
class Stamp:
    """When a row was finished, how many repeats were wanted, and what else ran on the machine."""

    repeats: int
    date: str
    load: float | None


def own_setting(loaded: LoadedModel, options: EngineOptions) -> Setting:
    """Tandem's, for a model that was loaded with these options."""
    return engine_setting(loaded.description, options, isa=loaded.isa)


def engine_setting(description: EngineDescription, options: EngineOptions, *, isa: str) -> Setting:
    """The same of an engine.  isa: the level that was chosen."""
    return Setting(
        engine=TANDEM,
        variant="",
        model=description.name,
        model_file=description.path.name,
        model_fingerprint=description.fingerprint,
        model_size_bytes=description.size_bytes,
        threads=description.threads,
        batch_size=options.batch_size,
        cache_type_k=options.cache_type_k,
        cache_type_v=options.cache_type_v,
        activations=options.activations,
        isa=isa,
        gpu_layers=description.gpu_layers,
        cpu_experts=description.cpu_experts,
    )


def peer_setting(own: Setting, peer: str, variant: str) -> Setting:
    """Another engine's, on the same file with the same threads and cache."""
    return replace(
        own, engine=peer, variant=variant, batch_size=None, activations=None, isa=None, gpu_layers=0, cpu_experts=0
    )


def make_row(
    setting: Setting,
    workload: Workload,
    samples: Samples,
    stamp: Stamp,
    *,
    version: str,
    devices: tuple[DeviceShare, ...],
    peer_ratio: PeerRatio | None,
) -> Row:
    """Tandem's row, of at least one repeat."""
    steps_ms = sorted(step_s * 1e3 for step_s in samples.steps_s) if workload.test != "verify" else []
    timings = [generated.timings for generated in samples.generated]

    def middle(name: str) -> float | None:
        values = [value for timing in timings if (value := getattr(timing, name)) is not None]
        return median(values) if values else None

    return Row(
        engine_version=version,
        setting=setting,
        workload=workload,
        tokens_per_s=median(samples.tokens_per_s),
        tokens_per_s_samples=tuple(samples.tokens_per_s),
        is_complete=len(samples.tokens_per_s) == stamp.repeats,
        step_time_ratio=median(samples.step_time_ratios) if samples.step_time_ratios else None,
        step_time_ratio_samples=tuple(samples.step_time_ratios),
        prefill_tokens_per_s=middle("prefill_tokens_per_s"),
        ttft_s=middle("ttft_s"),
        inter_token_p50_ms=percentile(steps_ms, 50) if steps_ms else middle("inter_token_p50_ms"),
        inter_token_p95_ms=percentile(steps_ms, 95) if steps_ms else middle("inter_token_p95_ms"),
        inter_token_p99_ms=percentile(steps_ms, 99) if steps_ms else middle("inter_token_p99_ms"),
        overhead_ms=median(one.overhead_ms for one in samples.generated) if samples.generated else None,
        cpu_ms_per_token=_a_token(workload, [times.cpu_ms for times in samples.spent]),
        gpu_ms_per_token=_a_token(workload, [times.gpu_ms for times in samples.spent]),
        transfer_ms_per_token=_a_token(workload, [times.transfer_ms for times in samples.spent]),
        devices=devices,
        peer_ratio=peer_ratio,
        date=stamp.date,
        load=stamp.load,
    )


def guessing_row(setting: Setting, workload: Workload, samples: GuessingSamples, stamp: Stamp, *, version: str) -> Row:
    """A set of prompts answered with guesses and without, of one answer or more."""
    rates = samples.tokens_per_s()
    longest = max(map(len, samples.repeats))
    is_complete = len(samples.whole) == stamp.repeats and all(len(pairs) == longest for pairs in samples.whole)
    return Row(
        engine_version=version,
        setting=setting,
        workload=workload,
        tokens_per_s=median(rates),
        tokens_per_s_samples=tuple(rates),
        is_complete=is_complete,
        speculation=samples.figures(),
        date=stamp.date,
        load=stamp.load,
    )


def _a_token(workload: Workload, elapsed_ms: list[float]) -> float | None:
    """The median of the repeats, for each token; None where a CPU alone computed."""
    num_tokens = workload.prompt_tokens if workload.test == "prefill" else workload.output_tokens
    return median(elapsed_ms) / num_tokens if elapsed_ms else None


def peer_row(
    setting: Setting, workload: Workload, rates: list[float], stamp: Stamp, *, version: str, decode_rate: float | None
) -> Row:
    """Another engine's row, of at least one repeat.  decode_rate: its tokens/s one by one at the same depth."""
    return Row(
        engine_version=version,
        setting=setting,
        workload=workload,
        tokens_per_s=median(rates),
        tokens_per_s_samples=tuple(rates),
        is_complete=len(rates) == stamp.repeats,
        step_time_ratio=workload.width * decode_rate / median(rates)
        if workload.test == "verify" and decode_rate
        else None,
        date=stamp.date,
        load=stamp.load,
    )


def ratio_to_better(peer: str, samples: Samples) -> PeerRatio | None:
    """Tandem over the variant with the higher median, repeat by repeat; None where no peer measured."""
    measured = {variant: rates for variant, rates in samples.peers.items() if rates}
    if not measured:
        return None
    better = max(measured, key=lambda variant: median(measured[variant]))
    ratios = [own / theirs for own, theirs in zip(samples.tokens_per_s, measured[better], strict=False)]
    return (
        PeerRatio(peer=peer, variant=better, ratio=spread_of(ratios), ratio_samples=tuple(ratios)) if ratios else None
    )


def middle(measured: Sequence[MachineLimits]) -> MachineLimits:
    """The median of each limit.

    Memory may give 35 GB/s in one second and 57 in the next, on a machine whose neighbours share it, so what was
    measured beside each repeat counts, not the best of all.
    """
    names = [entry.name for entry in fields(MachineLimits)]
    return MachineLimits(**{name: median(getattr(limits, name) for limits in measured) for name in names})


def workload_cost(costs: StepCosts, workload: Workload, max_batch_tokens: int) -> tuple[RunCost, int]:
    """What one repeat costs, and its tokens; of a generate test: of its decode steps."""
    total, first = RunCost(), workload.depth + workload.prompt_tokens
    match workload.test:
        case "prefill":
            for start in range(workload.depth, first, max_batch_tokens):
                count = min(max_batch_tokens, first - start)
                total = total.plus(run_cost(costs, [start], count=count, num_outputs=int(start + count == first)))
            return total, workload.prompt_tokens
        case "verify":
            for start in range(first, first + workload.num_passes * workload.width, workload.width):
                total = total.plus(run_cost(costs, [start], count=workload.width, num_outputs=workload.width))
            return total, workload.num_passes * workload.width
        case _:
            width = workload.width
            num_steps = workload.output_tokens - (1 if workload.test == "generate" else 0)
            for start in range(first, first + num_steps):
                total = total.plus(run_cost(costs, [start] * width, count=1, num_outputs=width))
            return total, num_steps * width


def device_shares(
    loaded: LoadedModel, workload: Workload, limits: MachineLimits, samples: Samples
) -> tuple[DeviceShare, ...]:
    """How near each device came to its limits; of a split model in decoding alone, where memory is the GPU's limit."""
    parts = loaded.part_costs
    if parts is None:
        return (_share(loaded, loaded.costs, loaded.device, workload, limits, median(samples.tokens_per_s)),)
    if workload.test != "decode" or not samples.spent:
        return ()
    found = []
    cpu_ms, gpu_ms = (median(getattr(times, name) for times in samples.spent) for name in ("cpu_ms", "gpu_ms"))
    if parts.cpu is not None and cpu_ms > 0:
        rate = workload.output_tokens / cpu_ms * 1e3
        found.append(_share(loaded, parts.cpu, "cpu", workload, limits, rate))
    if parts.card_bytes_per_s is not None and gpu_ms > 0:
        card = MachineLimits(
            read_bytes_per_s=parts.card_bytes_per_s,
            byte_multiply_adds_per_s=float("inf"),
            float_multiply_adds_per_s=float("inf"),
        )
        share = _share(loaded, parts.gpu, loaded.device, workload, card, workload.output_tokens / gpu_ms * 1e3)
        found.append(replace(share, byte_multiply_adds_per_s=0.0, float_multiply_adds_per_s=0.0))  # not known
    return tuple(found)


def _share(
    loaded: LoadedModel, costs: StepCosts, device: str, workload: Workload, limits: MachineLimits, tokens_per_s: float
) -> DeviceShare:
    cost, num_tokens = workload_cost(costs, workload, loaded.binding.limits.max_batch_tokens)
    least_s, limited_by = cost.least_s(limits)
    return DeviceShare(
        device=device,
        moved_bytes_per_token=cost.moved_bytes / num_tokens,
        byte_multiply_adds_per_token=cost.byte_multiply_adds / num_tokens,
        float_multiply_adds_per_token=cost.float_multiply_adds / num_tokens,
        read_bytes_per_s=limits.read_bytes_per_s,
        byte_multiply_adds_per_s=limits.byte_multiply_adds_per_s,
        float_multiply_adds_per_s=limits.float_multiply_adds_per_s,
        limit_tokens_per_s=num_tokens / least_s,
        limit_share=tokens_per_s * least_s / num_tokens,
        limited_by=limited_by,
    )
