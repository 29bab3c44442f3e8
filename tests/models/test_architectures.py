"""Declarations of model families: what is known, and what is said about the rest."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

import models
from models.architectures import ARCHITECTURES, find_architecture
from models.errors import ArchitectureError


def test_every_declaration_is_found_by_its_own_name() -> None:
    for name, architecture in ARCHITECTURES.items():
        assert architecture.name == name
        assert find_architecture(name) is architecture


def test_a_declaration_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        find_architecture("llama").rope_base = 1.0  # type: ignore[misc]


@pytest.mark.parametrize(("name", "nearest"), [("glm5moe", "glm4moe"), ("phi1", "phi3"), ("llama4", "llama")])
def test_an_unknown_architecture_is_told_what_there_is_and_what_is_nearest(name: str, nearest: str) -> None:
    with pytest.raises(ArchitectureError) as caught:
        find_architecture(name)
    message = str(caught.value)
    assert f"'{name}'" in message
    assert all(known in message for known in ARCHITECTURES)
    assert f"the nearest is {nearest}" in message


def test_an_architecture_like_no_other_has_no_nearest() -> None:
    with pytest.raises(ArchitectureError) as caught:
        find_architecture("rwkv7")
    assert "nearest" not in str(caught.value)


def test_a_name_cannot_steer_the_terminal() -> None:
    with pytest.raises(ArchitectureError) as caught:
        find_architecture("\x1b[2Jqwen")
    assert "\x1b" not in str(caught.value)


def test_no_module_outside_the_declarations_asks_for_a_family() -> None:
    folder = Path(models.__file__).parent
    names = "|".join(ARCHITECTURES)
    for module in ("hyperparameters", "lowering", "rope", "program", "description"):
        source = (folder / f"{module}.py").read_text(encoding="utf-8")
        assert not re.search(rf"""["']({names})["']""", source), module
