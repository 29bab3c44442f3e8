"""The room's public names: all there, and nothing heavy imported before it is needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import runtime

ROOT = str(Path(__file__).resolve().parents[2])


def test_every_public_name_can_be_had() -> None:
    for name in runtime.__all__:
        value = getattr(runtime, name)
        assert not isinstance(value, type) or value.__name__ == name
    assert dir(runtime) == sorted(runtime.__all__)


def test_a_name_that_does_not_exist_is_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Motor'"):
        _ = runtime.Motor


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import runtime", ["numpy", "models", "runtime.engine", "threading"]),
        ("from runtime import OptionError; import runtime.machine, runtime.catalog", ["numpy", "numba", "jinja2"]),
        ("from runtime import Engine, EngineOptions", ["numba", "jinja2", "tokenizers", "sentencepiece", "textual"]),
    ],
)
def test_nothing_heavy_is_imported_early(statement: str, absent: list[str]) -> None:
    code = f"import sys; sys.path.insert(0, {ROOT!r}); {statement}; print(*sorted(sys.modules), sep='\\n')"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(found.stdout.split()).isdisjoint(absent)
