"""Every architecture against another implementation: its declaration, run in plain NumPy."""

from __future__ import annotations

from pathlib import Path

import pytest
import references
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


def test_the_table_for_people_has_every_model_and_format() -> None:
    """Made by scripts/make_models_table.py."""
    text = (Path(__file__).resolve().parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
    assert all(f"| {name} " in text for name in (*references.NAMES, *FORMATS))
    assert all(f"`{name}`" in text for name in ARCHITECTURES)
