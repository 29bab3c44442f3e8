"""Writes docs/models.md: every architecture and format, what it was compared with, and how far apart the two were.

    python scripts/make_models_table.py

Runs the models of tests/data/architectures as plain NumPy on the declared program and on this machine's kernels, and
reads every block format back through the kernels.  Takes a minute the first time, while kernels are compiled.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from cpu_models import bound, limits_of  # noqa: E402
from gguf import GGMLQuantizationType, quants  # noqa: E402
from kernels import LEVELS, embed, pack  # noqa: E402
from oracle import FileWeights, Oracle  # noqa: E402
from references import NAMES, path_of, references_of, relative_error  # noqa: E402
from tiny_models import random_rows  # noqa: E402

from kernels_cpu.packed_formats import FLOAT_FORMATS, PACKED_FORMATS  # noqa: E402
from models.description import load_description  # noqa: E402
from models.formats import FORMATS  # noqa: E402
from models.gguf_file import open_model_file  # noqa: E402

INTRODUCTION = """# Models: what runs, and how it was checked

Made by `python scripts/make_models_table.py`; don't edit it by hand.

## Architectures

Each line is a tiny model with random weights, in tests/data/architectures. Another implementation, named in the line,
computed its logits from the same rounded weights (`scripts/make_references.py`). The figures are the root mean square
of the difference, in standard deviations of the logits: first of the declared program in plain NumPy with float64
numbers, which shows that the mathematics are the same; then of the CPU's kernels with exact activations and a cache of
float16, whose rounding is what is left. The last column is how often both find the same token likeliest.

| model | architecture | formats | compared with | NumPy | CPU kernels | same token |
|---|---|---|---|---|---|---|"""

FORMATS_INTRODUCTION = """
## Formats

Random blocks, packed for the CPU and read back, against the package `gguf` ({version}). Products of packed weights are
compared with float64 in the tests.

| format | bits a weight in the file | in memory | read back |
|---|---|---|---|"""


def architecture_lines() -> Iterator[str]:
    for name in NAMES:
        for reference in references_of(name):
            with open_model_file(path_of(name)) as file:
                description = load_description(file, context_size=reference.context_size)
                exact = Oracle(description.program, FileWeights(file)).logits(reference.ids)
            context = reference.context_size or 128
            with bound(path_of(name), limits=limits_of(context=context), context_size=reference.context_size) as model:
                found = model.logits(reference.ids.tolist())
            same = (found.argmax(axis=1) == reference.logits.argmax(axis=1)).mean()
            formats = ", ".join(use.name for use in description.formats)
            short = " (short contexts)" if reference.context_size else ""
            yield (
                f"| {name}{short} | `{description.architecture.name}` | {formats} | {reference.source}"
                f" | {relative_error(exact, reference.logits):.1e} | {relative_error(found, reference.logits):.1e}"
                f" | {same:.0%} |"
            )


def format_lines() -> Iterator[str]:
    for name in (*FLOAT_FORMATS, *PACKED_FORMATS):
        columns = FORMATS[name].block_elements * 4
        raw = random_rows(name, (64, columns), np.random.default_rng(1), std=0.05)
        rows = embed(pack(LEVELS[0], name, columns, raw), np.arange(64))
        expected = quants.dequantize(raw, GGMLQuantizationType(FORMATS[name].ggml_id))
        verdict = "every bit equal" if np.array_equal(rows, expected) else f"differs by {np.abs(rows - expected).max()}"
        stored = 8 * FORMATS[name].block_bytes / FORMATS[name].block_elements
        form = PACKED_FORMATS.get(name)
        packed = stored if form is None else 8 * form.block_bytes / form.columns
        yield f"| {name} | {stored:.4g} | {packed:.4g} | {verdict} |"


def main() -> None:
    from importlib.metadata import version

    lines = [INTRODUCTION, *architecture_lines(), FORMATS_INTRODUCTION.format(version=version("gguf")), *format_lines()]
    (ROOT / "docs" / "models.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
