"""Profiles: what `tandem tune` found fastest for a model on this machine, kept for later runs.

Owns the files (one a model, in the folder of the settings) and when one holds: for the file of that name and size, on
the machine that was measured.  A profile is weaker than flags, environment and settings file.  Does not know measuring.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.errors import AppError
from app.preferences import Preferences
from app.settings import settings_path

if TYPE_CHECKING:
    from runtime.machine import Machine

VERSION = 1
_FOLDER = "profiles"


@dataclass(frozen=True, kw_only=True)
class Profile:
    """most_gpu_layers: how many were fastest, None where there was no GPU.  gpu: its name.  cpu_experts: of how many
    layers the experts were on the CPU then; None where the model has none.

    tokens_per_s: of decoding; prompt_tokens_per_s, answer_tokens_per_s: see runtime.tuning.samples.
    """

    model_file: str
    size_bytes: int
    cpu_name: str
    num_cores: int
    allowed_cpus: int
    gpu: str | None
    context_size: int
    threads: int
    batch_size: int
    cache_type_k: str
    cache_type_v: str
    most_gpu_layers: int | None
    tokens_per_s: float
    prompt_tokens_per_s: float
    answer_tokens_per_s: float
    read_bytes_per_s: float | None
    date: str
    cpu_experts: int | None = None

    def __str__(self) -> str:
        k, v = self.cache_type_k, self.cache_type_v
        layers = f", {self.most_gpu_layers} GPU layers at most" if self.most_gpu_layers is not None else ""
        if self.cpu_experts:
            layers += f", the experts of {self.cpu_experts} layers on the CPU"
        return (
            f"{self.threads} {'thread' if self.threads == 1 else 'threads'}, batch {self.batch_size}, "
            f"KV cache {k if k == v else f'{k}/{v}'}{layers}"
        )


def profile_path(model: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """Where the profile of a model's file lies; its name holds the file's, and its size."""
    return settings_path(environment).parent / _FOLDER / f"{model.stem}-{_size(model)}.json"


def save_profile(profile: Profile, path: Path) -> None:
    """Write it, in one go.  Raises AppError when that can't be done."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".json.unfinished")
        unfinished.write_text(json.dumps({"tandem_profile": VERSION, **asdict(profile)}, indent=1) + "\n", "utf-8")
        unfinished.replace(path)
    except OSError as error:
        raise AppError(f"The profile {path} can't be written: {error.strerror}.") from error


def load_profile(path: Path) -> Profile | None:
    """None where there is none.  Raises AppError for a file that is none."""
    try:
        value = json.loads(path.read_text("utf-8"))
        if value.pop("tandem_profile") != VERSION:
            raise ValueError("another version")
        return _profile(value)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise AppError(f"The profile {path} can't be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise AppError(
            f"{path} is no profile that this version can read.", hint="`tandem tune` writes it anew; or remove it."
        ) from error


def with_profile(
    preferences: Preferences,
    model: Path,
    tell: Callable[[str], None] | None = None,
    *,
    verbose: bool = False,
    machine: Machine | None = None,
) -> Preferences:
    """The preferences, and what the model's profile says where nothing was chosen.

    One that can't be read, or belongs to another machine, is told of and left alone.  tell: takes a line for stderr.
    """
    if preferences.no_profile or preferences.isa is not None or preferences.activations is not None:
        return preferences  # it was measured with what these are by themselves
    path, say = profile_path(model), tell or _nowhere
    try:
        profile = load_profile(path)
    except AppError as error:
        say(f"warning: {error} It is ignored.")
        return preferences
    if profile is None:
        return preferences
    reason = _foreign(profile, machine)
    if reason is not None:
        if verbose:
            say(f"profile: left out, for {reason} ({path}); `tandem tune` measures anew.")
        return preferences
    if verbose:
        say(f"profile: {profile} (tuned {profile.date[:10]}, {path}; --no-profile leaves it out)")
    return preferences.over(_chosen(profile, preferences))


def measured_bandwidth(preferences: Preferences, model: Path) -> float | None:
    """Bytes a second that the CPU's memory gave with the profile's number of threads, if that is what will run."""
    try:
        profile = None if preferences.no_profile else load_profile(profile_path(model))
    except AppError:
        return None
    if profile is None or _foreign(profile, None) or preferences.threads not in (None, profile.threads):
        return None
    return profile.read_bytes_per_s


def _chosen(profile: Profile, preferences: Preferences) -> Preferences:
    """Layers hold for the context and the types that they were measured with, or less."""
    context_size = preferences.ctx_size
    is_same = context_size is None or context_size <= profile.context_size
    return Preferences(
        threads=profile.threads,
        batch_size=profile.batch_size,
        cache_type_k=profile.cache_type_k if preferences.cache_type_v is None else None,
        cache_type_v=profile.cache_type_v if preferences.cache_type_k is None else None,
        most_gpu_layers=profile.most_gpu_layers if is_same else None,
        least_cpu_experts=profile.cpu_experts if is_same else None,
    )


def _foreign(profile: Profile, machine: Machine | None) -> str | None:
    """What is otherwise here than where it was measured."""
    if machine is None:
        from runtime.machine import read_machine

        machine = read_machine()
    if profile.cpu_name != machine.cpu_name:
        return f"it was measured on {profile.cpu_name}"
    if (profile.num_cores, profile.allowed_cpus) != (machine.num_cores, machine.allowed_cpus):
        return f"it was measured with {profile.num_cores} cores and {profile.allowed_cpus} processors"
    return None


def _profile(value: dict[str, Any]) -> Profile:
    """Raises TypeError and ValueError for what makes no profile."""
    profile = Profile(**value)
    for field in fields(Profile):
        found = value.get(field.name)
        kinds = {"str": str, "int": int, "float": (int, float)}[str(field.type).split(" ")[0]]
        if found is None and "None" in str(field.type):
            continue
        if not isinstance(found, kinds) or isinstance(found, bool):
            raise TypeError(field.name)
    return profile


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _nowhere(text: str) -> None:
    """For those who have no stderr."""
