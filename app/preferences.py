"""What a person chose, wherever it was said: by flag, in the environment, in the settings file or a profile.

Owns the names of all values, which are their keys in the settings file too.  Does not know flags (options.py), nor what
becomes of the values (runtime_options.py).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace


@dataclass(frozen=True, kw_only=True)
class Preferences:
    """What the person chose, by flag, environment or file.  None: nothing, so the runtime's default holds."""

    model: str | None = None
    ctx_size: int | None = None
    predict: int | None = None
    threads: int | None = None
    batch_size: int | None = None
    cache_type_k: str | None = None
    cache_type_v: str | None = None
    seed: int | None = None
    temp: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = None
    top_n_sigma: float | None = None
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    dynatemp_range: float | None = None
    dynatemp_exp: float | None = None
    mirostat: int | None = None
    mirostat_ent: float | None = None
    mirostat_lr: float | None = None
    repeat_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repeat_last_n: int | None = None
    dry_multiplier: float | None = None
    dry_base: float | None = None
    dry_allowed_length: int | None = None
    dry_penalty_last_n: int | None = None
    dry_sequence_breaker: tuple[str, ...] | None = None
    logit_bias: tuple[str, ...] | None = None
    banned_string: tuple[str, ...] | None = None
    samplers: str | None = None
    stop: tuple[str, ...] | None = None
    activations: str | None = None
    isa: str | None = None
    device: str | None = None
    gpu_layers: str | None = None
    n_cpu_moe: str | None = None
    vram_margin: int | None = None
    most_gpu_layers: int | None = None  # a profile's alone, as the next
    least_cpu_experts: int | None = None
    no_profile: bool | None = None
    system: str | None = None
    chat_template: str | None = None
    chat_template_file: str | None = None
    chat_template_kwargs: str | None = None
    draft_model: str | None = None
    draft_max: int | None = None
    draft_min: int | None = None
    draft_weights: str | None = None
    spec: str | None = None
    offline: bool | None = None
    lora: tuple[str, ...] | None = None
    theme: str | None = None
    screen_reader: bool | None = None
    models_dir: str | None = None
    kernels_dir: str | None = None

    def over(self, weaker: Preferences) -> Preferences:
        """These values, and the weaker ones where nothing was chosen here."""
        chosen = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(weaker, **{name: value for name, value in chosen.items() if value is not None})
