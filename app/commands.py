"""From parsed flags to the command that they ask for.

Owns where a command's preferences come from, and its import, which waits until the command is called.  Does not know
flags, nor what a command does.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from app import generate_arguments
from app.bench import arguments as bench_arguments
from app.errors import SettingsError, UsageError, report_of
from app.evaluate import arguments as evaluate_arguments
from app.options import preferences_of
from app.output import Console
from app.plan import arguments as plan_arguments
from app.preferences import Preferences
from app.runtime_options import engine_options, models_folder_of
from app.settings import Settings, load_settings, settings_path
from app.tune import arguments as tune_arguments


def chat(namespace: argparse.Namespace, console: Console) -> int:
    """Opens the screen; the model is loaded beside it."""
    settings = _settings(console)
    preferences = _preferences(namespace, console, settings)
    if not (_is_terminal(sys.stdin) and console.is_terminal):
        raise UsageError(
            "The chat needs a terminal, and stdin or stdout is none.", hint='`tandem generate -p "..."` works anywhere.'
        )
    from app.chat import ChatOptions, run
    from app.runtime_options import generate_options

    for refuse_nonsense in (engine_options, generate_options):
        refuse_nonsense(preferences)  # before a screen stands
    return run(
        ChatOptions(
            preferences=preferences,
            settings_path=settings.path,
            models_folder=models_folder_of(preferences),
            presets=settings.presets,
            continue_last=namespace.continue_last,
            first_message=namespace.prompt or "",
            keys=settings.keys,
        )
    )


def generate(namespace: argparse.Namespace, console: Console) -> int:
    """One prompt, or many."""
    from_stdin = generate_arguments.take_stdin_word(namespace)
    preferences = _preferences(namespace, console)
    return generate_arguments.run(namespace, preferences_of(namespace), preferences, console, from_stdin=from_stdin)


def bench(namespace: argparse.Namespace, console: Console) -> int:
    """Measures, or compares two results."""
    comparison = bench_arguments.compare_request(namespace)
    if comparison is not None:
        from app.bench.compare_command import run as run_comparison

        return run_comparison(comparison, console)
    settings = _settings(console)
    chosen = Preferences(
        isa=namespace.isa,
        lora=tuple(namespace.lora or ()) or None,
        offline=namespace.offline,
        no_profile=namespace.no_profile,
        device=namespace.device,
        vram_margin=namespace.vram_margin,
    )
    request = bench_arguments.bench_request(namespace, chosen.over(settings.preferences))
    from app.bench.command import run

    return run(request, console)


def evaluate(namespace: argparse.Namespace, console: Console) -> int:
    """Tells how good the numbers are."""
    request = evaluate_arguments.evaluate_request(namespace, _preferences(namespace, console))
    from app.evaluate.command import run

    return run(request, console)


def plan(namespace: argparse.Namespace, console: Console) -> int:
    """Shows the memory bill."""
    request = plan_arguments.plan_request(namespace, _preferences(namespace, console))
    from app.plan.command import run

    return run(request, console)


def tune(namespace: argparse.Namespace, console: Console) -> int:
    """Looks for the fastest settings."""
    request = tune_arguments.tune_request(namespace, preferences_of(namespace), _preferences(namespace, console))
    from app.tune.command import run

    return run(request, console)


def list_models(namespace: argparse.Namespace, console: Console) -> int:
    """Shows the disk and the catalog."""
    from app.models_command import list_models as run

    return run(models_folder_of(_preferences(namespace, console)), console, as_json=namespace.json)


def pull_model(namespace: argparse.Namespace, console: Console) -> int:
    """Fetches a model."""
    from app.models_command import pull_model as run

    return run(namespace.model_name, models_folder_of(_preferences(namespace, console)), console)


def show_model(namespace: argparse.Namespace, console: Console) -> int:
    """Shows what a model's file holds."""
    from app.models_command import show_model as run

    preferences = _preferences(namespace, console)
    template_file = Path(preferences.chat_template_file) if preferences.chat_template_file else None
    return run(namespace.model_name, models_folder_of(preferences), console, chat_template_file=template_file)


def remove_model(namespace: argparse.Namespace, console: Console) -> int:
    """Deletes a model."""
    from app.models_command import remove_model as run

    return run(namespace.model_name, models_folder_of(_preferences(namespace, console)), console)


def doctor(namespace: argparse.Namespace, console: Console) -> int:
    """Shows what a bug report needs."""
    try:
        preferences = _preferences(namespace, console)
    except SettingsError as error:  # the very time that doctor is needed
        console.report(report_of(error))
        preferences = Preferences()
    from app.doctor import Folders, run

    folders = Folders(
        models=models_folder_of(preferences),
        kernels=engine_options(preferences).kernel_folder.expanduser(),
        settings_file=settings_path(),
    )
    return run(folders, console, as_json=namespace.json)


def _settings(console: Console) -> Settings:
    settings = load_settings()
    for warning in settings.warnings:
        console.note(f"warning: {warning}")
    return settings


def _preferences(namespace: argparse.Namespace, console: Console, settings: Settings | None = None) -> Preferences:
    """Flags over environment over file; the model may stand behind the command or behind -m."""
    words = list(getattr(namespace, "model_words", []))
    named = [*words, *([namespace.model] if getattr(namespace, "model", None) else [])]
    if len(named) > 1:
        raise UsageError(
            f"One model is enough, and {' and '.join(named)} were given.", hint="a text with blanks needs quotes."
        )
    if named:
        namespace.model = named[0]
    return preferences_of(namespace).over((settings or _settings(console)).preferences)


def _is_terminal(stream: object) -> bool:
    isatty = getattr(stream, "isatty", None)
    return bool(isatty and isatty())
