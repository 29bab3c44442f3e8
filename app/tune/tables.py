"""The curves of a tuning as panels of bars, and its result as text and as JSON values.

Owns the words and the names.  Does not know streams or files.
"""

from __future__ import annotations

from typing import Any

from app.charts.panels import Bar, Panel
from app.figures import rate_text
from runtime.benchmark.statistics import Spread
from runtime.tuning.samples import ANSWER_PROMPT_TOKENS, ANSWER_TOKENS, Stage, TuneResult, TuneSample
from runtime.tuning.session import setting_text

_VARIED: dict[Stage, str] = {
    "layers": "GPU layers",
    "experts": "Layers whose experts are on the CPU",
    "threads": "Threads",
    "cache": "Keys and values",
    "batch": "Batch size",
}
_CHOSEN_MARK = " *"


def panels(result: TuneResult) -> tuple[Panel, ...]:
    """For each thing that was varied tokens/s of decode, and of the prompt where that depends on it; * is chosen."""
    made: list[Panel] = []
    for stage, samples in result.curves:
        if stage != "batch":
            made.append(_panel(stage, samples, result, "decode", [sample.decode for sample in samples]))
        if stage != "cache":
            made.append(_panel(stage, samples, result, "prompt", [sample.prompt for sample in samples]))
    return tuple(made)


def _panel(
    stage: Stage, samples: tuple[TuneSample, ...], result: TuneResult, series: str, spreads: list[Spread]
) -> Panel:
    bars = tuple(
        Bar(label=_label(stage, sample, result), series=series, spread=spread, limit=None)
        for sample, spread in zip(samples, spreads, strict=True)
    )
    return Panel(title=f"{_VARIED[stage]}: {series}, tokens/s", bars=bars)


def _label(stage: Stage, sample: TuneSample, result: TuneResult) -> str:
    chosen = result.chosen
    is_chosen = chosen is not None and setting_text(stage, sample.setting) == setting_text(stage, chosen.setting)
    return f"{setting_text(stage, sample.setting)}{_CHOSEN_MARK if is_chosen else ''}"


def sample_text(sample: TuneSample) -> str:
    """One line for a measured setting."""
    return (
        f"{setting_text(sample.stage, sample.setting)}: decode {rate_text(sample.decode.median)}, prompt "
        f"{rate_text(sample.prompt.median)} tokens/s"
    )


def result_text(result: TuneResult) -> str:
    """What was chosen, and by what."""
    chosen = result.chosen
    assert chosen is not None, "something was measured"
    setting = chosen.setting
    k, v = setting.cache_type_k, setting.cache_type_v
    rows = [
        ("threads", str(setting.threads)),
        ("batch", str(setting.batch_size)),
        ("KV cache", k if k == v else f"{k}/{v}"),
        *([("GPU layers", f"{setting.gpu_layers} of {result.num_layers}")] if _has_gpu(result) else []),
        *([("experts", f"of {setting.cpu_experts} layers on the CPU")] if setting.cpu_experts else []),
        ("context", f"{result.context_size} tokens"),
        ("decode", f"{rate_text(chosen.decode.median)} tokens/s"),
        ("prompt", f"{rate_text(chosen.prompt.median)} tokens/s"),
        (
            "answer",
            f"{rate_text(chosen.answer_tokens_per_s)} tokens/s ({ANSWER_TOKENS} tokens, after a prompt of "
            f"{ANSWER_PROMPT_TOKENS}, reading included)",
        ),
    ]
    width = max(len(label) for label, _ in rows)
    return "".join(f"{label:<{width}}  {text}\n" for label, text in rows)


def result_value(result: TuneResult, profile: str | None) -> dict[str, Any]:
    """The JSON object.  profile: the file that keeps it."""
    return {
        "chosen": None if result.chosen is None else _sample_value(result.chosen),
        "context_size": result.context_size,
        "num_layers": result.num_layers,
        "read_bytes_per_s": result.read_bytes_per_s,
        "is_complete": result.is_complete,
        "profile": profile,
        "curves": [
            {"varied": stage, "samples": [_sample_value(sample) for sample in samples]}
            for stage, samples in result.curves
        ],
    }


def _sample_value(sample: TuneSample) -> dict[str, Any]:
    setting = sample.setting
    return {
        "gpu_layers": setting.gpu_layers,
        "cpu_experts": setting.cpu_experts,
        "threads": setting.threads,
        "batch_size": setting.batch_size,
        "cache_type_k": setting.cache_type_k,
        "cache_type_v": setting.cache_type_v,
        "decode_tokens_per_s": sample.decode.median,
        "prompt_tokens_per_s": sample.prompt.median,
        "answer_tokens_per_s": sample.answer_tokens_per_s,
    }


def _has_gpu(result: TuneResult) -> bool:
    return any(sample.setting.gpu_layers for _, samples in result.curves for sample in samples)
