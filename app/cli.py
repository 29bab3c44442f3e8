"""The `tandem` command: its flags, and which command they start.

Owns the grammar of the command line.  Does not know what a command does: each is imported when it is called, so that
`tandem --help` imports neither the engine nor the screen.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from app import generate_arguments
from app.bench import arguments as bench
from app.errors import (
    EXIT_FAILURE,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    OutputClosedError,
    SettingsError,
    UsageError,
    report_of,
)
from app.evaluate import arguments as evaluate
from app.options import (
    CHAT_OPTIONS,
    LOAD_OPTIONS,
    SAMPLING_OPTIONS,
    Preferences,
    add_flags,
    engine_options,
    models_folder_of,
    preferences_of,
)
from app.output import Console, console_of_process, discard_output
from app.plan import arguments as plan
from app.settings import DEBUG_VARIABLE, Settings, load_settings, settings_path
from app.tune import arguments as tune

COMMANDS = ("chat", "generate", "bench", "eval", "plan", "tune", "models", "doctor")

Command = Callable[[argparse.Namespace, Console], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status: 0 success, 1 failure, 2 usage, 130 interrupted."""
    console = console_of_process()
    try:
        return _run(list(sys.argv[1:] if arguments is None else arguments), console)
    except KeyboardInterrupt:
        console.clear_progress_line()
        return EXIT_INTERRUPTED
    except (OutputClosedError, BrokenPipeError):
        discard_output()
        return EXIT_FAILURE
    except Exception as error:
        if os.environ.get(DEBUG_VARIABLE, "") not in ("", "0"):
            raise
        report = report_of(error)
        console.report(report)
        return report.status


def _run(arguments: list[str], console: Console) -> int:
    parser = _parser()
    if _starts_chat(arguments):
        arguments = ["chat", *arguments]
    try:
        namespace, unknown = parser.parse_known_args(arguments)
    except SystemExit as stop:
        return int(stop.code or 0)
    try:
        if unknown:
            raise _unknown_flag(unknown[0], namespace.parser)
        return namespace.command(namespace, console)
    except UsageError as error:
        console.note(namespace.parser.format_usage().strip())
        console.report(report_of(error))
        return EXIT_USAGE


def _starts_chat(arguments: list[str]) -> bool:
    """Plain `tandem`, and `tandem` with nothing but flags of the chat."""
    return not arguments or (arguments[0].startswith("-") and arguments[0] not in ("-h", "--help", "--version"))


def _unknown_flag(flag: str, parser: argparse.ArgumentParser) -> UsageError:
    import difflib

    known = [name for action in parser._actions for name in action.option_strings]
    text = flag.split("=")[0]
    near = [name for name in known if name.startswith(text)] or difflib.get_close_matches(text, known, 1)
    hint = (
        f"did you mean {near[0]}? Flags can't be abbreviated." if near else f"`{parser.prog} --help` shows every flag."
    )
    return UsageError(f"There is no {flag} here.", hint=hint)


class _Parser(argparse.ArgumentParser):
    """A parser that refuses abbreviations and names the nearest flag."""

    def __init__(self, *arguments: object, **keywords: object) -> None:
        super().__init__(*arguments, **{**keywords, "allow_abbrev": False})  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(EXIT_USAGE, f"tandem: {message}\nhint: `{self.prog} --help` shows every flag.\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="tandem",
        description="Run language models on your own machine.",
        epilog="MODEL is a catalog name, a path to a GGUF file, or owner/repo[:quant] on Hugging Face; without one, "
        "smollm2-135m is used, fetched the first time. Plain `tandem` opens the chat.",
    )
    parser.add_argument("--version", action=_Version, help="show the version and leave")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    _add_chat(commands)
    _add_generate(commands)
    _add_bench(commands)
    _add_eval(commands)
    _add_plan(commands)
    _add_tune(commands)
    _add_models(commands)
    _add_doctor(commands)
    return parser


