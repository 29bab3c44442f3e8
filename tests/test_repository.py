"""What the repository promises about itself: its commands, its pinned files, the rooms' rules.

Knows the rules alone, and nothing of what the rooms do.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PINNED_FILES = ("requirements.txt", "requirements-dev.txt", "requirements-gpu.txt", "requirements-gpu-cu12.txt")
ROOMS = ("app", "kernels_cpu", "kernels_gpu", "models", "runtime")


def project() -> dict[str, dict]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def readme_commands(program: str) -> list[str]:
    """The lines of the README's indented blocks that call the program, from its name on."""
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    blocks = [line.strip() for line in lines if line.startswith("    ")]
    return [line[line.index(f"{program} ") :] for line in blocks if re.search(rf"(?:^|\| ){program} ", line)]


def pinned(name: str) -> dict[str, str]:
    """Each requirement of a pinned file, `numpy==2.4.6 ; marker`, with the lines that belong to it."""
    blocks: dict[str, str] = {}
    head = ""
    for line in (ROOT / name).read_text(encoding="utf-8").splitlines():
        if line and not line[0].isspace():
            head = line.rstrip("\\ ")
            blocks[head] = ""
        else:
            blocks[head] += f"{line}\n"
    return blocks


def package_name(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert match, requirement
    return re.sub(r"[-_.]+", "-", match.group()).lower()


# The two commands


def make(*arguments: str) -> str:
    """What make says it would do, also where make itself runs the tests."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command = ["make", "--dry-run", "--no-print-directory", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True).stdout


def test_readme_names_the_commands_that_the_makefile_has() -> None:
    commands = readme_commands("make")
    assert commands[:2] == ["make chat", "make test"]
    targets = re.findall(
        r"make ([a-z-]+)", (ROOT / "README.md").read_text(encoding="utf-8").replace("install make ", "")
    )
    assert {"chat", "test", "check", "help", "pins"} <= set(targets)
    for target in sorted(set(targets)):
        assert make(target)


def test_make_chat_opens_the_chat_with_the_model_that_was_named() -> None:
    set_up, chat = make("chat", "MODEL=some-model").splitlines()
    assert set_up.endswith("sh scripts/set_up.sh")
    assert chat == ".venv/bin/tandem chat some-model"


def test_readme_names_what_debian_needs() -> None:
    assert "sudo apt install make python3-venv g++" in (ROOT / "README.md").read_text(encoding="utf-8")


# Pinned files


@pytest.mark.parametrize("name", PINNED_FILES)
def test_everything_pinned_has_hashes_and_no_address(name: str) -> None:
    blocks = pinned(name)
    for requirement, rest in blocks.items():
        assert re.match(r"[a-z0-9.-]+==[0-9][^ ]*(?: ; .+)?$", requirement), requirement
        assert re.search(r"^    --hash=sha256:[0-9a-f]{64}", rest, re.MULTILINE), requirement
    text = (ROOT / name).read_text(encoding="utf-8")
    assert not re.search(r"://|--index-url|--extra-index-url|--find-links|@ ", text)


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("requirements.txt", None),
        ("requirements-dev.txt", "dev"),
        ("requirements-gpu.txt", "gpu"),
        ("requirements-gpu-cu12.txt", "gpu-cu12"),
    ],
)
def test_pinned_files_hold_what_the_project_declares(name: str, extra: str | None) -> None:
    declared = project()["project"]
    wanted = declared["dependencies"] + (declared["optional-dependencies"][extra] if extra else [])
    present = {package_name(requirement) for requirement in pinned(name)}
    assert {package_name(requirement) for requirement in wanted} <= present
    assert "setuptools" in present, "the project itself is installed without a network"


@pytest.mark.parametrize("name", PINNED_FILES[1:])
def test_pinned_files_agree_on_every_version(name: str) -> None:
    assert set(pinned("requirements.txt")) <= set(pinned(name))


def test_compiled_packages_are_pinned_for_every_platform() -> None:
    """A file for each of 3 platforms (Linux x86-64, Linux ARM, macOS ARM) and 3 versions of Python."""
    for requirement, rest in pinned("requirements.txt").items():
        if package_name(requirement) in ("numba", "llvmlite"):
            assert rest.count("--hash=sha256:") >= 9, requirement


# The rooms

VIOLATIONS = {
    "Rooms import only to the right": ("models/one.py", "import runtime"),
    "app uses runtime's public names": ("app/one.py", "import models"),
    "No command imports another": ("app/tune/one.py", "import app.bench"),
    "runtime reaches the kernel rooms only": ("runtime/one.py", "import kernels_cpu"),
    "Numba and llvmlite live in kernels_cpu": ("models/one.py", "import numba"),
    "CuPy lives in kernels_gpu": ("kernels_cpu/one.py", "import cupy"),
    "Textual lives in app.chat": ("app/one.py", "import textual.app"),
    "Command-line arguments are app's business": ("runtime/one.py", "import argparse"),
    "models starts no threads": ("models/one.py", "import threading"),
}

ALLOWED = {
    "app/cli.py": "import argparse\nimport runtime",
    "app/chat/screen.py": "import textual.app",
    "app/tune/one.py": "import app.measuring\nimport app.charts",
    "runtime/devices/cpu.py": "import kernels_cpu.one",
    "runtime/engine.py": "import models\nimport runtime.devices.cpu",
    "kernels_cpu/one.py": "import numba\nimport models",
    "kernels_gpu/one.py": "import cupy\nimport models",
}


APP_FOLDERS = ("batch", "bench", "charts", "chat", "evaluate", "measuring", "plan", "tune")


def small_house(folder: Path, files: dict[str, str]) -> None:
    """The rooms and the folders of app that rules name, with these files alone, under this repository's rules."""
    shutil.copy(ROOT / "pyproject.toml", folder)
    for room in (*ROOMS, *(f"app/{name}" for name in APP_FOLDERS)):
        (folder / room).mkdir()
        (folder / room / "__init__.py").touch()
    for name, source in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(f"{source}\n", encoding="utf-8")


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-cache"]
    environment = {**os.environ, "COLUMNS": "200", "PYTHONPATH": str(folder)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_rooms_may_do_what_is_theirs(tmp_path: Path) -> None:
    small_house(tmp_path, ALLOWED)
    done = lint_imports(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("contract", VIOLATIONS)
def test_each_contract_finds_its_violation(contract: str, tmp_path: Path) -> None:
    small_house(tmp_path, dict([VIOLATIONS[contract]]))
    done = lint_imports(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(rf"^{re.escape(contract)}.* BROKEN$", done.stdout, re.MULTILINE), done.stdout


def test_every_contract_has_its_violation() -> None:
    names = [contract["name"] for contract in project()["tool"]["importlinter"]["contracts"]]
    assert len(names) == len(VIOLATIONS)
    for name in names:
        assert any(name.startswith(start) for start in VIOLATIONS), name


def test_only_runtime_is_kept_from_the_environment(tmp_path: Path) -> None:
    source = '"""Reads."""\n\nimport os\n\nHOME = os.environ["HOME"]'
    small_house(tmp_path, {"runtime/one.py": source, "app/one.py": source})
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--select=TID251", "--output-format=concise", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert re.findall(r"^(\S+?):", done.stdout, re.MULTILINE) == [str(Path("runtime/one.py"))], done.stdout
