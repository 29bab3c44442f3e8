"""`--lora FILE[:SCALE]`: what the text means, and that it reaches the engine and the manifest."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.adapters import adapter_choices, adapter_text
from app.errors import UsageError
from app.preferences import Preferences
from app.runtime_options import engine_options
from runtime.adapters import AdapterChoice


def test_a_scale_stands_behind_the_last_colon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.gguf", "b:2", "c:d"):
        Path(name).touch()
    found = adapter_choices(["a.gguf", "a.gguf:0.5", "a.gguf:-2e-1", "b:2", "b:2:3", "missing:x", "c:d"])
    assert [(choice.path.name, choice.scale) for choice in found] == [
        ("a.gguf", 1.0),
        ("a.gguf", 0.5),
        ("a.gguf", -0.2),
        ("b:2", 1.0),
        ("b:2", 3.0),
        ("missing:x", 1.0),
        ("c:d", 1.0),
    ]
    assert adapter_choices([adapter_text(found[1])]) == (AdapterChoice(path=tmp_path / "a.gguf", scale=0.5),)


@pytest.mark.parametrize("scale", ["", "much", "nan", "inf", "1e9"])
def test_a_scale_that_is_none_is_a_wrong_command_line(tmp_path: Path, scale: str) -> None:
    (tmp_path / "a.gguf").touch()
    with pytest.raises(UsageError, match="scale"):
        engine_options(Preferences(lora=(f"{tmp_path / 'a.gguf'}:{scale}",)))


def test_adapters_reach_the_engine(tmp_path: Path) -> None:
    options = engine_options(Preferences(lora=("a.gguf", "b.gguf:2")))
    assert [(choice.path.name, choice.scale) for choice in options.adapters] == [("a.gguf", 1.0), ("b.gguf", 2.0)]
    assert engine_options(Preferences()).adapters == ()
