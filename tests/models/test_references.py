"""Every architecture against another implementation: its declaration, run in plain NumPy."""

from __future__ import annotations

from pathlib import Path

import pytest
import references
from model_lines import architecture_lines, difference_lines
from oracle import FileWeights, Oracle
from references import path_of, references_of, relative_error

from models.architectures import ARCHITECTURES
from models.description import load_description
from models.formats import FORMATS
from models.gguf_file import open_model_file


@pytest.mark.parametrize("name", references.NAMES)
def test_a_declaration_gives_the_logits_of_another_implementation(name: str) -> None:
    for reference in references_of(name):
        with open_model_file(path_of(name)) as file:
            program = load_description(file, context_size=reference.context_size).program
            found = Oracle(program, FileWeights(file)).logits(reference.ids.tolist())
        assert relative_error(found, reference.logits) < 1e-5


def test_every_architecture_has_a_reference() -> None:
    found = set()
    for name in references.NAMES:
        with open_model_file(path_of(name)) as file:
            found.add(file.metadata["general.architecture"])
    assert found == set(ARCHITECTURES)


def test_the_table_for_people_says_what_the_recorded_models_give() -> None:
    """What our kernels give is asked of them in tests/kernels_cpu; make it anew by scripts/make_models_table.py."""
    lines = (Path(__file__).resolve().parents[2] / "docs" / "models.md").read_text(encoding="utf-8").splitlines()
    rows = [line.split(" | ") for line in lines if line.count(" | ") == 8][1:]
    expected = [line.cells(("", "")).split(" | ") for line in architecture_lines()]
    assert [row[:5] + row[7:] for row in rows] == [row[:5] + row[7:] for row in expected]
    assert set(difference_lines()) <= set(lines)
    assert all(f"| {name} |" in "\n".join(lines) for name in FORMATS)
