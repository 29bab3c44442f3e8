"""The command as it is installed: it starts without anything heavy, and takes every line that the README shows."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HEAVY = ("gguf", "huggingface_hub", "jinja2", "llvmlite", "numba", "numpy", "sentencepiece", "textual", "tokenizers")

# Runs the command and tells on the last line which of the heavy modules it has loaded.
WATCH = """
import sys
from app.cli import main
try:
    status = main(sys.argv[2:])
except SystemExit as leaving:
    status = leaving.code
print()
print(status or 0, *[name for name in sys.argv[1].split(",") if name in sys.modules])
"""


def loaded_by(*arguments: str) -> str:
    """What the last line says: the exit status and the heavy modules."""
    command = [sys.executable, "-c", WATCH, ",".join(HEAVY), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


def readme_lines() -> list[str]:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    return [line.strip().rpartition("| ")[2] for line in lines if line.startswith("    ") and "tandem " in line]


def test_the_watch_sees_a_heavy_module() -> None:
    watched = WATCH.replace("import sys\n", "import sys, numpy\n", 1)
    command = [sys.executable, "-c", watched, ",".join(HEAVY), "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 numpy"


@pytest.mark.parametrize(
    "arguments", [("--help",), ("--version",), ("generate", "--help"), ("chat", "--help"), ("bench", "--help")]
)
def test_help_and_version_load_nothing_heavy(arguments: tuple[str, ...]) -> None:
    assert loaded_by(*arguments) == "0"


def test_a_wrong_command_line_loads_nothing_heavy() -> None:
    assert loaded_by("generate", "--no-such-flag") == "2"


@pytest.mark.parametrize("line", readme_lines())
def test_the_readmes_lines_are_what_the_command_takes(line: str) -> None:
    from app.cli import _parser

    program, *words = shlex.split(line)
    assert program == "tandem"
    assert callable(_parser().parse_args(words).command)


def test_the_readme_shows_every_subcommand() -> None:
    from app.cli import _parser

    commands = next(action.choices for action in _parser()._actions if isinstance(action, argparse._SubParsersAction))
    assert {shlex.split(line)[1] for line in readme_lines()} == set(commands)


def test_the_installed_command_is_the_one_that_is_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["scripts"] == {"tandem": "app.__main__:main"}


@pytest.mark.parametrize("module", ["argparse", "app.cli", "app.errors"])
def test_a_ctrl_c_during_the_imports_ends_without_a_word(module: str, tmp_path: Path) -> None:
    """As if it came when that module is imported."""
    script = tmp_path / "start.py"
    script.write_text(
        "import sys\n"
        f"name = {module!r}\n"
        "class Interrupting:\n"
        "    def find_spec(self, fullname, path=None, target=None):\n"
        "        if fullname == name:\n"
        "            raise KeyboardInterrupt\n"
        "sys.modules.pop(name, None)\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "from app.__main__ import main\n"
        "sys.exit(main())\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
