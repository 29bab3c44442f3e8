"""`tandem generate`: one prompt, its answer on stdout.

Owns where the prompt comes from, what an interrupt leaves, and the JSON object.  Does not know flags (cli.py) nor how
an answer comes about (the engine).
"""

from __future__ import annotations

import codecs
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from app.drafts import with_draft
from app.errors import EXIT_INTERRUPTED, EXIT_SUCCESS, AppError, UsageError
from app.interrupts import AskedToStop, HeldInterrupt
from app.loading import load_engine, resolve_with_progress
from app.output import Console
from app.preferences import Preferences
from app.profiles import with_profile
from app.progress import ProgressBar
from app.runtime_options import engine_options, generate_options

if TYPE_CHECKING:
    from runtime import (
        Completion,
        EngineDescription,
        GenerateOptions,
        Generation,
        Message,
        OutputConstraint,
        SpeculationReport,
    )

MAX_PROMPT_BYTES = 256 << 20  # read at most, so that what has no end does not fill the memory


@dataclass(frozen=True, kw_only=True)
class GenerateRequest:
    """What `tandem generate` was asked for.  Exactly one of text, file, from_stdin and prompt_ids is given."""

    preferences: Preferences
    text: str | None = None
    file: Path | None = None
    from_stdin: bool = False
    prompt_ids: tuple[int, ...] | None = None
    raw: bool = False
    as_json: bool = False
    logprobs: int = 0
    prompt_logprobs: int = 0
    verbose: bool = False
    constraint: OutputConstraint | None = None
    manifest: Path | None = None


class LoadedEngine(Protocol):
    """What this command needs of runtime.Engine."""

    @property
    def notes(self) -> tuple[str, ...]: ...

    @property
    def description(self) -> EngineDescription: ...

    def generate(self, prompt: str | Sequence[int] | Sequence[Message], options: GenerateOptions) -> Generation: ...

    def close(self) -> None: ...


Load = Callable[..., LoadedEngine]


def run(request: GenerateRequest, console: Console, *, load: Load = load_engine) -> int:
    """Answer the prompt; returns the exit status.  load: as app.loading.load_engine, for tests."""
    from runtime import describe_chain

    preferences = request.preferences
    _check(request)
    console.require_reader()
    if request.manifest is not None:
        from app.manifest import check_place

        check_place(request.manifest)
    options = generate_options(
        preferences,
        raw=request.raw,
        logprobs=request.logprobs,
        prompt_logprobs=request.prompt_logprobs,
        constraint=request.constraint,
    )
    engine_options(preferences)  # says what is out of range before anything is fetched
    prompt = _prompt(request)
    path = resolve_with_progress(preferences, console)
    preferences = with_profile(preferences, path, console.note, verbose=request.verbose)
    how_to_load = engine_options(preferences)
    how_to_load = with_draft(how_to_load, preferences, path, console)
    engine = load(path, how_to_load, console, verbose=request.verbose)
    try:
        for note in engine.notes:
            console.note(f"note: {note}")
        if request.verbose:
            console.note(f"sampler: {describe_chain(options.sampling)}")
        with console.progress("Reading the prompt", "tokens") as prefill:
            generation = engine.generate(prompt, replace(options, on_prefill=prefill))
            status = _answer(request, generation, console, prefill)
        if request.manifest is not None:
            from app.manifest import write_manifest

            write_manifest(request.manifest, engine.description, how_to_load, prompt, options, generation.result)
        return status
    finally:
        with HeldInterrupt():
            engine.close()


def _check(request: GenerateRequest) -> None:
    """What does not fit together."""
    has_system = request.preferences.system is not None
    if not request.as_json and (request.logprobs or request.prompt_logprobs):
        raise UsageError("--logprobs and --prompt-logprobs have their place in the object that --json prints.")
    if has_system and (request.raw or request.prompt_ids is not None):
        other = "--raw" if request.raw else "--prompt-ids"
        raise UsageError(f"--system needs the chat template, which {other} leaves out.")


def _prompt(request: GenerateRequest) -> str | Sequence[int] | Sequence[Message]:
    if request.prompt_ids is not None:
        return request.prompt_ids
    text = prompt_text(request.text, request.file, from_stdin=request.from_stdin)
    if request.raw or request.preferences.system is None:
        return text
    from runtime import Message

    return [Message(role="system", content=request.preferences.system), Message(role="user", content=text)]


def prompt_text(text: str | None, file: Path | None, *, from_stdin: bool) -> str:
    """The prompt's text; of a file or stdin without byte order mark and last line end, other bytes kept."""
    if text is not None:
        return text
    if from_stdin:
        if sys.stdin is None:
            raise UsageError("`-` reads the prompt from standard input, which is closed.")
        return _decoded(sys.stdin.buffer.read(MAX_PROMPT_BYTES + 1), "The prompt on standard input")
    assert file is not None
    try:
        with file.expanduser().open("rb") as stream:
            return _decoded(stream.read(MAX_PROMPT_BYTES + 1), f"The prompt file {file}")
    except OSError as error:
        raise AppError(f"The prompt file {file} can't be read: {error.strerror}.") from error


