"""The flags of `tandem generate`, and the request that they make.

Owns the grammar, and what of it does not go together.  Does not know answering; imported with the command line, so it
imports nothing heavy.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from app.errors import AppError, UsageError
from app.options import LOAD_OPTIONS, SAMPLING_OPTIONS, add_flags, whole_number
from app.output import Console
from app.preferences import Preferences

if TYPE_CHECKING:
    from runtime import OutputConstraint

USAGE = (
    "tandem generate [MODEL] (-p TEXT | -f FILE | - | --prompt-ids IDS) [flags]\n"
    "       tandem generate [MODEL] --jsonl FILE --out FILE [flags]\n"
    "       tandem generate [MODEL] -p TEXT --data FILE --out FILE [flags]\n"
    "       tandem generate --replay FILE\n"
    "       tandem generate [MODEL] --verify-spec -f PROMPTS [flags]"
)
FORMATS = ("jsonl", "csv", "text")

_STDIN = "-"
_AUTO = "auto"
_MOST_PARALLEL = 1024
_MANY = ("out", "format", "parallel", "ordered")
_CONSTRAINTS = ("json_schema", "json_object", "regex", "grammar")
_OUTPUT = ("json", "logprobs", "prompt_logprobs", "manifest")


def add_generate_flags(parser: argparse.ArgumentParser) -> None:
    """Give the parser every flag of `tandem generate`."""
    parser.add_argument("model_words", nargs="*", metavar="MODEL", help="the model, and `-` for a prompt on stdin")
    group = parser.add_argument_group("prompt (one of them; the last line end of a file or of stdin is dropped)")
    group.add_argument("-p", "--prompt", metavar="TEXT", help="the prompt")
    group.add_argument("-f", "--file", type=Path, metavar="FILE", help="a file that holds the prompt")
    group.add_argument("--prompt-ids", type=_ids, metavar="1,2,3", help="the prompt as token ids")
    group.add_argument("--raw", action="store_true", help="give the model the prompt as it is, without chat template")
    group.add_argument("--replay", type=Path, metavar="FILE", help="do again what --manifest wrote down, and compare")
    group = parser.add_argument_group("many prompts")
    group.add_argument(
        "--jsonl", type=Path, metavar="FILE", help="rows with prompt or messages, and options; `-`: stdin"
    )
    group.add_argument("--data", type=Path, metavar="FILE", help="CSV or JSONL that fills the prompt's {placeholders}")
    group.add_argument("--out", type=Path, metavar="FILE", help="where answers go (stdout); what is there is skipped")
    group.add_argument("--format", choices=FORMATS, help="of the answers (by the name of --out, or jsonl)")
    group.add_argument("--parallel", type=_parallel, metavar="N", help="answers at once; auto: as memory allows (auto)")
    group.add_argument("--ordered", action="store_true", help="write the answers in the order of the rows")
    group.add_argument(
        "--verify-spec",
        action="store_true",
        help="answer each prompt of -f (one a line, or .jsonl) with and without guesses, and compare",
    )
    group = parser.add_argument_group("what the answer must look like (one of them)")
    group.add_argument("--json-schema", metavar="FILE|{...}", help="JSON that this JSON schema allows")
    group.add_argument("--json-object", action="store_true", help="any JSON object")
    group.add_argument("--regex", metavar="PATTERN", help="text that this regular expression matches as a whole")
    group.add_argument("--grammar", type=Path, metavar="FILE", help="text of this grammar, GBNF or Lark")
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="print one JSON object instead of the text")
    group.add_argument(
        "--logprobs", type=whole_number, default=0, metavar="K", help="in --json and rows: the K best tokens"
    )
    group.add_argument(
        "--prompt-logprobs", type=whole_number, default=0, metavar="K", help="with --json: the same for the prompt"
    )
    group.add_argument("--manifest", type=Path, metavar="FILE", help="write down all that the answer depended on")
    group.add_argument("-v", "--verbose", action="store_true", help="say what memory and time it took, on stderr")
    add_flags(parser, LOAD_OPTIONS, "model and machine")
    add_flags(parser, SAMPLING_OPTIONS, "answer")


def take_stdin_word(namespace: argparse.Namespace) -> bool:
    """Whether the prompt comes from stdin; takes the `-` that says so out of the words for the model."""
    words = namespace.model_words
    namespace.model_words = [word for word in words if word != _STDIN]
    return _STDIN in words or namespace.file == Path(_STDIN)


def run(
    namespace: argparse.Namespace,
    explicit: Preferences,
    preferences: Preferences,
    console: Console,
    *,
    from_stdin: bool,
) -> int:
    """Start what was asked for.  explicit: what flags say; preferences: that over environment and file.

    Raises UsageError for what does not go together.
    """
    chosen = _sources(namespace, from_stdin=from_stdin)
    if chosen == ["--replay"]:
        return _replay(namespace, explicit, preferences, console)
    constraint = _constraint(namespace)
    if namespace.verify_spec:
        return _verify(namespace, preferences, constraint, console)
    if namespace.jsonl is not None or namespace.data is not None:
        return _run_batch(namespace, preferences, constraint, console, from_stdin=from_stdin)
    _refuse(namespace, _MANY, "needs many prompts: --jsonl or --data.")
    from app import generate

    return generate.run(
        generate.GenerateRequest(
            preferences=preferences,
            text=namespace.prompt,
            file=namespace.file,
            from_stdin=from_stdin,
            prompt_ids=namespace.prompt_ids,
            raw=namespace.raw,
            as_json=namespace.json,
            logprobs=namespace.logprobs,
            prompt_logprobs=namespace.prompt_logprobs,
            verbose=namespace.verbose,
            constraint=constraint,
            manifest=namespace.manifest,
        ),
        console,
    )


def _replay(namespace: argparse.Namespace, explicit: Preferences, weaker: Preferences, console: Console) -> int:
    why = "means nothing beside --replay: the manifest says what was asked."
    _refuse(namespace, ("verify_spec", "raw", *_MANY, *_CONSTRAINTS, *_OUTPUT), why)
    for option in SAMPLING_OPTIONS:
        if getattr(explicit, option.key) is not None:
            raise UsageError(f"{option.names[-1]} {why}")
    from app.manifest import replay

    return replay(namespace.replay, explicit, weaker, console, verbose=namespace.verbose)


def _verify(
    namespace: argparse.Namespace, preferences: Preferences, constraint: OutputConstraint | None, console: Console
) -> int:
    _refuse(namespace, (*_MANY, "logprobs", "prompt_logprobs", "manifest"), "means nothing beside --verify-spec.")
    if namespace.file is None or namespace.file == Path(_STDIN):
        raise UsageError("--verify-spec needs a file of prompts.", hint="-f FILE names it: a prompt a line, or .jsonl.")
    from app.verify_speculation import VerifyRequest, run

    return run(
        VerifyRequest(
            preferences=preferences,
            file=namespace.file,
            raw=namespace.raw,
            constraint=constraint,
            as_json=namespace.json,
            verbose=namespace.verbose,
        ),
        console,
    )


def _run_batch(
    namespace: argparse.Namespace,
    preferences: Preferences,
    constraint: OutputConstraint | None,
    console: Console,
    *,
    from_stdin: bool,
) -> int:
    from app.batch.command import BatchRequest, run
    from app.batch.rows import Defaults

    _refuse(namespace, ("json", "manifest"), "is for one prompt; a batch writes all of it into its rows.")
    template = None
    if namespace.data is not None:
        if namespace.prompt_ids is not None:
            raise UsageError("--data fills a prompt's {placeholders}, and --prompt-ids has none.")
        from app.generate import prompt_text

        template = prompt_text(namespace.prompt, namespace.file, from_stdin=from_stdin)
    return run(
        BatchRequest(
            source=namespace.data or namespace.jsonl,
            template=template,
            defaults=Defaults(
                preferences=preferences,
                raw=namespace.raw,
                logprobs=namespace.logprobs,
                prompt_logprobs=namespace.prompt_logprobs,
                constraint=constraint,
            ),
            out=None if namespace.out == Path(_STDIN) else namespace.out,
            format=namespace.format,
            parallel=None if namespace.parallel in (None, _AUTO) else namespace.parallel,
            is_ordered=namespace.ordered,
            verbose=namespace.verbose,
        ),
        console,
    )


def _sources(namespace: argparse.Namespace, *, from_stdin: bool) -> list[str]:
    """What the prompt comes from; exactly one, and --data beside it."""
    given = {
        "-p": namespace.prompt is not None,
        "-f": namespace.file is not None and namespace.file != Path(_STDIN),
        "`-`": from_stdin,
        "--prompt-ids": namespace.prompt_ids is not None,
        "--jsonl": namespace.jsonl is not None,
        "--replay": namespace.replay is not None,
    }
    chosen = [name for name, is_given in given.items() if is_given]
    if len(chosen) != 1:
        found = f"{' and '.join(chosen)} were given" if chosen else "none was given"
        raise UsageError(
            f"One prompt is needed, and {found}.",
            hint="-p TEXT, -f FILE, --prompt-ids 1,2,3, or `-` for stdin; `tandem chat` opens a conversation.",
        )
    if namespace.data is not None and chosen[0] in ("--jsonl", "--replay"):
        raise UsageError(f"--data fills the {{placeholders}} of -p or -f, and {chosen[0]} was given.")
    return chosen


def _constraint(namespace: argparse.Namespace) -> OutputConstraint | None:
    given = {
        "json_schema": namespace.json_schema,
        "json_object": namespace.json_object or None,
        "regex": namespace.regex,
        "grammar": namespace.grammar,
    }
    chosen = [kind for kind, value in given.items() if value is not None]
    if not chosen:
        return None
    if len(chosen) > 1:
        names = " and ".join(f"--{kind.replace('_', '-')}" for kind in chosen)
        raise UsageError(f"{names} don't go together.")
    from runtime import OptionError, OutputConstraint

    try:
        match chosen[0]:
            case "json_schema":
                return OutputConstraint(kind="json_schema", text=_inline_or_file(namespace.json_schema))
            case "json_object":
                return OutputConstraint(kind="json_object")
            case "regex":
                return OutputConstraint(kind="regex", text=namespace.regex)
            case _:
                return OutputConstraint(kind="grammar", text=_text_of(namespace.grammar))
    except OptionError as error:
        raise UsageError(str(error)) from error


def _inline_or_file(text: str) -> str:
    return text if text.lstrip().startswith("{") else _text_of(Path(text))


def _text_of(path: Path) -> str:
    try:
        return path.expanduser().read_text("utf-8")
    except OSError as error:
        raise AppError(f"The file {path} can't be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise AppError(f"The file {path} is no UTF-8 text.") from error


def _refuse(namespace: argparse.Namespace, keys: tuple[str, ...], why: str) -> None:
    for key in keys:
        if getattr(namespace, key):
            raise UsageError(f"--{key.replace('_', '-')} {why}")


def _parallel(text: str) -> int | str:
    if text == _AUTO:
        return text
    try:
        count = int(text)
    except ValueError:
        count = 0
    if not 0 < count <= _MOST_PARALLEL:
        raise argparse.ArgumentTypeError(f"{text!r} is neither auto nor a number from 1 to {_MOST_PARALLEL}")
    return count


def _ids(text: str) -> tuple[int, ...]:
    """Token ids, separated by commas or blanks."""
    try:
        ids = tuple(int(word) for word in text.replace(",", " ").split())
    except ValueError:
        ids = ()
    if not ids or min(ids) < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of token ids such as 1,2,3")
    return ids