class _Version(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from app.versions import tandem_version

        print(f"tandem {tandem_version()}")
        parser.exit()


def _add_chat(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = commands.add_parser(
        "chat",
        help="talk with a model",
        usage="tandem chat [MODEL] [flags]",
        description="Talk with a model in this terminal.",
    )
    parser.add_argument("model_words", nargs="*", metavar="MODEL", help="the model to talk with")
    parser.add_argument("--continue", dest="continue_last", action="store_true", help="open the last conversation")
    add_flags(parser, LOAD_OPTIONS, "model and machine")
    add_flags(parser, SAMPLING_OPTIONS, "answers")
    add_flags(parser, CHAT_OPTIONS, "screen")
    _finish(parser, _chat)


def _add_generate(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = commands.add_parser(
        "generate",
        help="answer one prompt, or many",
        usage=generate_arguments.USAGE,
        description="Answer one prompt or many. The text goes to stdout or --out, everything else to stderr.",
    )
    generate_arguments.add_generate_flags(parser)
    _finish(parser, _generate)


def _add_bench(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = commands.add_parser(
        "bench",
        help="measure how fast models are here",
        usage=bench.USAGE,
        description="Measure tokens a second on the bare device and through the whole engine, and how near that comes "
        "to what this machine's memory and multipliers allow.",
    )
    bench.add_arguments(parser)
    _finish(parser, _bench)


def _add_eval(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = commands.add_parser(
        "eval",
        help="measure how good a model's numbers are",
        usage=evaluate.USAGE,
        description=evaluate.DESCRIPTION,
        epilog=evaluate.EPILOG,
    )
    evaluate.add_arguments(parser)
    _finish(parser, _eval)


def _add_plan(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = commands.add_parser(
        "plan",
        help="what a model would cost in memory, and where it would go",
        usage=plan.USAGE,
        description="Show the memory bill of a model, what fits, and how fast it can be at most, without loading it.",
    )
    plan.add_arguments(parser)
    _finish(parser, _plan)


def _add_tune(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = commands.add_parser(
        "tune", help="measure the fastest settings for a model here", usage=tune.USAGE, description=tune.DESCRIPTION
    )
    tune.add_arguments(parser)
    _finish(parser, _tune)


def _add_models(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = commands.add_parser("models", help="the catalog and the models on this disk")
    actions = parser.add_subparsers(metavar="ACTION", required=True, parser_class=_Parser)
    _finish(actions.add_parser("list", help="show the models on this disk and the catalog"), _models_list)
    for name, command, text in (
        ("pull", _models_pull, "fetch a model, or check the one that is there"),
        ("info", _models_info, "show what a model's file holds"),
        ("remove", _models_remove, "delete a model from this disk"),
    ):
        action = actions.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        action.add_argument("model_name", metavar="MODEL")
        _finish(action, command)


def _add_doctor(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = commands.add_parser("doctor", help="show what a bug report needs")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    _finish(parser, _doctor)


def _finish(parser: _Parser, command: Command) -> None:
    parser.set_defaults(command=command, parser=parser)


def _chat(namespace: argparse.Namespace, console: Console) -> int:
    settings = _settings(console)
    preferences = _preferences(namespace, console, settings)
    if not (_is_terminal(sys.stdin) and console.is_terminal):
        raise UsageError(
            "The chat needs a terminal, and stdin or stdout is none.", hint='`tandem generate -p "..."` works anywhere.'
        )
    from app.chat import ChatOptions, run
    from app.options import generate_options

    for refuse_nonsense in (engine_options, generate_options):
        refuse_nonsense(preferences)  # before a screen stands
    return run(
        ChatOptions(
            preferences=preferences,
            settings_path=settings.path,
            models_folder=models_folder_of(preferences),
            presets=settings.presets,
            continue_last=namespace.continue_last,
            keys=settings.keys,
        )
    )


def _generate(namespace: argparse.Namespace, console: Console) -> int:
    from_stdin = generate_arguments.take_stdin_word(namespace)
    preferences = _preferences(namespace, console)
    return generate_arguments.run(namespace, preferences_of(namespace), preferences, console, from_stdin=from_stdin)


def _bench(namespace: argparse.Namespace, console: Console) -> int:
    comparison = bench.compare_request(namespace)
    if comparison is not None:
        from app.bench.compare_command import run as run_comparison

        return run_comparison(comparison, console)
    settings = _settings(console)
    chosen = Preferences(
        isa=namespace.isa,
        lora=tuple(namespace.lora or ()) or None,
        offline=namespace.offline,
        device=namespace.device,
        vram_margin=namespace.vram_margin,
    )
    request = bench.bench_request(namespace, chosen.over(settings.preferences))
    from app.bench.command import run

    return run(request, console)


def _eval(namespace: argparse.Namespace, console: Console) -> int:
    request = evaluate.evaluate_request(namespace, _preferences(namespace, console))
    from app.evaluate.command import run

    return run(request, console)


def _plan(namespace: argparse.Namespace, console: Console) -> int:
    request = plan.plan_request(namespace, _preferences(namespace, console))
    from app.plan.command import run

    return run(request, console)


def _tune(namespace: argparse.Namespace, console: Console) -> int:
    request = tune.tune_request(namespace, preferences_of(namespace), _preferences(namespace, console))
    from app.tune.command import run

    return run(request, console)


def _models_list(namespace: argparse.Namespace, console: Console) -> int:
    from app.models_command import list_models

    return list_models(models_folder_of(_preferences(namespace, console)), console)


def _models_pull(namespace: argparse.Namespace, console: Console) -> int:
    from app.models_command import pull_model

    return pull_model(namespace.model_name, models_folder_of(_preferences(namespace, console)), console)


def _models_info(namespace: argparse.Namespace, console: Console) -> int:
    from app.models_command import show_model

    return show_model(namespace.model_name, models_folder_of(_preferences(namespace, console)), console)


def _models_remove(namespace: argparse.Namespace, console: Console) -> int:
    from app.models_command import remove_model

    return remove_model(namespace.model_name, models_folder_of(_preferences(namespace, console)), console)


def _doctor(namespace: argparse.Namespace, console: Console) -> int:
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


if __name__ == "__main__":
    sys.exit(main())
