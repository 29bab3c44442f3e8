"""`tandem eval`: measure, print, draw.

Owns where text and prompts come from, what reaches which stream, and what an interrupt leaves.  Does not know how
anything is measured (runtime.evaluation) or written (markdown.py, chart.py).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from app.charts.chart_drawing import draw_chart
from app.charts.plot_file import write_plot
from app.errors import EXIT_INTERRUPTED, EXIT_SUCCESS, AppError, UsageError
from app.evaluate.arguments import EvaluateRequest
from app.evaluate.chart import panels
from app.evaluate.markdown import markdown
from app.loading import resolve_with_progress
from app.measuring.environment import environment_of, warn_if_busy
from app.measuring.report import MeasuringReport
from app.measuring.stoppable import run_stoppable
from app.output import Console
from app.preferences import Preferences
from app.profiles import with_profile
from app.runtime_options import engine_options
from app.verify_speculation import read_prompts
from runtime.benchmark.results import Environment
from runtime.errors import OptionError
from runtime.evaluation.plans import EvaluationPlan
from runtime.evaluation.results import Results, results_values
from runtime.evaluation.session import EvaluationSession
from runtime.machine import read_machine

_STDIN = Path("-")

MakeSession = Callable[..., EvaluationSession]


def run(request: EvaluateRequest, console: Console, *, make_session: MakeSession = EvaluationSession) -> int:
    """Measures what was asked for; returns the exit status.  make_session: as EvaluationSession, for tests."""
    console.require_reader()
    plan = _plan(request)
    path = resolve_with_progress(request.preferences, console)
    # Of a profile only what decides how fast it goes: types of keys and values are what is compared.
    preferences = with_profile(_load_preferences(request), path, console.note, verbose=True)
    plan = replace(plan, load=engine_options(preferences))
    reference: Path | None = None
    if request.reference is not None:
        reference = resolve_with_progress(replace(request.preferences, model=request.reference), console)
    text_name = request.text.name if request.text is not None else None
    machine = read_machine()
    warn_if_busy(machine, console, "speeds taken now are too low and vary; nothing else depends on it")
    environment = environment_of(machine, {"model": path.name, "text": text_name})
    report = _Report(console)
    session = make_session(plan, report)
    try:
        was_stopped = run_stoppable(lambda: session.run(path, reference), session.stop)
    finally:
        report.bars.close()
    environment = replace(environment, load_end=read_machine().load)
    _finish(request, console, session.results(), environment)
    return EXIT_INTERRUPTED if was_stopped else EXIT_SUCCESS


def _load_preferences(request: EvaluateRequest) -> Preferences:
    """Guessing changes no number, and neither do the lists' values here."""
    return replace(
        request.preferences, spec="off", cache_type_k=None, cache_type_v=None, activations=None, predict=None
    )


def _plan(request: EvaluateRequest) -> EvaluationPlan:
    """Raises UsageError for values out of range, AppError for files that can't be read."""
    named = {
        "window": request.window,
        "stride": request.stride,
        "most_tokens": request.most_tokens,
        "answer_tokens": request.preferences.predict,
        "cache_types_k": request.cache_types_k or None,
        "cache_types_v": request.cache_types_v or None,
        "activations": request.activations or None,
        "prompts": tuple(read_prompts(request.prompts)) if request.prompts is not None else None,
    }
    chosen = {name: value for name, value in named.items() if value is not None}
    try:
        return EvaluationPlan(
            text=_text(request.text), load=engine_options(_load_preferences(request)), raw=request.raw, **chosen
        )
    except OptionError as error:
        raise UsageError(str(error)) from error


def _text(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        content = sys.stdin.buffer.read() if file == _STDIN else file.expanduser().read_bytes()
    except OSError as error:
        raise AppError(f"The text {file} can't be read: {error.strerror}.") from error
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise AppError(f"The text {file} is no UTF-8: byte {error.start} is {content[error.start]:#04x}.") from error


def _finish(request: EvaluateRequest, console: Console, results: Results, environment: Environment) -> None:
    """Prints and draws what there is."""
    if not results.rows:
        return
    text_name = environment.options["text"]
    if request.plot is not None and (drawn := panels(results)):
        subtitle = ", ".join(filter(None, [environment.options["model"], text_name, environment.date]))
        write_plot(request.plot, draw_chart(drawn, title="tandem eval", subtitle=subtitle), console)
    if request.format == "json":
        values = results_values(results, asdict(environment))
        console.text(json.dumps(values, ensure_ascii=False, indent=1) + "\n")
    else:
        console.text(markdown(results, environment, text_name=text_name))


class _Report(MeasuringReport):
    """Progress, on stderr."""

    def reading(self, title: str, done: int, total: int) -> None:
        self.bars.show(title, "tokens", done, total, shows_time_left=True)

    def timing(self, title: str, done: int, total: int) -> None:
        self.bars.show(title, "tokens", done, total)

    def answering(self, title: str, done: int, total: int) -> None:
        self.bars.show(f"{title}: answering", "prompts", done, total, shows_time_left=True)
