"""From a model's name to a loaded engine, with progress for everything that takes long.

Owns the bars of download, packing and kernel compiling, and which model is meant when none is named.  Does not know
commands.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from app.interrupts import HeldInterrupt
from app.output import Console
from app.preferences import Preferences
from app.progress import ProgressBars
from app.runtime_options import models_folder_of

if TYPE_CHECKING:
    from runtime import Engine, EngineOptions


def model_name(preferences: Preferences) -> str:
    """The model that is meant."""
    if preferences.model is not None:
        return preferences.model
    from runtime.catalog import DEFAULT_MODEL

    return DEFAULT_MODEL


def resolve_with_progress(preferences: Preferences, console: Console) -> Path:
    """The model's file, fetched if it is missing; an interrupt leaves what has arrived for the next time."""
    from runtime.catalog import resolve_model

    name = model_name(preferences)
    with console.progress(f"Downloading {name}", "bytes") as progress:
        return resolve_model(
            name, folder=models_folder_of(preferences), offline=bool(preferences.offline), progress=progress
        )


def load_engine(path: Path, options: EngineOptions, console: Console, *, verbose: bool) -> Engine:
    """Load the model; says the memory bill when verbose.  Ctrl-C ends it at the next step of the progress."""
    from runtime import Engine

    with HeldInterrupt() as interrupt, ProgressBars(console) as bars:
        waiting = StalledFile(console)

        def report(stage: str, done: int, total: int) -> None:
            interrupt.check()
            if stage == WAITING:
                waiting.tell(path.name, done)
                if done < SLOW_AFTER_S:
                    return
            bars.show(*stage_title(stage), done, total)
            # One kernel may take seconds, in a process of its own: nothing of ours runs meanwhile.
            interrupt.is_held = not (stage == COMPILING and done < total)

        engine = Engine.load(path, options, progress=report)
        if interrupt.is_noted:
            engine.close()
    if verbose:
        console.note(described(engine))
    return engine


def described(engine: Engine) -> str:
    """What was loaded and what memory it took, in one line."""
    loaded = engine.description
    return (
        f"{loaded.name}: {loaded.architecture}, {loaded.num_parameters / 1e6:.0f} million parameters, context "
        f"{loaded.context_size}, {loaded.threads} threads; {'; '.join(_uses(engine))}"
        + (f"; {loaded.gpu_layers} of {loaded.num_layers} layers on the {loaded.gpu}" if loaded.gpu else "")
        + (f", the experts of the first {loaded.cpu_experts} on the CPU" if loaded.cpu_experts else "")
        + (f"; draft model {engine.draft.name}: {engine.draft.memory}" if engine.draft is not None else "")
    )


def _uses(engine: Engine) -> list[str]:
    """What each device holds, and what had been planned for it where that is something else."""
    from runtime.catalog import size_text

    found = []
    for use in engine.uses:
        text = str(use.memory) if engine.description.gpu is None else f"{use.kind.upper()}: {use.memory}"
        planned = engine.bill.on(use.kind) if engine.bill is not None else None
        if planned is not None and planned.memory != use.memory:
            text += f" (planned: {planned.memory})"
        if use.own_bytes is not None and planned is not None:
            text += (
                f", driver and recorded steps {size_text(use.own_bytes)} (planned: {size_text(planned.graph_bytes)})"
            )
        found.append(text)
    return found


class StalledFile:
    """Says in one sentence, once, that a file does not answer."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._is_told = False

    def tell(self, label: str, waited_s: float) -> None:
        """waited_s: so long until now."""
        if waited_s >= STALLED_AFTER_S and not self._is_told:
            self._is_told = True
            self._console.note(
                f"note: {label} has not answered for {waited_s:.0f} s: look whether the disk or network share it lies "
                "on is there; Ctrl-C stops waiting."
            )


@contextmanager
def waiting_for_files(console: Console) -> Iterator[None]:
    """A block in which it is shown when a file is slow to answer, and told when it does not."""
    from runtime.patience import patient_files

    with ProgressBars(console) as bars:
        stalled = StalledFile(console)

        def told(label: str, waited_s: float) -> None:
            if waited_s >= SLOW_AFTER_S:
                bars.show(*stage_title(WAITING), int(waited_s), 0)
            else:
                bars.close()
            stalled.tell(label, waited_s)

        with patient_files(told):
            yield


SLOW_AFTER_S, STALLED_AFTER_S = 2, 20
WAITING = "waiting"
COMPILING = "kernels"
_STAGES = {COMPILING: ("Compiling kernels, this first time", "kernels"), "weights": ("Packing the weights", "bytes")}
_STAGES |= {
    "gpu-kernels": ("Loading the GPU's kernels", "modules"),
    "gpu-weights": ("Bringing weights to the GPU", "bytes"),
    WAITING: ("Waiting for the model's file to answer", "seconds"),
}


def stage_title(stage: str) -> tuple[str, str]:
    """What a stage of the engine's loading is called on the screen, and what it counts."""
    return _STAGES.get(stage, (stage, ""))
