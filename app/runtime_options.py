"""From what a person chose to the runtime's options, with a sentence for what can't be.

Owns the texts that stand for other values: numbers or words, JSON.  Does not know flags (options.py).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.errors import UsageError
from app.preferences import Preferences
from app.sampling_choices import NO_LIMIT, sampling_options

if TYPE_CHECKING:
    from runtime.options import EngineOptions, GenerateOptions


def engine_options(preferences: Preferences) -> EngineOptions:
    """How the model is to be loaded, without a draft model (drafts.py).  Raises UsageError for values out of range."""
    from runtime.errors import OptionError
    from runtime.options import EngineOptions
    from runtime.speculation.options import SpeculationOptions

    if preferences.vram_margin is not None and preferences.vram_margin < 0:
        raise UsageError(f"--vram-margin is {preferences.vram_margin}; expected a number of MiB, 0 or more.")
    named = {
        "context_size": preferences.ctx_size,
        "threads": preferences.threads,
        "batch_size": preferences.batch_size,
        "cache_type_k": preferences.cache_type_k,
        "cache_type_v": preferences.cache_type_v,
        "activations": preferences.activations,
        "isa": preferences.isa,
        "device": number_or_word(preferences.device),
        "gpu_layers": number_or_word(preferences.gpu_layers),
        "cpu_experts": number_or_word(preferences.n_cpu_moe),
        "most_gpu_layers": preferences.most_gpu_layers,
        "least_cpu_experts": preferences.least_cpu_experts,
        "vram_margin_bytes": None if preferences.vram_margin is None else preferences.vram_margin * 2**20,
        "chat_template": preferences.chat_template,
        "chat_template_file": Path(preferences.chat_template_file) if preferences.chat_template_file else None,
        "kernel_folder": Path(preferences.kernels_dir) if preferences.kernels_dir is not None else None,
    }
    guessing = {
        "mode": preferences.spec,
        "draft_max": preferences.draft_max,
        "draft_min": preferences.draft_min,
        "draft_weights": preferences.draft_weights,
    }
    if preferences.lora:
        from app.adapters import adapter_choices

        named["adapters"] = adapter_choices(preferences.lora)
    try:
        return EngineOptions(**_chosen(named), speculation=SpeculationOptions(**_chosen(guessing)))
    except OptionError as error:
        raise UsageError(str(error)) from error


def number_or_word(text: str | None) -> int | str | None:
    """A number where the text is one; what else it may be is the runtime's to say."""
    return int(text) if text is not None and text.isdecimal() else text


def generate_options(preferences: Preferences, **more: Any) -> GenerateOptions:
    """How an answer is to be made.  more: further fields of GenerateOptions.  Raises UsageError."""
    from runtime.errors import OptionError
    from runtime.options import GenerateOptions

    max_tokens = None if preferences.predict == NO_LIMIT else preferences.predict
    try:
        return GenerateOptions(
            sampling=sampling_options(preferences),
            max_tokens=max_tokens,
            stop=preferences.stop or (),
            chat_template=preferences.chat_template,
            template_variables=read_json_object(preferences.chat_template_kwargs),
            **more,
        )
    except OptionError as error:
        raise UsageError(str(error)) from error


def read_json_object(text: str | None) -> dict[str, Any]:
    """What --chat-template-kwargs holds."""
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"--chat-template-kwargs is no JSON: {error}.", hint="""for example '{"reasoning_effort": "high"}'."""
        ) from error
    if not isinstance(value, dict):
        raise UsageError(
            "--chat-template-kwargs is no JSON object.", hint="""for example '{"reasoning_effort": "high"}'."""
        )
    return value


def models_folder_of(preferences: Preferences) -> Path:
    """Where models are kept."""
    if preferences.models_dir is not None:
        return Path(preferences.models_dir).expanduser()
    from runtime.catalog import models_folder

    return models_folder()


def _chosen(named: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in named.items() if value is not None}
