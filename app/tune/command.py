"""`tandem tune`: measure, draw, choose, keep.

Owns what reaches which stream, and what an interrupt leaves: the settings that were measured, and the best of them.
Does not know how anything is measured (runtime.tuning) or drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from app.charts.chart_drawing import draw_chart
from app.charts.plot_file import write_plot
from app.charts.terminal_chart import terminal_chart
from app.errors import EXIT_INTERRUPTED, EXIT_SUCCESS
from app.loading import resolve_with_progress
from app.measuring.environment import warn_if_busy
from app.measuring.report import MeasuringReport
from app.measuring.stoppable import run_stoppable
from app.output import Console
from app.profiles import Profile, profile_path, save_profile
from app.runtime_options import engine_options
from app.tune.arguments import TuneRequest
from app.tune.tables import panels, result_text, result_value, sample_text
from runtime.cards import Cards
from runtime.machine import Machine, read_machine
from runtime.placement import usable_cards
from runtime.tuning.samples import TuneResult, TuneSample
from runtime.tuning.session import Fixed, TuneSession

MakeSession = Callable[..., TuneSession]


def run(request: TuneRequest, console: Console, *, make_session: MakeSession = TuneSession) -> int:
    """Measures what was asked for; returns the exit status.  make_session: as TuneSession, for tests."""
    console.require_reader()
    options = engine_options(request.preferences)
    path = resolve_with_progress(request.preferences, console)
    machine, cards = read_machine(), usable_cards(options)
    warn_if_busy(machine, console, "what is fastest now may not be fastest later")
    report = _Report(console)
    session = make_session(options, _fixed(request), report, machine=machine, cards=cards)
    results: list[TuneResult] = []
    try:
        was_stopped = run_stoppable(lambda: results.append(session.run(path)), session.stop)
    finally:
        report.bars.close()
    if results and results[0].chosen is not None:
        _finish(request, console, results[0], path, machine, cards)
    return EXIT_INTERRUPTED if was_stopped else EXIT_SUCCESS


def _fixed(request: TuneRequest) -> Fixed:
    """What a flag says; what comes from the settings file is only where the search begins."""
    explicit = request.explicit
    return Fixed(
        gpu_layers=explicit.gpu_layers not in (None, "auto"),
        cpu_experts=explicit.n_cpu_moe not in (None, "auto"),
        threads=explicit.threads is not None,
        batch_size=explicit.batch_size is not None,
        cache_types=explicit.cache_type_k is not None or explicit.cache_type_v is not None,
    )


def _finish(
    request: TuneRequest, console: Console, result: TuneResult, path: Path, machine: Machine, cards: Cards
) -> None:
    """Draws, keeps, prints."""
    drawn = panels(result)
    if drawn:
        console.note(terminal_chart(drawn, console.columns()))
    if request.plot is not None:
        subtitle = f"{path.name}; {machine.cpu_name}, {machine.num_cores} cores, {machine.isa}; * is chosen"
        write_plot(request.plot, draw_chart(drawn, title="tandem tune", subtitle=subtitle), console)
    kept = profile_path(path) if request.is_saved else None
    if kept is not None:
        save_profile(_profile(result, path, machine, cards), kept)
    if request.as_json:
        console.json(result_value(result, None if kept is None else str(kept)))
    else:
        console.text(result_text(result))
    if not result.is_complete:
        console.note("note: it was stopped: this is the best of what was measured.")
    if kept is not None:
        console.note(f"Kept in {kept}; later runs use it, flags win, --no-profile leaves it out.")


def _profile(result: TuneResult, path: Path, machine: Machine, cards: Cards) -> Profile:
    chosen = result.chosen
    assert chosen is not None, "something was measured"
    setting, card = chosen.setting, cards.best
    return Profile(
        model_file=path.name,
        size_bytes=path.stat().st_size,
        cpu_name=machine.cpu_name,
        num_cores=machine.num_cores,
        allowed_cpus=machine.allowed_cpus,
        gpu=card.name if card else None,
        context_size=result.context_size,
        threads=setting.threads,
        batch_size=setting.batch_size,
        cache_type_k=setting.cache_type_k,
        cache_type_v=setting.cache_type_v,
        most_gpu_layers=setting.gpu_layers if card else None,
        cpu_experts=setting.cpu_experts if card and result.expert_layers else None,
        tokens_per_s=chosen.decode.median,
        prompt_tokens_per_s=chosen.prompt.median,
        answer_tokens_per_s=chosen.answer_tokens_per_s,
        read_bytes_per_s=result.read_bytes_per_s,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
    )


class _Report(MeasuringReport):
    """Progress and measured settings, on stderr."""

    def measuring(self, title: str, done: int, total: int) -> None:
        self.bars.show(title, "repeats", done, total)

    def finished(self, sample: TuneSample) -> None:
        self.bars.close()
        self.console.note(sample_text(sample))
