"""`make test-gpu` and `make bench-gpu`: what this machine's NVIDIA GPU does, as a dated file under docs/.

Owns the order, the time that each part may take, and the file, which grows part by part: what fails, or takes too
long, costs no other part.  Does not know how anything is measured (kernels_gpu/measuring.py, `tandem bench`).

Any Python that has the packages will do, and no network is needed: `python .ci/gpu_report.py bench`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]
LIMIT_S = 560  # of everything together
LEAST_S = 45  # that a part is begun with
FORMATS = (("Q4_K", 2), ("Q4_0", 1), ("Q6_K", 2), ("Q8_0", 1), ("MXFP4", 2))
CACHES = ("f16", "q8_0")
MODELS = ("qwen2.5-coder-1.5b", "smollm2-135m")
TESTS = ("tests/kernels_gpu", "tests/runtime/devices", "tests/runtime/test_engine_gpu.py")
BENCH = ("-p", "512", "-n", "64", "--verify", "4", "-r", "3", "--no-generate", "--no-chart", "--no-profile")
HEAD = (
    "| kernel | ms | GB/s | of a copy | Tera-operations/s | of the int8 rate | times one token |",
    "|---|---:|---:|---:|---:|---:|---:|",
)

Row = dict[str, Any]
Measure = Callable[[Any, str], list[Any]]


class Report:
    """The file.  left_s: of the time for everything."""

    def __init__(self, kind: str) -> None:
        self.path = ROOT / "docs" / f"gpu-{kind}-{datetime.now(UTC):%Y-%m-%d}.md"
        self._started_s = time.monotonic()
        self.path.write_text("", "utf-8")

    @property
    def left_s(self) -> float:
        return LIMIT_S - (time.monotonic() - self._started_s)

    def add(self, *lines: str) -> None:
        """At once in the file, and on stderr."""
        text = "".join(f"{line}\n" for line in lines)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(text)
        print(text, end="", file=sys.stderr, flush=True)


def main(kind: str) -> int:
    """Writes the report; 1 where there is no GPU or something failed."""
    title, fault = card_line()
    if fault is not None:
        print(f"{fault} Nothing was written.", file=sys.stderr)
        return 1
    report = Report(kind)
    report.add(f"# {'Tests' if kind == 'tests' else 'Speed'} on the {title}", "")
    status = run_tests(report) if kind == "tests" else bench(report)
    print(f"{report.path.relative_to(ROOT)} was written; {report.left_s:.0f} s were left.", file=sys.stderr)
    return status


def card_line() -> tuple[str, str | None]:
    """(the card in words, None), or why there is none: by the driver's library, or else by CUDA itself."""
    from runtime.cards import read_cards

    cards = read_cards()
    when = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    if (card := cards.best) is not None:
        return (
            f"{card.name}\n\n{when}, driver {cards.driver_version}, compute capability {card.capability_text}, "
            f"{card.total_bytes / 2**30:.1f} GiB ({card.free_bytes / 2**30:.1f} free)."
        ), None
    done = called([sys.executable, str(Path(__file__)), "card"], 120)
    if done.returncode == 0:
        return f"{done.stdout.strip()}\n\n{when}. {cards.fault} CUDA found the card all the same.", None
    return "", f"{cards.fault} {last_line(done)}"


def run_tests(report: Report) -> int:
    """The marked tests, on the card and against the same references as on the emulator."""
    # A file a process: an error that a card does not forgive costs the others nothing.
    apart = ["-n", "4", "--dist", "loadfile"] if importlib.util.find_spec("xdist") else []
    command = ["-m", "pytest", "-m", "gpu", "-q", "--durations=10", *apart, *TESTS]
    done = called([sys.executable, *command], report.left_s)
    report.add(f"    python {' '.join(command)}", "", "```", done.stdout.strip() or done.stderr.strip(), "```")
    if done.returncode == 124:
        report.add("", last_line(done))
    return done.returncode


def bench(report: Report) -> int:
    """Single kernels, then models; 1 where a part failed."""
    faults = [*kernel_parts(report)]
    with tempfile.TemporaryDirectory() as folder:
        for name, path, layers in models(Path(folder), report):
            if report.left_s < LEAST_S:
                report.add(f"There was no time left for {name} with {layers} layers.", "")
                continue
            command = ["-m", "app", "bench", str(path), "-ngl", layers, *BENCH]
            done = called([sys.executable, *command], report.left_s - 5)
            said = done.stdout.strip()
            report.add(f"## {name}, -ngl {layers}", "", f"    tandem {' '.join(command[2:])}", "", said)
            if done.returncode:
                faults.append(last_line(done))
                report.add("", f"It failed: {faults[-1]}")
            report.add("")
        peer(report)
    return int(bool(faults))


def kernel_parts(report: Report) -> Iterator[str]:
    """A table of kernels next to the card's copy bandwidth and int8 rate, each group in a process of its own."""
    copy = rate = None
    for group in ("limits", *(f"{name} {terms}" for name, terms in FORMATS), *CACHES):
        if report.left_s < LEAST_S:
            report.add(f"There was no time left for the kernels of {group}.")
            continue
        done = called([sys.executable, str(Path(__file__)), "kernels", *group.split()], min(120, report.left_s))
        if done.returncode:
            yield f"{group}: {last_line(done)}"
            report.add(f"The kernels of {group} failed: {last_line(done)}", "")
            continue
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        if group == "limits":
            copy, rate = rows
            report.add(
                f"Copies on the card: {per_s(copy, 'moved_bytes') / 1e9:.0f} GB/s (read and written). int8 products "
                f"alone: {per_s(rate, 'operations') / 1e12:.0f} Tera-operations/s. A matrix is 14336 x 4096; "
                "operations with two terms count twice.",
                "",
                *HEAD,
            )
        else:
            report.add(*table(rows, copy, rate))
    report.add("")


