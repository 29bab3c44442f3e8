"""The command as a process of its own, with a tiny model: streams, statuses, signals, paths in any script."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from fake_hub import FakeHub, serve_hub
from terminal import Terminal
from tiny_models import write_tiny_model

from app.output import shown

ROOT = Path(__file__).resolve().parents[2]
COMMAND = (sys.executable, "-m", "app")
LIMIT_S = 120
MODEL = "tiny модель 小.gguf"
GREEDY = ("--temp", "0", "-n", "8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose name is hard, with a model, and an empty settings file."""
    folder = tmp_path_factory.mktemp("with space") / "Модели　模型 [x]"
    folder.mkdir()
    write_tiny_model(folder / MODEL, metadata={"llama.context_length": 100_000})
    (folder / "settings 設定.toml").touch()
    return folder


@pytest.fixture(scope="module")
def environment(folder: Path) -> dict[str, str]:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("TANDEM_", "HF_"))},
        "TANDEM_CONFIG": str(folder / "settings 設定.toml"),
        "TANDEM_MODELS_DIR": str(folder),
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": str(ROOT),
        "NO_COLOR": "1",
    }
    # Kernels that no test has compiled yet are compiled here, or an interrupt would come too early.
    assert run(environment, "generate", "-m", str(folder / MODEL), "-p", "x", "-n", "1").returncode == 0
    return environment


def run(
    environment: Mapping[str, str], *arguments: str, given: bytes = b"", cwd: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*COMMAND, *arguments], env=environment, cwd=cwd, input=given, capture_output=True, timeout=LIMIT_S, check=False
    )


def words(stderr: bytes) -> str:
    """What stands on stderr, without the progress that may stand there the first time."""
    progress = ("Compiling kernels", "Packing", "Reading")
    return "".join(line for line in stderr.decode().splitlines(True) if not line.startswith(progress))


def test_the_text_goes_to_stdout_and_nothing_else_does(folder: Path, environment: dict[str, str]) -> None:
    model = folder / MODEL
    done = run(environment, "generate", "-m", str(model), "-p", "Grüße 你好", "--json", *GREEDY)
    value = json.loads(done.stdout)
    assert (done.returncode, words(done.stderr)) == (0, "")
    assert len(value["ids"]) == value["timings"]["output_tokens"] == 8 and value["finish_reason"] == "length"
    assert b"\x1b" not in done.stdout

    (folder / "вопрос 質問.txt").write_text("Grüße 你好\n", "utf-8")
    on_stdin = "Grüße 你好\n".encode()
    for arguments, given in (
        (["-f", "вопрос 質問.txt", *GREEDY], b""),
        (["-", *GREEDY], on_stdin),
        ([*GREEDY, "-"], on_stdin),
    ):
        done = run(environment, "generate", model.name, *arguments, given=given, cwd=folder)
        assert (done.returncode, words(done.stderr)) == (0, "")
        assert b"\x1b" not in done.stdout
        assert done.stdout.decode() == shown(value["text"])


def test_no_prompt_and_no_terminal_is_a_usage_error_and_no_chat(environment: dict[str, str]) -> None:
    for arguments in ((), ("chat",), ("generate",), ("generate", "-n", "1")):
        done = run(environment, *arguments)
        assert (done.returncode, done.stdout) == (2, b"")
        assert done.stderr.startswith(b"usage: tandem") and b"Traceback" not in done.stderr


def test_faults_are_one_sentence_and_a_hint_without_a_traceback(folder: Path, environment: dict[str, str]) -> None:
    (folder / "cut\x1b[31m.gguf").write_bytes(b"GGUF\x03\0\0\0")
    for model, sentence in (
        ("none.gguf", "There is no file none.gguf"),
        (str(folder / "cut\x1b[31m.gguf"), "31m.gguf"),
    ):
        done = run(environment, "generate", "-m", model, "-p", "x")
        assert (done.returncode, done.stdout) == (1, b"")
        assert done.stderr.startswith(b"tandem: ") and sentence in done.stderr.decode()
        assert b"Traceback" not in done.stderr and b"\x1b" not in done.stderr
    done = run({**environment, "TANDEM_DEBUG": "1"}, "generate", "-m", "none.gguf", "-p", "x")
    assert done.returncode == 1 and b"Traceback" in done.stderr


