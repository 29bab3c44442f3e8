"""A run on paper: everything an answer depended on, so that it can be made again; and `--replay`, which does.

Owns the names in the file and the comparison.  Does not know how an answer comes about.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.adapters import adapter_text
from app.errors import EXIT_FAILURE, EXIT_SUCCESS, AppError, UsageError
from app.interrupts import HeldInterrupt
from app.loading import load_engine, resolve_with_progress
from app.output import Console
from app.preferences import Preferences
from app.runtime_options import engine_options
from app.versions import package_versions, tandem_version

if TYPE_CHECKING:
    from runtime import Completion, EngineDescription, EngineOptions, GenerateOptions, Prompt

VERSION = 1

_LOADED = ("batch_size", "cache_type_k", "cache_type_v", "activations", "isa")
_CIRCUMSTANCES = ("model", "engine", "versions")


def check_place(path: Path) -> None:
    """Raises AppError for a manifest that could not be written, before an answer is made for it."""
    path = path.expanduser()
    fault = next(
        (
            fault
            for is_so, fault in (
                (path.is_dir(), "it is a folder"),
                (not path.parent.is_dir(), f"{path.parent} is no folder"),
                (not os.access(path if path.exists() else path.parent, os.W_OK), "it may not be written"),
            )
            if is_so
        ),
        None,
    )
    if fault is not None:
        raise AppError(f"The manifest {path} can't be written: {fault}.")


def write_manifest(
    path: Path,
    description: EngineDescription,
    how_to_load: EngineOptions,
    prompt: Prompt,
    options: GenerateOptions,
    completion: Completion,
) -> None:
    """Write everything down.  Raises AppError when the file can't be written."""
    from runtime import describe_chain

    options = replace(options, sampling=replace(options.sampling, seed=completion.seed))
    value = {
        "tandem_manifest": VERSION,
        **_circumstances(description, how_to_load),
        "prompt": _prompt_value(prompt),
        "options": _options_value(options),
        "chain": describe_chain(options.sampling),
        "seed": completion.seed,
        "prompt_ids": list(completion.prompt_ids),
        "ids": list(completion.ids),
        "finish_reason": completion.finish_reason,
    }
    try:
        path.expanduser().write_text(json.dumps(value, indent=1) + "\n", "utf-8")
    except OSError as error:
        raise AppError(f"The manifest {path} can't be written: {error.strerror}.") from error


def replay(path: Path, explicit: Preferences, weaker: Preferences, console: Console, *, verbose: bool) -> int:
    """Make the answer of a manifest again; says whether its ids are the same, and if not, what is different.

    explicit: what beats the manifest; weaker: what holds where it says nothing.
    """
    manifest = _read(path)
    try:
        options = _read_options(manifest["options"])
        prompt = _read_prompt(manifest["prompt"])
        wanted_ids, wanted_prompt = list(manifest["ids"]), list(manifest["prompt_ids"])
        was_cancelled = manifest["finish_reason"] == "cancelled"
        preferences = explicit.over(_read_preferences(manifest).over(weaker))
        preferences = replace(preferences, chat_template=options.chat_template)
    except (KeyError, TypeError, ValueError) as error:
        raise AppError(f"{path} is no manifest that this version can read: {error}.") from error
    if was_cancelled:
        options = replace(options, max_tokens=len(wanted_ids))
    engine_options(explicit.over(weaker))  # what the command line says wrong is its own fault
    try:
        how_to_load = engine_options(preferences)
    except UsageError as error:
        raise AppError(f"{path} asks for what this version can't load: {error}") from error
    except (TypeError, ValueError) as error:
        raise AppError(
            f"{path} is no manifest that this version can read: a value of its engine is of another kind ({error})."
        ) from error
    engine = load_engine(resolve_with_progress(preferences, console), how_to_load, console, verbose=verbose)
    try:
        circumstances = _circumstances(engine.description, how_to_load)
        completion = engine.generate(prompt, options).result
    finally:
        with HeldInterrupt():
            engine.close()
    console.text(completion.text)
    if console.is_terminal and completion.text and not completion.text.endswith("\n"):
        console.text("\n")
    differences = list(_differences(manifest, circumstances))
    for difference in differences:
        console.note(f"note: {difference}")
    for name, wanted, found in (
        ("prompt", wanted_prompt, list(completion.prompt_ids)),
        ("answer", wanted_ids, list(completion.ids)),
    ):
        if wanted != found:
            cause = "" if differences else " Nothing else is different."
            console.note(f"The {name}'s ids are not the same: {_first_difference(wanted, found)}.{cause}")
            return EXIT_FAILURE
    console.note(f"The same {len(wanted_ids)} ids.")
    return EXIT_SUCCESS


