"""The grammar of the command line, in this process."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from command_line import run_tandem
from streams import Terminal

import app.chat
import app.commands
from app.chat import ChatOptions
from app.preferences import Preferences
from app.runtime_options import engine_options


@pytest.fixture(autouse=True)
def no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "settings.toml").touch()
    monkeypatch.setenv("TANDEM_CONFIG", str(tmp_path / "settings.toml"))


def run(
    monkeypatch: pytest.MonkeyPatch,
    *arguments: str,
    stdin: io.StringIO | None = None,
    stdout: io.StringIO | None = None,
) -> tuple[int, str, str]:
    """Status, stdout and stderr of a command line."""
    out = stdout or io.StringIO()
    monkeypatch.setattr("sys.stdin", stdin or io.StringIO())
    monkeypatch.setattr("sys.stdout", out)
    return run_tandem(*arguments, stdout=out)


@pytest.mark.parametrize("arguments", [(), ("chat",), ("-m", "x"), ("chat", "x", "--temp", "0")])
def test_the_chat_without_a_terminal_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setattr(app.chat, "run", lambda _: pytest.fail("no chat may start"))
    for stdin, stdout in ((io.StringIO(), Terminal()), (Terminal(), io.StringIO())):
        status, _, stderr = run(monkeypatch, *arguments, stdin=stdin, stdout=stdout)
        assert status == 2
        assert "The chat needs a terminal" in stderr and "tandem generate -p" in stderr


@pytest.mark.parametrize(
    ("arguments", "model"),
    [((), None), (("-m", "x"), "x"), (("chat", "x"), "x"), (("chat", "--model", "x"), "x")],
)
def test_plain_tandem_is_the_chat(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], model: str | None
) -> None:
    asked: list[ChatOptions] = []
    monkeypatch.setattr(app.chat, "run", lambda options: asked.append(options) or 0)
    monkeypatch.setenv("TANDEM_MODELS_DIR", "/модели")
    more = ("--offline", "--system", "s", "-c", "64", "--temp", "0.5", "-n", "9")
    status, stdout, stderr = run(monkeypatch, *arguments, *more, stdin=Terminal(), stdout=Terminal())
    assert (status, stdout, stderr) == (0, "", "")
    (options,) = asked
    chosen = options.preferences
    assert (chosen.model, chosen.offline, chosen.system) == (model, True, "s")
    assert chosen.ctx_size == 64 and options.models_folder == Path("/модели")
    assert (chosen.temp, chosen.predict) == (0.5, 9)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("generate", "-p", "x", "--ctx", "5"), "did you mean --ctx-size? Flags can't be abbreviated."),
        (("generate", "-p", "x", "--prom", "5"), "did you mean --prompt"),
        (("generate", "-p", "x", "--warmth", "5"), "There is no --warmth here."),
        (("generate", "-p", "x", "--json-scheme", "5"), "did you mean --json-schema"),
        (("generate", "-p", "x", "-n", "many"), "'many' is no whole number"),
        (("generate", "-p", "x", "--temp", "hot"), "'hot' is no number"),
        (("generate", "--prompt-ids", "1,x"), "is no list of token ids such as 1,2,3"),
        (("generate", "--prompt-ids", ""), "is no list of token ids such as 1,2,3"),
        (("generate", "--prompt-ids=-5"), "is no list of token ids such as 1,2,3"),
        (("generate", "-p"), "expected one argument"),
        (("generate", "-p", "-hello"), "a value that begins with - is written --prompt=-..."),
        (("generate", "-p", "x", "--dynatemp-exp", "-1e9"), "is written --dynatemp-exp=-..."),
        (("generate", "-p", "x", "--format", "xml"), "invalid choice: 'xml'"),
        (("banch",), "There is no `tandem banch`: it knows chat, generate, bench"),
        (("banch",), "did you mean `tandem bench`?"),
        (("generat",), "did you mean `tandem generate`?"),
        (("run", "smollm2-135m"), "did you mean `tandem chat`?"),
        (("pull", "smollm2-135m"), "did you mean `tandem models pull`?"),
        (("models", "rm", "x"), "did you mean `tandem models remove`?"),
        (("models", "lst"), "did you mean `tandem models list`?"),
        (("qwzx",), "`tandem --help` says what they do."),
        (("models",), "ACTION"),
        (("models", "pull"), "MODEL"),
        (("models", "list", "x"), "'x' is one word too many."),
        (("generate", "a", "-n", "1", "b", "-p", "x"), "One model is enough, and a and b were given."),
        (("doctor", "--jsn"), "did you mean --json"),
        (("--verison",), "did you mean `tandem --version`?"),
        (("--temprature", "1"), "did you mean --temperature?"),
        (("--jsonl", "x"), "did you mean `tandem generate --jsonl`?"),
        (("chat", "--compare", "a", "b"), "did you mean `tandem bench --compare`?"),
        (("--doctor",), "did you mean `tandem doctor`?"),
        (("--remove", "x"), "did you mean `tandem models remove`?"),
        (("doctor", "-v"), "did you mean `tandem generate -v`"),
        (("chat", "-y"), "`tandem chat --help` shows every flag."),
    ],
)
def test_what_does_not_exist_is_refused_with_status_2(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], sentence: str
) -> None:
    status, stdout, stderr = run(monkeypatch, *arguments)
    assert (status, stdout) == (2, "")
    assert sentence in stderr
    assert stderr.startswith("usage: tandem")


@pytest.mark.parametrize("command", ["", "chat", "generate", "bench", "models", "models pull", "doctor"])
def test_help_tells_every_flag_on_stdout(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    status, stdout, stderr = run(monkeypatch, *command.split(), "--help")
    assert (status, stderr) == (0, "")
    assert stdout.startswith("usage: tandem")
    if command in ("chat", "generate"):
        for flag in (
            *("--model", "--ctx-size", "--predict", "--threads", "--batch-size", "--cache-type-k", "--cache-type-v"),
            *("--seed", "--temp", "--top-k", "--top-p", "--min-p", "--repeat-penalty", "--presence-penalty"),
            *("--frequency-penalty", "--stop", "--activations", "--isa", "--system", "--offline"),
        ):
            assert f"{flag} " in stdout or f"{flag}\n" in stdout, flag


def test_a_warning_about_the_settings_stands_on_stderr_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text("tempo = 1")
    status, stdout, stderr = run(monkeypatch, "models", "list")
    assert status == 0
    assert stderr.count("warning:") == 1 and "'tempo' (did you mean temp?)" in stderr
    assert "tempo" not in stdout


def test_a_damaged_settings_file_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text("tempo")
    status, stdout, stderr = run(monkeypatch, "models", "list")
    assert (status, stdout) == (1, "")
    assert stderr.startswith("tandem: The settings file") and "hint: " in stderr


def test_an_interrupt_is_status_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("app.models_command.list_models", interrupted)
    assert run(monkeypatch, "models", "list")[0] == 130


@pytest.mark.parametrize("flag", ("-ngl", "--gpu-layers", "--n-gpu-layers"))
def test_layers_on_a_gpu_are_a_number_all_or_auto(monkeypatch: pytest.MonkeyPatch, flag: str) -> None:
    status, out, err = run(monkeypatch, "generate", "-p", "Hi", flag, "some")
    assert (status, out) == (2, "")
    assert "(--gpu-layers) is 'some'; expected a whole number from 0 to 65536, auto or all." in err
    for text, expected in (("4", 4), ("0", 0), ("all", "all"), (None, "auto")):
        assert engine_options(Preferences(gpu_layers=text)).gpu_layers == expected
    assert engine_options(Preferences(vram_margin=3)).vram_margin_bytes == 3 << 20


def test_an_unknown_device_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    status, out, err = run(monkeypatch, "bench", "--device", "tpu")
    assert (status, out) == (2, "")
    assert "--device" in err and "auto, cpu, gpu" in err


def test_doctor_runs_beside_damaged_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text("threads = = 3\n")
    status, out, err = run(monkeypatch, "doctor")
    assert status == 0 and "settings" in out
    assert "settings.toml" in err


def test_the_last_conversation_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[ChatOptions] = []
    monkeypatch.setattr(app.chat, "run", lambda options: seen.append(options) or 0)
    monkeypatch.setattr(app.commands, "_is_terminal", lambda stream: True)
    assert run(monkeypatch, "chat", "--continue", stdout=Terminal())[0] == 0
    assert run(monkeypatch, "-p", "Hello, you", stdout=Terminal())[0] == 0
    assert [options.continue_last for options in seen] == [True, False]
    assert [options.first_message for options in seen] == ["", "Hello, you"]
