"""`tandem bench`: measure, print, draw.

Owns what reaches which stream, and what an interrupt leaves: the rows that were finished.  Does not know how anything
is measured (runtime.benchmark) or written (markdown.py, documents.py, charts).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from app.adapters import adapter_choices, adapter_text
from app.bench.arguments import BenchRequest
from app.bench.chart import panels
from app.bench.documents import csv_text, json_text, line_values
from app.bench.finding_peer import find_peer
from app.bench.guessing import guessing_plan
from app.bench.markdown import markdown
from app.bench.numbers import remark, row_title
from app.charts.chart_drawing import draw_chart
from app.charts.plot_file import write_plot
from app.charts.terminal_chart import terminal_chart
from app.errors import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_SUCCESS, UsageError
from app.figures import range_text, rate_text
from app.loading import resolve_with_progress
from app.measuring.environment import environment_of, warn_if_busy
from app.measuring.report import MeasuringReport
from app.measuring.stoppable import run_stoppable
from app.output import Console
from app.profiles import profile_path, with_profile
from app.runtime_options import number_or_word
from app.versions import tandem_version
from runtime.benchmark.results import Environment, Results, Row
from runtime.benchmark.session import BenchSession
from runtime.benchmark.workloads import BenchPlan
from runtime.errors import OptionError
from runtime.machine import read_machine

_WRITERS: dict[str, Callable[[Results], str]] = {"md": markdown, "json": json_text, "csv": csv_text}

MakeSession = Callable[..., BenchSession]


def run(request: BenchRequest, console: Console, *, make_session: MakeSession = BenchSession) -> int:
    """Measures what was asked for; returns the exit status.  make_session: as BenchSession, for tests."""
    plan = _plan(request)
    peer = find_peer(request.against, request.peer) if request.against is not None else None
    paths = [_resolve(request, name, console) for name in request.models or (None,)]
    plan = _plan(_with_profile(request, plan, paths, console))
    if request.draft is not None:
        plan = replace(plan, guessing=guessing_plan(request, paths, console))
    machine = read_machine()
    warn_if_busy(machine, console, "figures taken now are too low and vary")
    report = _Report(request, console, environment_of(machine, _options(plan, paths)))
    session = make_session(plan, report, version=tandem_version(), peer=peer)
    try:
        was_stopped = run_stoppable(lambda: session.run(paths), session.stop)
    finally:
        report.bars.close()
    _finish(request, console, report)
    if was_stopped:
        return EXIT_INTERRUPTED
    return EXIT_FAILURE if session.failures else EXIT_SUCCESS


def _with_profile(request: BenchRequest, plan: BenchPlan, paths: list[Path], console: Console) -> BenchRequest:
    """The request, and what the model's profile says where no flag and no setting does, as every other run would.

    Several models have no profile in common, and are measured without.
    """
    if len(paths) != 1:
        if not request.preferences.no_profile and any(profile_path(path).exists() for path in paths):
            console.note("note: several models are measured with the same settings, so their profiles are left out.")
        return request

    def chosen(flag: tuple[Any, ...] | None, preference: Any) -> Any:
        return flag[0] if flag else preference

    preferences = request.preferences
    asked = replace(
        preferences,
        ctx_size=max((workload.num_positions for workload in plan.workloads()), default=None),
        cache_type_k=chosen(request.cache_types_k, preferences.cache_type_k),
        cache_type_v=chosen(request.cache_types_v, preferences.cache_type_v),
        activations=chosen(request.activations, preferences.activations),
    )
    found = with_profile(asked, paths[0], console.note, verbose=True)
    return replace(request, preferences=replace(found, ctx_size=preferences.ctx_size))


def _plan(request: BenchRequest) -> BenchPlan:
    """Flags over preferences over defaults.  Raises UsageError for values out of range."""
    preferences = request.preferences

    def first(flag: tuple[Any, ...] | None, preference: Any) -> tuple[Any, ...] | None:
        return flag if flag is not None else None if preference is None else (preference,)

    layers = first(request.gpu_layers, preferences.gpu_layers)
    experts = first(request.cpu_experts, preferences.n_cpu_moe)
    named = {
        "prompts": request.prompts,
        "outputs": request.outputs,
        "depths": request.depths,
        "repeats": request.repeats,
        "threads": first(request.threads, preferences.threads),
        "batch_sizes": first(request.batch_sizes, preferences.batch_size),
        "cache_types_k": first(request.cache_types_k, preferences.cache_type_k),
        "cache_types_v": first(request.cache_types_v, preferences.cache_type_v),
        "activations": first(request.activations, preferences.activations),
        "gpu_layers": layers and tuple(map(number_or_word, layers)),
        "cpu_experts": experts and tuple(map(number_or_word, experts)),
        "most_gpu_layers": preferences.most_gpu_layers,
        "least_cpu_experts": preferences.least_cpu_experts,
        "vram_margin_bytes": None if preferences.vram_margin is None else preferences.vram_margin * 2**20,
        "device": None if preferences.device is None else number_or_word(preferences.device),
        "isa": preferences.isa,
        "adapters": adapter_choices(preferences.lora) if preferences.lora else None,
        "kernel_folder": Path(preferences.kernels_dir) if preferences.kernels_dir is not None else None,
    }
    if request.draft is not None:
        named |= {"prompts": request.prompts or (0,), "outputs": request.outputs or (0,)}
    chosen = {name: value for name, value in named.items() if value is not None}
    try:
        plan = BenchPlan(verify=request.verify, parallel=request.parallel, has_generate=request.has_generate, **chosen)
    except OptionError as error:
        raise UsageError(str(error)) from error
    if not plan.workloads() and request.draft is None:
        raise UsageError("There is nothing to measure.", hint="-p and -n say how many tokens; one of them is above 0.")
    return plan


def _resolve(request: BenchRequest, name: str | None, console: Console) -> Path:
    preferences = request.preferences
    return resolve_with_progress(preferences if name is None else replace(preferences, model=name), console)


def _options(plan: BenchPlan, paths: list[Path]) -> dict[str, Any]:
    """What was asked for, as plain values."""
    options = {name: value for name, value in asdict(plan).items() if name != "kernel_folder"}
    options["adapters"] = [adapter_text(choice) for choice in plan.adapters]
    return {"models": [path.name for path in paths], **options, "guessing": _guessing_values(plan)}


def _guessing_values(plan: BenchPlan) -> dict[str, Any] | None:
    """What guessed and how long it could, without the prompts."""
    if plan.guessing is None:
        return None
    options = plan.guessing.options
    return {
        "draft": plan.guessing.draft,
        "draft_max": options.draft_max,
        "draft_min": options.draft_min,
        "draft_weights": options.draft_weights,
    }


def _finish(request: BenchRequest, console: Console, report: _Report) -> None:
    """Prints and draws what there is."""
    results = report.results()
    if not results.rows:
        return
    drawn = panels(results.rows)
    if request.has_chart:
        console.note(terminal_chart(drawn, console.columns()))
    if request.plot is not None:
        write_plot(request.plot, draw_chart(drawn, title="tandem bench", subtitle=_subtitle(results)), console)
    if request.format in _WRITERS:
        console.text(_WRITERS[request.format](results))


def _subtitle(results: Results) -> str:
    environment = results.environment
    models = ", ".join(str(name) for name in environment.options["models"])
    machine = environment.machine
    return f"{models}; {machine['cpu_name']}, {machine['num_cores']} cores, {machine['isa']}; {environment.date}"


class _Report(MeasuringReport):
    """Progress and finished rows on stderr, JSON lines at once on stdout."""

    def __init__(self, request: BenchRequest, console: Console, environment: Environment) -> None:
        super().__init__(console)
        self._request, self._environment = request, environment
        self._rows: list[Row] = []

    def measuring(self, title: str, done: int, total: int) -> None:
        self.bars.show(title, "repeats", done, total)

    def finished(self, row: Row) -> None:
        self.bars.close()
        self._rows.append(row)
        said = f"{row_title(row)}: {rate_text(row.tokens_per_s)} tokens/s ({range_text(row.spread)})"
        self.console.note("; ".join(filter(None, [said, remark(row)])))
        if self._request.format == "jsonl":
            self.console.json(line_values(row, replace(self._environment, load_end=row.load)))

    def results(self) -> Results:
        """Everything so far."""
        return Results(environment=replace(self._environment, load_end=read_machine().load), rows=tuple(self._rows))