def _circumstances(description: EngineDescription, how_to_load: EngineOptions) -> dict[str, Any]:
    """What ids may depend on besides prompt and options."""
    from runtime.machine import read_machine

    machine = read_machine()
    return {
        "model": {
            "name": description.name,
            "path": str(description.path.resolve()),
            "fingerprint": description.fingerprint,
        },
        "engine": {
            **_placement_value(description),
            "cpu": machine.cpu_name,
            "isa_in_force": machine.isa if how_to_load.isa == "auto" else how_to_load.isa,
            "ctx_size": description.context_size,
            "threads": description.threads,
            **{name: getattr(how_to_load, name) for name in _LOADED},
            "speculation": how_to_load.speculation.mode,
            **_adapters_value(how_to_load),
            **_template_value(description, how_to_load),
        },
        "versions": {"tandem": tandem_version(), **package_versions()},
    }


def _placement_value(description: EngineDescription) -> dict[str, Any]:
    if description.gpu is None:
        return {"placement": "cpu"}
    value = {"placement": "gpu", "gpu": description.gpu, "gpu_layers": description.gpu_layers}
    return value | ({"n_cpu_moe": description.cpu_experts} if description.cpu_experts else {})


def _adapters_value(how_to_load: EngineOptions) -> dict[str, Any]:
    """Nothing where there are none, as in manifests of versions that knew none."""
    adapters = how_to_load.adapters
    return {"adapters": [adapter_text(choice) for choice in adapters]} if adapters else {}


def _template_value(description: EngineDescription, how_to_load: EngineOptions) -> dict[str, Any]:
    """Nothing where the template is the model's own."""
    path = how_to_load.chat_template_file
    if path is None:
        return {}
    return {
        "chat_template_file": os.path.realpath(os.path.expanduser(path)),
        "chat_template_sha256": description.chat_template_sha256,
    }


def _differences(manifest: Mapping[str, Any], circumstances: Mapping[str, Any]) -> Iterator[str]:
    """Sentences on what was otherwise when the manifest was written."""
    for part in _CIRCUMSTANCES:
        was, now = manifest.get(part), circumstances[part]
        if not isinstance(was, dict):
            continue
        for name in sorted({*was, *now}):
            if name not in ("path", "threads", "chat_template_file") and was.get(name) != now.get(name):
                yield f"{part} {name} was {was.get(name)} and is {now.get(name)}."


def _first_difference(wanted: Sequence[int], found: Sequence[int]) -> str:
    for place, (was, now) in enumerate(zip(wanted, found, strict=False)):
        if was != now:
            return f"id {place} was {was} and is {now}"
    return f"there were {len(wanted)} and there are {len(found)}"


def _options_value(options: GenerateOptions) -> dict[str, Any]:
    value = asdict(replace(options, on_prefill=None))
    del value["on_prefill"]
    return value


def _read_options(value: Mapping[str, Any]) -> GenerateOptions:
    from runtime import GenerateOptions, OutputConstraint, SamplingOptions

    sampling = {name: _tuples(part) for name, part in value["sampling"].items()}
    constraint = value["constraint"]
    named = {
        **{name: _tuples(part) for name, part in value.items()},
        "sampling": SamplingOptions(**sampling),
        "constraint": None if constraint is None else OutputConstraint(**constraint),
    }
    return GenerateOptions(**named)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _prompt_value(prompt: Prompt) -> Any:
    from runtime import Message

    if isinstance(prompt, str):
        return prompt
    return [asdict(part) if isinstance(part, Message) else part for part in prompt]


def _read_prompt(value: Any) -> Prompt:
    from runtime import Message

    if isinstance(value, str):
        return value
    if value and isinstance(value[0], dict):
        return [Message(**{name: _tuples(part) for name, part in turn.items()}) for turn in value]
    return [int(token_id) for token_id in value]


def _read_preferences(manifest: Mapping[str, Any]) -> Preferences:
    """How the model was loaded, threads aside: ids don't depend on them."""
    engine = manifest["engine"]
    loaded = {name: engine[name] for name in _LOADED}
    if adapters := engine.get("adapters"):
        loaded["lora"] = _tuples(adapters)
    if template_file := engine.get("chat_template_file"):
        loaded["chat_template_file"] = str(template_file)
    if engine["placement"] == "cpu":
        loaded["device"] = "cpu"
    else:
        loaded["gpu_layers"] = str(int(engine["gpu_layers"]))
        loaded["n_cpu_moe"] = str(int(engine.get("n_cpu_moe", 0)))
    return Preferences(model=manifest["model"]["path"], ctx_size=engine["ctx_size"], **loaded)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(path.expanduser().read_text("utf-8"))
    except OSError as error:
        raise AppError(f"The manifest {path} can't be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise AppError(f"The manifest {path} is no JSON: {error}.") from error
    if not isinstance(value, dict) or value.get("tandem_manifest") != VERSION:
        raise AppError(f"{path} is no manifest that --manifest of this version wrote.")
    return value