def table(rows: Sequence[Row], copy: Row | None, rate: Row | None) -> Iterator[str]:
    """A line for each kernel; the first is that of one token."""
    for row in rows:
        of_copy = f"{per_s(row, 'moved_bytes') / per_s(copy, 'moved_bytes'):.0%}" if copy else ""
        of_rate = f"{per_s(row, 'operations') / per_s(rate, 'operations'):.0%}" if rate else ""
        yield (
            f"| {row['name']} | {row['elapsed_ms']:.3f} | {per_s(row, 'moved_bytes') / 1e9:.0f} | {of_copy} | "
            f"{per_s(row, 'operations') / 1e12:.1f} | {of_rate} | {row['elapsed_ms'] / rows[0]['elapsed_ms']:.2f} |"
        )


def per_s(row: Row, what: str) -> float:
    return row[what] / row["elapsed_ms"] * 1e3


def measure(group: Sequence[str], device: Any, sizes: Any) -> list[Row]:
    """One group of kernels on a device: "limits", a format and its terms, or a type of keys and values."""
    from kernels_gpu.measuring import CardMeter

    meter = CardMeter(device, sizes)
    match group:
        case ["limits"]:
            found = [meter.copy(), meter.int8_rate()]
        case [name, terms]:
            found = meter.products(name, int(terms))
        case [kind]:
            found = meter.attention((kind, kind))
        case _:
            raise ValueError(f"no kernels are called {group}")
    return [asdict(row) for row in found]


def models(folder: Path, report: Report) -> Iterator[tuple[str, Path, str]]:
    """(name, file, layers): random weights in usual shapes, and models of the catalog that are on this disk."""
    from large_models import EIGHT_BILLION, ONE_BILLION, fill, write_large_model

    for name, shape in (("8B of random weights", EIGHT_BILLION), ("1B of random weights", ONE_BILLION)):
        path = folder / f"{name.split()[0].lower()}-q4_k.gguf"
        free_bytes = shutil.disk_usage(folder).free
        write_large_model(path, shape)
        if path.stat().st_size + 2**30 > free_bytes:
            report.add(f"The disk has no room for {name}.", "")
        else:
            yield name, fill(path), "auto"
        path.unlink()
    for name in MODELS:
        if (path := on_disk(name)) is None:
            report.add(f"{name} is not on this disk: it was not measured.", "")
        else:
            yield from ((name, path, layers) for layers in (("all",) if name == MODELS[0] else ("all", "15")))


def on_disk(name: str) -> Path | None:
    """The file of a model of the catalog, if it was fetched before."""
    from runtime.catalog import models_folder, resolve_model
    from runtime.errors import EngineError

    folder = Path(os.environ["TANDEM_MODELS_DIR"]) if "TANDEM_MODELS_DIR" in os.environ else models_folder()
    try:
        return resolve_model(name, folder=folder, offline=True)
    except (OSError, RuntimeError, ValueError, EngineError):
        return None


def peer(report: Report) -> None:
    """llama.cpp's own bench with everything on the card, where it is at hand."""
    program, path = shutil.which("llama-bench"), on_disk(MODELS[0])
    if program is None or path is None or report.left_s < LEAST_S:
        why = "no llama-bench on the PATH" if program is None else f"no {MODELS[0]}" if path is None else "no time"
        report.add(f"llama.cpp's CUDA build was not measured: {why}.")
        return
    command = [program, "-m", str(path), "-ngl", "99", "-p", "512", "-n", "64", "-r", "3", "-o", "md"]
    done = called(command, report.left_s - 5)
    report.add(f"## llama.cpp, {MODELS[0]}", "", done.stdout.strip() or f"It failed: {last_line(done)}")


def called(command: Sequence[str], limit_s: float) -> subprocess.CompletedProcess[str]:
    """Runs it from the project's root; one that takes too long is ended, with what it had said."""
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired as error:
        said = error.stdout or b""
        text = said.decode(errors="replace") if isinstance(said, bytes) else said
        return subprocess.CompletedProcess(command, 124, text, f"It took longer than {limit_s:.0f} s and was ended.")


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    return (done.stderr.strip().splitlines() or ["no word"])[-1]


def child(words: Sequence[str]) -> int:
    """What the report calls in processes of their own."""
    from kernels_gpu.cupy_device import open_card
    from kernels_gpu.device import GpuError
    from kernels_gpu.measuring import Sizes

    try:
        device = open_card(Path("~/.cache/tandem/kernels/gpu").expanduser())
        if words[0] == "card":
            print(f"{device.name} (sm_{device.architecture})")
        else:
            for row in measure(words[1:], device, Sizes()):
                print(json.dumps(row))
    except GpuError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] in (["card"], ["kernels"]):
        sys.exit(child(sys.argv[1:]))
    if sys.argv[1:] not in (["tests"], ["bench"]):
        sys.exit("usage: gpu_report.py tests | bench")
    sys.exit(main(sys.argv[1]))
