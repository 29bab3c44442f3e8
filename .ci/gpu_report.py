"""`make test-gpu` and `make bench-gpu`: what this machine's NVIDIA GPU does, as a dated file under docs/.

Owns the order, the time that each part may take, and the file.  Does not know how anything is measured
(kernels_gpu/measuring.py, `tandem bench`).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
LIMIT_S = 570  # of everything together
FORMATS = (("Q4_0", 2), ("Q4_K", 2), ("Q6_K", 2), ("Q8_0", 1))
MODELS = ("smollm2-135m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b")
TESTS = ("tests/kernels_gpu", "tests/runtime/devices", "tests/runtime/test_engine_gpu.py")


def main(kind: str) -> int:
    """Writes the report; 1 where there is no GPU or a test failed."""
    from runtime.cards import read_cards

    cards = read_cards()
    card = cards.best
    if card is None:
        print(f"{cards.fault} Nothing was written.", file=sys.stderr)
        return 1
    started_s = time.monotonic()
    head = [
        f"# {'Tests' if kind == 'tests' else 'Speed'} on the {card.name}",
        "",
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, driver {cards.driver_version}, compute capability "
        f"{card.capability_text}, {card.total_bytes / 2**30:.1f} GiB ({card.free_bytes / 2**30:.1f} free).",
        "",
    ]
    status, body = run_tests() if kind == "tests" else (0, list(bench_lines(started_s)))
    path = ROOT / "docs" / f"gpu-{kind}-{datetime.now(UTC):%Y-%m-%d}.md"
    path.write_text("\n".join([*head, *body, ""]), "utf-8")
    print(f"{path.relative_to(ROOT)} was written after {time.monotonic() - started_s:.0f} s.", file=sys.stderr)
    return status


def run_tests() -> tuple[int, list[str]]:
    """The marked tests, on the card and against the same references as on the emulator."""
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", "--durations=10", *TESTS]
    done = called(command, LIMIT_S)
    return done.returncode, [f"    python {' '.join(command[1:])}", "", "```", done.stdout.strip(), "```"]


def bench_lines(started_s: float) -> Iterator[str]:
    """Tables of single kernels, then of models."""
    yield from kernel_lines()
    for model in MODELS:
        left_s = LIMIT_S - (time.monotonic() - started_s)
        if left_s < 60:
            yield f"There was no time left for {model}."
            continue
        layers = "0,all" if model == MODELS[0] else "all"
        command = ["-m", "app", "bench", model, "-ngl", layers, "-p", "512", "-n", "64", "--verify", "4", "-r", "3"]
        done = called([sys.executable, *command, "--no-generate", "--no-chart"], left_s)
        yield from (
            f"## {model}",
            "",
            f"    tandem {' '.join(command[2:])}",
            "",
            done.stdout.strip() or failure(done),
            "",
        )
    yield from peer_lines(started_s)


def kernel_lines() -> Iterator[str]:
    """Every kernel next to the card's copy bandwidth."""
    from kernels_gpu.cupy_device import open_card
    from kernels_gpu.measuring import CardMeter, Sizes

    meter = CardMeter(open_card(Path("~/.cache/tandem/kernels/gpu").expanduser()), Sizes())
    copy = meter.copy()
    measured = [found for name, terms in FORMATS for found in meter.products(name, terms)]
    measured += [found for kind in ("f16", "q8_0") for found in meter.attention((kind, kind))]
    one_token_ms = 0.0
    yield f"Copies on the card: {copy.bytes_per_s / 1e9:.0f} GB/s (read and written). A matrix is 14336 x 4096."
    yield from (
        "",
        "| kernel | ms | GB/s | of a copy | Tera-operations/s | times one token |",
        "|---|---:|---:|---:|---:|---:|",
    )
    for found in measured:
        if found.name.endswith(("product_1", "1 token")):
            one_token_ms = found.elapsed_ms
        yield (
            f"| {found.name} | {found.elapsed_ms:.3f} | {found.bytes_per_s / 1e9:.0f} | "
            f"{found.bytes_per_s / copy.bytes_per_s:.0%} | {found.operations_per_s / 1e12:.1f} | "
            f"{found.elapsed_ms / one_token_ms:.2f} |"
        )
    yield ""


def peer_lines(started_s: float) -> Iterator[str]:
    """llama.cpp's own bench with everything on the card, where it is at hand."""
    bench, left_s = shutil.which("llama-bench"), LIMIT_S - (time.monotonic() - started_s)
    if bench is None or left_s < 60:
        yield "llama.cpp's CUDA build was not measured: " + (
            "no llama-bench on the PATH." if bench is None else "no time."
        )
        return
    from runtime.catalog import models_folder, resolve_model

    path = resolve_model(MODELS[-1], folder=models_folder(), offline=True)
    done = called([bench, "-m", str(path), "-ngl", "99", "-p", "512", "-n", "64", "-r", "3", "-o", "md"], left_s)
    yield from (f"## llama.cpp, {MODELS[-1]}", "", done.stdout.strip() or failure(done))


def called(command: Sequence[str], limit_s: float) -> subprocess.CompletedProcess[str]:
    """Runs it from the project's root; one that takes too long is ended, with what it had said."""
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired as error:
        said = error.stdout or b""
        text = said.decode(errors="replace") if isinstance(said, bytes) else said
        return subprocess.CompletedProcess(command, 124, text, f"It took longer than {limit_s:.0f} s and was ended.")


def failure(done: subprocess.CompletedProcess[str]) -> str:
    return f"It failed: {(done.stderr.strip().splitlines() or ['no word'])[-1]}"


if __name__ == "__main__":
    if sys.argv[1:] not in (["tests"], ["bench"]):
        sys.exit("usage: gpu_report.py tests | bench")
    sys.exit(main(sys.argv[1]))
