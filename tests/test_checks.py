"""The repository's own checks find what they are for."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


def check(name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    # Dataclasses look their module up by name.
    sys.modules[name] = module
    specification.loader.exec_module(module)
    return module


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    return tmp_path


def test_a_module_may_have_400_lines_and_no_more(folder: Path) -> None:
    (folder / "just.py").write_text("x = 1\n" * 400, encoding="utf-8")
    (folder / "over.py").write_text("x = 1\n" * 401, encoding="utf-8")
    (folder / "long.txt").write_text("line\n" * 1000, encoding="utf-8")
    (sentence,) = check("check_module_lengths").too_long(folder)
    assert sentence.startswith("over.py: 401 lines, at most 400")


def test_what_git_ignores_is_not_measured(folder: Path) -> None:
    (folder / ".gitignore").write_text("made/\n", encoding="utf-8")
    (folder / "made").mkdir()
    (folder / "made" / "over.py").write_text("x = 1\n" * 500, encoding="utf-8")
    assert check("check_module_lengths").too_long(folder) == []


@pytest.mark.parametrize(
    ("name", "line", "reason"),
    [
        ("models/a.py", "PATH = '/wo" + "rk/models'", "a path of one machine"),
        ("notes.md", "see /ro" + "ot/models", "a path of one machine"),
        ("Makefile", "from py" + "pi.org", "the address of a package registry"),
        ("requirements.txt", "--extra-index" + "-url x", "an address or an index in a pinned file"),
        ("requirements.txt", "x @ https:" + "//example.invalid/x.whl", "an address or an index in a pinned file"),
        ("tests/test_a.py", "@pytest.mark.sk" + "ip", "a test that may not run"),
        ("tests/test_a.py", "numba = pytest.import" + "orskip('numba')", "a test that may not run"),
        ("runtime/a.py", "# TO" + "DO: later", "something left undone"),
    ],
)
def test_a_word_out_of_place_is_found(name: str, line: str, reason: str, folder: Path) -> None:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"fine\n{line}\n", encoding="utf-8")
    (sentence,) = check("check_words").findings(folder)
    assert sentence.startswith(f"{name}:2: {reason}")


def test_what_may_stand_there_is_not_found(folder: Path) -> None:
    (folder / "a.py").write_text('# "~/work", framework/root, https://example.invalid, a todo list\n', encoding="utf-8")
    (folder / "data.bin").write_bytes(b"\xff\xfe/root/")
    assert check("check_words").findings(folder) == []
