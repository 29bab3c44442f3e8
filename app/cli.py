"""The `tandem` command: its flags, and which command they start.

Owns the grammar of the command line, and the exit status.  Does not know what a command does (commands.py); imports
nothing heavy, so that `tandem --help` needs neither the engine nor the screen.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app import commands, generate_arguments
from app.bench import arguments as bench
from app.command_parser import Parser, unknown_flag
from app.errors import (
    EXIT_FAILURE,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    OutputClosedError,
    UsageError,
    report_of,
)
from app.evaluate import arguments as evaluate
from app.loading import waiting_for_files
from app.options import CHAT_OPTIONS, LOAD_OPTIONS, SAMPLING_OPTIONS, add_flags
from app.output import Console, console_of_process, discard_output
from app.plan import arguments as plan
from app.settings import DEBUG_VARIABLE
from app.tune import arguments as tune

Run = Callable[[argparse.Namespace, Console], int]


@dataclass(frozen=True, kw_only=True)
class _Command:
    """A word behind `tandem`: what --help says of it, its flags, and what starts it (None: a word behind it says)."""

    name: str
    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Run | None = None
    usage: str | None = None
    description: str | None = None
    epilog: str | None = None


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
        flags = [word for word in unknown if word.startswith("-") and word != "-"]
        if unknown and (flags or not hasattr(namespace, "model_words")):
            raise unknown_flag((flags or unknown)[0], namespace.parser, parser)
        if unknown:  # argparse takes the words of one place alone, those before the flags or those behind
            namespace.model_words = [*namespace.model_words, *unknown]
        if namespace.command is commands.chat:  # which has a screen to say it on
            return commands.chat(namespace, console)
        with waiting_for_files(console):
            return namespace.command(namespace, console)
    except UsageError as error:
        console.note(namespace.parser.format_usage().strip())
        console.report(report_of(error))
        return EXIT_USAGE


def _starts_chat(arguments: list[str]) -> bool:
    """Plain `tandem`, and `tandem` with nothing but flags of the chat."""
    return not arguments or (arguments[0].startswith("-") and arguments[0] not in ("-h", "--help", "--version"))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="tandem",
        description="Run language models on your own machine.",
        epilog="MODEL is a catalog name, a path to a GGUF file, or owner/repo[:quant] on Hugging Face; without one, "
        "smollm2-135m is used, fetched the first time. Plain `tandem` opens the chat.",
    )
    parser.add_argument("--version", action=_Version, help="show the version and leave")
    words = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=Parser)
    for command in _COMMANDS:
        added = words.add_parser(
            command.name,
            help=command.help,
            usage=command.usage,
            description=command.description,
            epilog=command.epilog,
        )
        command.add_arguments(added)
        added.set_defaults(command=command.run, parser=added)
    return parser


class _Version(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from app.versions import tandem_version

        print(f"tandem {tandem_version()}")
        parser.exit()


def _add_chat_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model_words", nargs="*", metavar="MODEL", help="the model to talk with")
    parser.add_argument("-p", "--prompt", metavar="TEXT", help="a first message, sent at once")
    parser.add_argument("--continue", dest="continue_last", action="store_true", help="open the last conversation")
    add_flags(parser, LOAD_OPTIONS, "model and machine")
    add_flags(parser, SAMPLING_OPTIONS, "answers")
    add_flags(parser, CHAT_OPTIONS, "screen")


def _add_model_actions(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True, parser_class=Parser)
    action = actions.add_parser("list", help="show the models on this disk and the catalog")
    action.add_argument("--json", action="store_true", help="print one JSON object")
    action.set_defaults(command=commands.list_models, parser=action)
    for name, run, text in (
        ("pull", commands.pull_model, "fetch a model, or check the one that is there"),
        ("info", commands.show_model, "show what a model's file holds"),
        ("remove", commands.remove_model, "delete a model from this disk"),
    ):
        action = actions.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        action.add_argument("model_name", metavar="MODEL")
        if name == "info":
            add_flags(action, [option for option in LOAD_OPTIONS if option.key == "chat_template_file"], "model")
        action.set_defaults(command=run, parser=action)


def _add_doctor_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")


_COMMANDS = (
    _Command(
        name="chat",
        help="talk with a model",
        usage="tandem chat [MODEL] [flags]",
        description="Talk with a model in this terminal.",
        add_arguments=_add_chat_flags,
        run=commands.chat,
    ),
    _Command(
        name="generate",
        help="answer one prompt, or many",
        usage=generate_arguments.USAGE,
        description="Answer one prompt or many. The text goes to stdout or --out, everything else to stderr.",
        add_arguments=generate_arguments.add_generate_flags,
        run=commands.generate,
    ),
    _Command(
        name="bench",
        help="measure how fast models are here",
        usage=bench.USAGE,
        description=bench.DESCRIPTION,
        add_arguments=bench.add_arguments,
        run=commands.bench,
    ),
    _Command(
        name="eval",
        help="measure how good a model's numbers are",
        usage=evaluate.USAGE,
        description=evaluate.DESCRIPTION,
        epilog=evaluate.EPILOG,
        add_arguments=evaluate.add_arguments,
        run=commands.evaluate,
    ),
    _Command(
        name="plan",
        help="what a model would cost in memory, and where it would go",
        usage=plan.USAGE,
        description=plan.DESCRIPTION,
        add_arguments=plan.add_arguments,
        run=commands.plan,
    ),
    _Command(
        name="tune",
        help="measure the fastest settings for a model here",
        usage=tune.USAGE,
        description=tune.DESCRIPTION,
        add_arguments=tune.add_arguments,
        run=commands.tune,
    ),
    _Command(
        name="models",
        help="the catalog and the models on this disk",
        add_arguments=_add_model_actions,
    ),
    _Command(name="doctor", help="show what a bug report needs", add_arguments=_add_doctor_flags, run=commands.doctor),
)


if __name__ == "__main__":
    sys.exit(main())
