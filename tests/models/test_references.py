"""Every architecture against another implementation: its declaration, run in plain NumPy."""

from __future__ import annotations

import pytest
import references
from oracle import FileWeights, Oracle
from references import path_of, references_of, relative_error

from models.architectures import ARCHITECTURES
from models.description import load_description
from models.gguf_file import open_model_file


@pytest.mark.parametrize("name", references.NAMES)
def test_a_declaration_gives_the_logits_of_another_implementation(name: str) -> None:
    for reference in references_of(name):
        with open_model_file(path_of(name)) as file:
            program = load_description(file, context_size=reference.context_size).program
            found = Oracle(program, FileWeights(file)).logits(reference.ids)
        assert relative_error(found, reference.logits) < 1e-5


def test_every_architecture_has_a_reference() -> None:
    found = set()
    for name in references.NAMES:
        with open_model_file(path_of(name)) as file:
            found.add(file.metadata["general.architecture"])
    assert found == set(ARCHITECTURES)
