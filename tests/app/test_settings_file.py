"""Writing settings: what else stands in the file stays, and what was written reads as it was meant."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import SettingsError
from app.settings_file import save_preset, save_values

HAND_WRITTEN = """# my settings
model = "smollm2-135m"  # small
ctx_size = 4096

[keys]
help = "f1"
"""


def test_a_file_is_made_where_there_is_none(tmp_path: Path) -> None:
    path = tmp_path / "новая папка" / "settings.toml"
    save_values(path, {"model": "x", "temp": 0.25, "stop": ("a", "b"), "offline": True, "seed": None})
    assert tomllib.loads(path.read_text()) == {"model": "x", "temp": 0.25, "stop": ["a", "b"], "offline": True}


def test_the_rest_of_the_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(HAND_WRITTEN)
    save_values(path, {"ctx_size": 8192, "temp": 0.5})
    assert path.read_text() == HAND_WRITTEN.replace("4096", "8192\ntemp = 0.5")
    save_values(path, {"ctx_size": None, "temp": None})
    assert path.read_text() == HAND_WRITTEN.replace("ctx_size = 4096\n", "")


def test_presets_come_and_go(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(HAND_WRITTEN)
    save_preset(path, 'one "two"', {"temp": 0.1, "system": "Be [brief].\n", "top_k": None})
    save_preset(path, "b", {"temp": 1.0})
    save_preset(path, 'one "two"', {"temp": 0.2})
    content = tomllib.loads(path.read_text())
    assert content["presets"] == {"b": {"temp": 1.0}, 'one "two"': {"temp": 0.2}}
    assert path.read_text().startswith(HAND_WRITTEN)
    save_preset(path, "b", None)
    save_preset(path, 'one "two"', None)
    assert path.read_text() == HAND_WRITTEN


@given(st.text())
def test_any_text_comes_back(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("settings") / "settings.toml"
    if any(0xD800 <= ord(char) < 0xE000 for char in text):
        return
    save_values(path, {"system": text})
    assert tomllib.loads(path.read_text(encoding="utf-8")) == {"system": text}


@pytest.mark.parametrize("content", ["model = = 3\n", 'stop = [\n "a",\n]\n', b"\xff"])
def test_what_can_not_be_changed_is_left_alone(tmp_path: Path, content: str | bytes) -> None:
    path = tmp_path / "settings.toml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    before = path.read_bytes()
    with pytest.raises(SettingsError, match="settings.toml"):
        save_values(path, {"stop": ("b",), "temp": 1.0})
    assert path.read_bytes() == before
    assert [place.name for place in tmp_path.iterdir()] == ["settings.toml"]