def _decoded(content: bytes, where: str) -> str:
    if len(content) > MAX_PROMPT_BYTES:
        raise AppError(f"{where} holds more than {MAX_PROMPT_BYTES >> 20} MiB, and no model reads so much at once.")
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise AppError(f"{where} is UTF-16 text; UTF-8 was expected.", hint="iconv -f UTF-16 -t UTF-8 converts it.")
    line_end = b"\r\n" if content.endswith(b"\r\n") else b"\n"
    return content.removeprefix(codecs.BOM_UTF8).removesuffix(line_end).decode("utf-8", errors="surrogateescape")


def _answer(request: GenerateRequest, generation: Generation, console: Console, prefill: ProgressBar) -> int:
    """Write the answer as it comes; an interrupt ends it and keeps what there is."""
    for note in generation.notes:
        console.note(f"note: {note}")
    last_text = ""
    try:
        try:
            with AskedToStop(generation.cancel):
                for chunk in generation:
                    prefill.close()
                    last_text = _write(chunk.text, request, console) or last_text
        except KeyboardInterrupt:  # a second one
            generation.cancel()
            for chunk in generation:
                last_text = _write(chunk.text, request, console) or last_text
    except BaseException:
        generation.cancel()
        raise
    completion = generation.result
    if request.as_json:
        console.json(json_object(completion))
    elif console.is_terminal and last_text and not last_text.endswith("\n"):
        console.text("\n")
    _tell_end(request, completion, console)
    return EXIT_INTERRUPTED if completion.finish_reason == "cancelled" else EXIT_SUCCESS


def _write(text: str, request: GenerateRequest, console: Console) -> str:
    if text and not request.as_json:
        console.text(text)
    return text


def _tell_end(request: GenerateRequest, completion: Completion, console: Console) -> None:
    if completion.finish_reason == "context":
        console.note(
            "note: the answer ends here because the context window is full; --ctx-size N makes it larger, "
            "if memory allows."
        )
    if request.constraint is not None and completion.finish_reason in ("length", "context"):
        console.note(
            f"note: the answer was cut after {completion.timings.output_tokens} tokens, before its schema or grammar "
            f"was complete; -n and --ctx-size say how long it may be."
        )
    if not request.verbose:
        return
    timings = completion.timings
    rates = [
        _rate("prefill", timings.prefill_tokens_per_s),
        _rate("decode", timings.decode_tokens_per_s),
        f"first token after {timings.ttft_s:.2f} s" if timings.ttft_s is not None else "",
    ]
    console.note(
        f"{timings.prompt_tokens} prompt tokens ({timings.reused_tokens} reused), {timings.output_tokens} answered, "
        f"{timings.total_s:.2f} s; {', '.join(filter(None, rates))} "
        f"({completion.finish_reason}, seed {completion.seed})"
    )
    if completion.speculation is not None:
        console.note(speculation_line(completion.speculation))


def speculation_line(report: SpeculationReport) -> str:
    """What guessing did, in one line."""
    share = f" ({report.accepted / report.drafted:.0%})" if report.drafted else ""
    per_round = f", {report.tokens_per_round:.2f} tokens a round" if report.tokens_per_round is not None else ""
    reason = f"; {report.reason}" if report.reason else ""
    return (
        f"guessing {report.state}: {report.drafted} tokens guessed, {report.accepted} kept{share} in {report.rounds} "
        f"rounds{per_round}; guessing {report.draft_ms:.0f} ms, checking {report.verify_ms:.0f} ms, "
        f"waiting for guesses {report.wait_ms:.0f} ms{reason}"
    )


def _rate(name: str, tokens_per_s: float | None) -> str:
    return f"{name} {tokens_per_s:.1f} tokens/s" if tokens_per_s is not None else ""


def json_object(completion: Completion) -> dict[str, Any]:
    """The object that --json prints; lists of logprobs only where they were asked for."""
    value: dict[str, Any] = {
        "text": completion.text,
        "ids": list(completion.ids),
        "prompt_ids": list(completion.prompt_ids),
        "finish_reason": completion.finish_reason,
        "stop_text": completion.stop_text,
        "seed": completion.seed,
        "timings": asdict(completion.timings),
        "speculation": asdict(completion.speculation) if completion.speculation is not None else None,
        "notes": list(completion.notes),
    }
    if completion.logprobs:
        value["logprobs"] = completion.logprobs
    if completion.prompt_logprobs:
        value["prompt_logprobs"] = completion.prompt_logprobs
    return value
