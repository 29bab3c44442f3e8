"""The scripts behind the Makefile, run with stand-ins for Python, pip and the NVIDIA driver's tool.

Owns what a person sees when something is missing, and that nothing is installed twice.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ("set_up.sh", "gpu_requirements.sh")

# A Python that makes an environment whose own Python writes down what pip is asked for.
STAND_IN = """#!/bin/sh
case "$*" in
*base_prefix*) echo "{version}" ;;
*version_info*) exit {new_enough} ;;
*ensurepip*) exit {venv_missing} ;;
"-m venv --clear "*)
    echo "venv" >>"$LOG"
    mkdir -p "$4/bin"
    printf '#!/bin/sh\\n%s\\n%s\\n%s\\n' \\
        '[ "$1" = -c ] && {{ [ -z "$2" ] || echo "{version}"; exit 0; }}' \\
        'echo "$@" >>"$LOG"' 'exit ${{PIP_STATUS:-0}}' >"$4/bin/python"
    chmod +x "$4/bin/python" ;;
-V) echo "Python {version}" ;;
esac
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with what set_up.sh reads."""
    folder = tmp_path / "clone"
    (folder / "scripts").mkdir(parents=True)
    (folder / "runtime" / "devices").mkdir(parents=True)
    for name in SCRIPTS:
        shutil.copy(ROOT / "scripts" / name, folder / "scripts")
    for path in [*ROOT.glob("requirements*.txt"), ROOT / "pyproject.toml"]:
        shutil.copy(path, folder)
    return folder


def write_program(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


def stand_in(clone: Path, *, new_enough: bool = True, has_venv: bool = True, version: str = "3.12.1") -> Path:
    text = STAND_IN.format(new_enough=int(not new_enough), venv_missing=int(not has_venv), version=version)
    return write_program(clone / "tools" / "python", text)


def set_up(clone: Path, *arguments: str, **variables: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Runs set_up.sh; returns what it said and what it did since the last time (venv, pip calls)."""
    log = clone.parent / "log"
    log.write_text("", encoding="utf-8")
    environment = {**os.environ, "LOG": str(log), "GPU": "0", "VENV": ".venv", "PYTHON": "", **variables}
    command = ["sh", str(clone / "scripts" / "set_up.sh"), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done, log.read_text(encoding="utf-8").splitlines()


def installed_files(steps: list[str]) -> list[str]:
    """The pinned files of the pip calls; `.` for the project itself."""
    return [step.split()[-1] for step in steps if step.startswith("-m pip install")]


def test_first_time_installs_and_second_time_does_nothing(clone: Path) -> None:
    python = stand_in(clone)
    done, steps = set_up(clone, PYTHON=str(python))
    assert done.returncode == 0, done.stderr
    assert steps[0] == "venv"
    assert installed_files(steps) == ["requirements.txt", "."]
    assert all("--require-hashes" in step for step in steps if step.endswith("requirements.txt"))
    assert "--no-index" in steps[-1]

    done, steps = set_up(clone, PYTHON=str(python))
    assert (done.returncode, done.stdout, steps) == (0, "", [])


def test_dev_adds_its_file_and_the_other_is_then_satisfied(clone: Path) -> None:
    python = stand_in(clone)
    assert installed_files(set_up(clone, "dev", PYTHON=str(python))[1]) == ["requirements-dev.txt", "."]
    assert set_up(clone, PYTHON=str(python))[1] == []
    assert set_up(clone, "dev", PYTHON=str(python))[1] == []


@pytest.mark.parametrize(
    ("changed", "installed"),
    [("requirements.txt", ["requirements.txt"]), ("pyproject.toml", ["."]), ("requirements-dev.txt", [])],
)
def test_only_what_changed_is_installed_again(changed: str, installed: list[str], clone: Path) -> None:
    python = stand_in(clone)
    set_up(clone, PYTHON=str(python))
    with (clone / changed).open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    assert installed_files(set_up(clone, PYTHON=str(python))[1]) == installed


def test_an_installation_that_failed_is_tried_again(clone: Path) -> None:
    python = stand_in(clone)
    done, _ = set_up(clone, PYTHON=str(python), PIP_STATUS="1")
    assert done.returncode == 1
    assert "could not be installed" in done.stderr
    assert "Run the same command again" in done.stderr
    done, steps = set_up(clone, PYTHON=str(python))
    assert done.returncode == 0
    assert installed_files(steps) == ["requirements.txt", "."]


def test_a_clone_that_was_moved_gets_a_new_environment(clone: Path) -> None:
    set_up(clone, PYTHON=str(stand_in(clone)))
    moved = clone.rename(clone.parent / "elsewhere")
    done, steps = set_up(moved, PYTHON=str(moved / "tools" / "python"))
    assert done.returncode == 0, done.stderr
    assert steps[0] == "venv"


def test_an_environment_without_its_python_is_made_anew(clone: Path) -> None:
    python = stand_in(clone)
    set_up(clone, PYTHON=str(python))
    (clone / ".venv" / "bin" / "python").unlink()
    assert set_up(clone, PYTHON=str(python))[1][0] == "venv"


def test_another_python_that_is_asked_for_gets_a_new_environment(clone: Path) -> None:
    set_up(clone, PYTHON=str(stand_in(clone, version="3.12.1")))
    python = stand_in(clone, version="3.13.0")
    assert set_up(clone)[1] == []
    assert set_up(clone, PYTHON=str(python))[1][0] == "venv"


def test_an_old_python_is_named_with_what_to_do(clone: Path) -> None:
    python = stand_in(clone, new_enough=False, version="3.9.2")
    done, steps = set_up(clone, PYTHON=str(python))
    assert (done.returncode, steps) == (1, [])
    assert f"Tandem needs Python 3.11 or newer; {python} is Python 3.9.2." in done.stderr
    assert not (clone / ".venv").exists()


def test_a_missing_python_is_named(clone: Path) -> None:
    done, _ = set_up(clone, PYTHON=str(clone / "no-such-python"))
    assert done.returncode == 1
    assert "no-such-python is missing." in done.stderr


def test_a_missing_venv_module_names_debians_package(clone: Path) -> None:
    done, steps = set_up(clone, PYTHON=str(stand_in(clone, has_venv=False)))
    assert (done.returncode, steps) == (1, [])
    assert "venv module is missing" in done.stderr
    assert "sudo apt install python3-venv" in done.stderr


# The graphics card


def gpu_requirements(clone: Path, answer: str | None, **variables: str) -> str:
    """What the script says when the driver's tool gives this answer; None: the tool fails, as without a driver."""
    text = "#!/bin/sh\nexit 9\n" if answer is None else f"#!/bin/sh\nprintf '{answer}'\n"
    tool = write_program(clone / "tools" / "nvidia-smi", text)
    environment = {**os.environ, "PATH": f"{tool.parent}:{os.environ['PATH']}", "GPU": "", **variables}
    command = ["sh", str(clone / "scripts" / "gpu_requirements.sh")]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize(
    ("answer", "name"),
    [
        ("580.65.06, 8.6\\n", "requirements-gpu.txt"),
        ("610.10, 12.0\\n", "requirements-gpu.txt"),
        ("535.104.05, 8.9\\n", "requirements-gpu-cu12.txt"),
        ("580.65.06, 6.1\\n", "requirements-gpu-cu12.txt"),
        ("580.65.06, 8.6\\n580.65.06, 6.1\\n", "requirements-gpu-cu12.txt"),
    ],
)
def test_the_driver_and_the_card_choose_the_pinned_file(answer: str, name: str, clone: Path) -> None:
    assert gpu_requirements(clone, answer) == name
    assert gpu_requirements(clone, answer, GPU="0") == ""
    assert (clone / name).exists()


def test_the_chosen_file_is_installed_once(clone: Path) -> None:
    tool = write_program(clone / "tools" / "nvidia-smi", "#!/bin/sh\necho '580.65.06, 8.6'\n")
    variables = {"PYTHON": str(stand_in(clone)), "GPU": "", "PATH": f"{tool.parent}:{os.environ['PATH']}"}
    assert installed_files(set_up(clone, **variables)[1]) == ["requirements.txt", "requirements-gpu.txt", "."]
    assert set_up(clone, **variables)[1] == []


# What is built


def test_the_wheel_holds_the_five_rooms_and_their_data(tmp_path: Path) -> None:
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    for name in set(names):
        if (ROOT / name).is_file() and not name.startswith("tests/"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "kernels_gpu" / "sources").mkdir(exist_ok=True)
    (tmp_path / "kernels_gpu" / "sources" / "trial.cu").touch()
    build = "from setuptools import build_meta; print(build_meta.build_wheel('out'))"
    subprocess.run([sys.executable, "-c", build], cwd=tmp_path, check=True, capture_output=True)
    (wheel,) = (tmp_path / "out").glob("tandem_llm-*-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        present = set(archive.namelist())
    rooms = ("app/", "kernels_cpu/", "kernels_gpu/", "models/", "runtime/")
    wanted = {name for name in names if name.startswith(rooms) and name.endswith((".py", ".tcss", ".cu", ".cuh", ".h"))}
    wanted = {name for name in wanted if (ROOT / name).is_file()}
    assert wanted | {"kernels_gpu/sources/trial.cu"} <= present
    assert {name.split("/")[0] for name in present if ".dist-info" not in name} == {room.rstrip("/") for room in rooms}