@pytest.mark.parametrize("arguments", [("models", "list"), ("doctor",), ("doctor", "--json")])
def test_a_reader_that_is_gone_ends_the_command_without_a_word(
    environment: dict[str, str], arguments: tuple[str, ...]
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [*COMMAND, *arguments],
            env=environment,
            stdout=writing,
            stderr=subprocess.PIPE,
            timeout=LIMIT_S,
            check=False,
        )
    finally:
        os.close(writing)
    assert (done.returncode, words(done.stderr)) == (1, "")


def test_a_stdout_that_was_closed_is_no_crash(folder: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *COMMAND, "generate", "-m", str(folder / MODEL), "-p", "x", *GREEDY],
        env=environment,
        stderr=subprocess.PIPE,
        timeout=LIMIT_S,
        check=False,
    )
    assert (done.returncode, words(done.stderr)) == (1, "")


def endless(folder: Path) -> tuple[str, ...]:
    """A generation that goes on for minutes."""
    return ("generate", "-m", str(folder / MODEL), "-p", "x", "-c", "50000", "--temp", "0")


def test_an_interrupt_keeps_the_text_and_is_status_130(folder: Path, environment: dict[str, str]) -> None:
    process = subprocess.Popen(
        [*COMMAND, *endless(folder)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
    )
    assert process.stdout is not None
    first = process.stdout.read(20)
    process.send_signal(signal.SIGINT)
    rest, stderr = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, words(stderr)) == (130, "")
    whole = run(environment, *endless(folder), "-n", "1000").stdout
    shorter, longer = sorted((first + rest, whole), key=len)
    # Cut within a character, its bytes so far stand as U+FFFD.
    assert first and longer.startswith(shorter.removesuffix("\ufffd".encode()))


def test_an_interrupted_json_is_whole(folder: Path, environment: dict[str, str]) -> None:
    process = subprocess.Popen(
        [*COMMAND, *endless(folder), "--json", "-v"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    for line in process.stderr:
        if b"weights" in line:
            break
    time.sleep(1.0)  # an interrupt before the first token would find nothing to print
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130 and b"Traceback" not in stderr
    assert json.loads(stdout)["finish_reason"] == "cancelled"


def test_a_broken_pipe_ends_a_generation(folder: Path, environment: dict[str, str]) -> None:
    process = subprocess.Popen(
        [*COMMAND, *endless(folder)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.read(1)
    process.stdout.close()
    _, stderr = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, words(stderr)) == (1, "")


def test_on_a_terminal_the_text_stands_on_lines_of_its_own(folder: Path, environment: dict[str, str]) -> None:
    command = [*COMMAND, "generate", "-m", str(folder / MODEL), "-p", "x", *GREEDY]
    plain = run(environment, *command[len(COMMAND) :]).stdout.decode()
    with Terminal(command, environment=environment) as terminal:
        assert terminal.wait(timeout_s=LIMIT_S) == 0
        shown_words = terminal.text.split()
    assert shown_words == plain.split()


def test_a_download_shows_its_progress_and_leaves_the_line(environment: dict[str, str], tmp_path: Path) -> None:
    with serve_hub(FakeHub()) as hub:
        file = hub.add("someone/Tiny-GGUF", "Tiny-Q4_0.gguf", bytes(1_000_000))
        file.pace = (50_000, 0.05)
        online = {**environment, "HF_HUB_OFFLINE": "0", "HF_ENDPOINT": hub.address, "TANDEM_MODELS_DIR": str(tmp_path)}
        command = [*COMMAND, "models", "pull", "someone/Tiny-GGUF"]
        with Terminal(command, environment=online, columns=200) as terminal:
            terminal.wait_for(lambda text: "[##" in text and "kB of 1.0 MB" in text, "the bar", timeout_s=LIMIT_S)
            assert terminal.wait(timeout_s=LIMIT_S) == 0
            assert terminal.text.strip() == str(tmp_path / "someone" / "Tiny-GGUF" / "Tiny-Q4_0.gguf")
