"""Settings from file and environment: precedence, kinds, and what is said about keys that mean nothing."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from app.errors import SettingsError
from app.options import LOAD_OPTIONS, SAMPLING_OPTIONS, add_flags, preferences_of
from app.preferences import Preferences
from app.settings import Settings, load_settings, settings_path


def settings_of(tmp_path: Path, text: str, **variables: str) -> Settings:
    path = tmp_path / "настройки 設定.toml"
    path.write_text(text, "utf-8")
    return load_settings({"TANDEM_CONFIG": str(path), **variables})


def flags(*arguments: str) -> Preferences:
    parser = argparse.ArgumentParser()
    add_flags(parser, LOAD_OPTIONS + SAMPLING_OPTIONS, "all")
    return preferences_of(parser.parse_args(arguments))


def test_flags_beat_the_environment_and_the_environment_beats_the_file(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, 'temp = 0.1\ntop_k = 1\nmodel = "a"', TANDEM_TOP_K="2", TANDEM_MODEL="b")
    chosen = flags("-m", "c").over(settings.preferences)
    assert (chosen.temp, chosen.top_k, chosen.model) == (0.1, 2, "c")
    assert chosen.min_p is None
    assert settings.warnings == ()


def test_every_kind_is_read_from_both(tmp_path: Path) -> None:
    from_file = settings_of(
        tmp_path, 'ctx_size = 5\ntemp = 1\noffline = true\nstop = ["a", "b"]\nsystem = "x"\nmodels_dir = "/m"'
    ).preferences
    from_environment = settings_of(
        tmp_path,
        "",
        TANDEM_CTX_SIZE="5",
        TANDEM_TEMP="1",
        TANDEM_OFFLINE="yes",
        TANDEM_STOP="a",
        TANDEM_SYSTEM="x",
        TANDEM_MODELS_DIR="/m",
    ).preferences
    assert from_file == Preferences(ctx_size=5, temp=1.0, offline=True, stop=("a", "b"), system="x", models_dir="/m")
    assert from_environment.over(Preferences(stop=("z",))) == Preferences(
        ctx_size=5, temp=1.0, offline=True, stop=("a",), system="x", models_dir="/m"
    )


def test_an_empty_variable_says_nothing(tmp_path: Path) -> None:
    assert settings_of(tmp_path, "temp = 0.5", TANDEM_TEMP="").preferences.temp == 0.5


def test_unknown_keys_are_one_warning_that_names_the_nearest(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, 'tempp = 1\ncontext_sise = 2\n"\x1b[2J" = 1'.replace("\x1b", "\\u001b"))
    (warning,) = settings.warnings
    assert "'tempp' (did you mean temp?)" in warning
    assert "'context_sise' (did you mean ctx_size?)" in warning
    assert "\x1b" not in warning
    (warning,) = settings_of(tmp_path, "", TANDEM_MODEL_DIR="/m", TANDEM_DEBUG="1", OTHER="1").warnings
    assert "'TANDEM_MODEL_DIR' (did you mean TANDEM_MODELS_DIR?)" in warning


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('temp = "hot"', "temp is 'hot'; expected a number"),
        ("temp = true", "temp is True; expected a number"),
        ("ctx_size = 1.5", "ctx_size is 1.5; expected a whole number"),
        ("ctx_size = true", "ctx_size is True; expected a whole number"),
        ("offline = 1", "offline is 1; expected true or false"),
        ("model = 3", "model is 3; expected a text"),
        ("stop = [1]", "expected a list of texts"),
        ("[temp]\nx = 1", "temp is {'x': 1}; expected a number"),
        ("temp = ", "is no valid TOML"),
        ("temp = 1\ntemp = 2", "is no valid TOML"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_place(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(SettingsError) as caught:
        settings_of(tmp_path, text)
    assert sentence in str(caught.value)
    assert "настройки 設定.toml" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("TANDEM_TEMP", "hot", "a number"),
        ("TANDEM_CTX_SIZE", "1.5", "a whole number"),
        ("TANDEM_OFFLINE", "perhaps", "true or false"),
    ],
)
def test_a_variable_of_the_wrong_kind_is_refused(tmp_path: Path, name: str, text: str, expected: str) -> None:
    with pytest.raises(SettingsError, match=f"{name} is '{text}'; expected {expected}"):
        settings_of(tmp_path, "", **{name: text})


def test_a_damaged_file_is_no_crash(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match="is no valid TOML"):
        load_settings({"TANDEM_CONFIG": str(path)})
    with pytest.raises(SettingsError, match="can't be read"):
        load_settings({"TANDEM_CONFIG": str(tmp_path)})


def test_a_file_that_was_named_must_exist_and_the_usual_one_need_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SettingsError, match=r"none.toml \(from TANDEM_CONFIG\) does not exist"):
        load_settings({"TANDEM_CONFIG": str(tmp_path / "none.toml")})
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load_settings({}).preferences == Preferences()
    assert settings_path({}).name == "settings.toml"
    assert tmp_path in settings_path({}).parents
    (tmp_path / "file").write_text("in the way, as /dev/null is where it is the home of a service")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    assert load_settings({}).preferences == Preferences()


def test_keys_of_the_chat_stand_in_a_table_of_their_own(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, 'temp = 1\n[keys]\nnew = "f2"\nregen = ["f5", "alt+r"]\nhelp = ""')
    assert settings.keys == {"new": ("f2",), "regen": ("f5", "alt+r"), "help": ()}
    assert settings.warnings == ()


@pytest.mark.parametrize("text", ["keys = 1", "[keys]\nnew = 1", '[keys]\nnew = ["f2", 3]'])
def test_keys_of_the_wrong_kind_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError, match="expected"):
        settings_of(tmp_path, text)
