"""Writes docs/models.md: every architecture and format, what it was compared with, and how far apart the two were.

    python scripts/make_models_table.py [--only Models|"Real models"|Formats]

Runs the models of tests/data/architectures as plain NumPy on the declared program and on this machine's kernels, and
reads every block format back through the kernels.  Takes some minutes; --only makes one section anew and leaves the
others as they are.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from cpu_models import bound, limits_of  # noqa: E402
from gguf import GGMLQuantizationType, quants  # noqa: E402
from kernels import LEVELS, embed, pack  # noqa: E402
from model_lines import architecture_lines, difference_lines  # noqa: E402
from peer_models import own_distance, peer_model  # noqa: E402
from peers import peer_of  # noqa: E402
from references import NAMES, path_of, relative_error  # noqa: E402
from tiny_models import random_rows  # noqa: E402

from kernels_cpu.activations import PRECISIONS  # noqa: E402
from kernels_cpu.packed_formats import FLOAT_FORMATS, PACKED_FORMATS  # noqa: E402
from models.catalog import CATALOG  # noqa: E402
from models.expanded_formats import EXPANDED_FORMATS  # noqa: E402
from models.formats import FORMATS  # noqa: E402
from models.local_models import local_path, models_folder  # noqa: E402

INTRODUCTION = """# Models: what runs, and how it was checked

Made by `python scripts/make_models_table.py`; don't edit it by hand.

## Architectures

Each line is a tiny model with random weights, in tests/data/architectures. Another implementation, named in the line,
computed its logits from the same rounded weights (`scripts/make_references.py`). The figures are the root mean square
of the difference, in standard deviations of the logits: first of the declared program in plain NumPy with float64
numbers, which shows that the mathematics are the same; then of the CPU's kernels with exact activations and a cache of
float16, whose rounding is what is left, and how often they find the same token likeliest.

{peer} computed them too (`scripts/make_peer_logits.py`). "llama.cpp" is how far it is
from the reference with the weights written as float32, so that nothing is rounded to 8 bits; "its file" with the file
as it is, as people run it.

| model | architecture | formats | compared with | NumPy | CPU kernels | same token | llama.cpp | its file |
|---|---|---|---|---|---|---|---|---|"""

DIFFERENCES_INTRODUCTION = """
Where llama.cpp computes something else than the reference, Tandem follows the reference. With our NumPy side changed to
do as llama.cpp does, both agree (what is left with the tables are numbers that fall on the other side of their
rounding), so the list is whole:
"""

REAL_INTRODUCTION = """
## Real models

The models of the catalog on a text of English and code, beside llama.cpp with the same weights written as float32: mean
KL divergence in nats, and how often the likeliest token is the same. "llama.cpp" is itself with the file as people run
it, whose activations it rounds to 8 bits; the others are Tandem's, by `--activations`. Where there is an adapter, a
random LoRA of rank 4 on every product is applied on both sides, 0.75 times.

| model | exact | balanced | fast | llama.cpp |
|---|---|---|---|---|"""

FORMATS_INTRODUCTION = """
## Formats

Random blocks, packed for the CPU and read back, against the package `gguf` ({version}). Products of packed weights are
compared with float64 in the tests. For the formats at the end there are no kernels: `gguf` itself reads them, and they
are rounded to float16 when a model is loaded.

| format | bits a weight in the file | in memory | read back |
|---|---|---|---|"""


def rows_of_architectures() -> Iterator[str]:
    for line in architecture_lines():
        reference = line.reference
        limits = limits_of(context=reference.context_size or 128)
        with bound(path_of(line.name), limits=limits, context_size=reference.context_size) as model:
            found = model.logits(reference.ids.tolist())
        same = (found.argmax(axis=1) == reference.logits.argmax(axis=1)).mean()
        yield line.cells((f"{relative_error(found, reference.logits):.1e}", f"{same:.0%}"))


def peer_source() -> str:
    return next(peer.source for name in NAMES if (peer := peer_of(name)))


def real_lines() -> Iterator[str]:
    for name, entry in CATALOG.items():
        for with_lora in (False, True):
            peer = peer_model(name, with_lora=with_lora)
            if peer is None:
                continue
            path = local_path(entry, models_folder())
            if path is None:
                sys.exit(f"{name} is not there: `tandem models pull {name}`, or set TANDEM_MODELS_DIR.")
            with tempfile.TemporaryDirectory() as folder:
                ours = [own_distance(path, peer, precision, Path(folder)) for precision in PRECISIONS[::-1]]
            cells = (f"{found.mean_kl:.1e}, {found.same_best:.0%}" for found in (*ours, peer.own_rounding))
            yield f"| {name}{' with an adapter' if with_lora else ''} | {' | '.join(cells)} |"


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
    for expanded in EXPANDED_FORMATS.values():
        stored = 8 * expanded.block_bytes / expanded.block_elements
        yield f"| {expanded.name} | {stored:.4g} | 16 | nearest float16 |"


SECTIONS: Mapping[str, Callable[[], list[str]]] = {
    "# Models": lambda: [
        *(INTRODUCTION.format(peer=peer_source()), *rows_of_architectures()),
        *(DIFFERENCES_INTRODUCTION, *difference_lines()),
    ],
    "## Real models": lambda: [REAL_INTRODUCTION, *real_lines()],
    "## Formats": lambda: [FORMATS_INTRODUCTION.format(version=version("gguf")), *format_lines()],
}
"""By the heading that each begins with."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=[heading.lstrip("# ").split(":")[0] for heading in SECTIONS], default=None)
    only, page = parser.parse_args().only, ROOT / "docs" / "models.md"
    written = page.read_text(encoding="utf-8") if only else ""
    starts = [written.find(heading) for heading in SECTIONS] + [len(written)]
    kept = [written[start:end].rstrip("\n") for start, end in itertools.pairwise(starts)]
    sections = [
        old if only and not heading.endswith(only) else "\n".join(make()).strip("\n")
        for (heading, make), old in zip(SECTIONS.items(), kept, strict=True)
    ]
    page.write_text("\n\n".join(sections) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
