"""`tandem eval` from the command line on: streams, formats, the plot, statuses, Ctrl-C, and what is refused."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from command_line import run_tandem

import app.cli
import app.evaluate.command
from app.evaluate.command import run
from runtime.devices.binding import DeviceMemory
from runtime.evaluation.plans import EvaluationPlan
from runtime.evaluation.results import Choice, Parting, Results, Row, Setting, Speed
from runtime.evaluation.summaries import divergence_of, perplexity_of

SPEED = Speed(prompt_tokens=992, prefill_tokens_per_s=400.0, decode_tokens_per_s=50.0)
CHOICE = Choice(token_id=5, text=" red", continuation=" red|\nnow", probability=0.6, of_other=0.2)
PARTINGS = (
    Parting(prompt="Why?", num_tokens=9, place=3, shared_text="It is", own=CHOICE, reference=None),
    Parting(prompt="How?", num_tokens=9, place=None, shared_text="So"),
)


def setting(cache_type_k: str = "f16", activations: str = "balanced") -> Setting:
    return Setting(
        model="A model",
        model_file="a model.gguf",
        model_fingerprint="0",
        model_size_bytes=1000,
        formats=("Q4_K", "F32"),
        cache_type_k=cache_type_k,
        cache_type_v="f16",
        activations=activations,
        threads=2,
        context_size=1025,
    )


def row(cache_type_k: str = "f16", **fields: Any) -> Row:
    memory = DeviceMemory(weights_bytes=96_000_000, kv_bytes=47_000_000, workspace_bytes=1)
    given = {
        "perplexity": perplexity_of([2.0, 3.0, 4.0]),
        "reference_perplexity": perplexity_of([2.0, 3.0, 3.9]),
        "divergence": divergence_of([0.001, 0.0, 0.25], [True, True, False]),
        "speed": SPEED,
    }
    return Row(setting=setting(cache_type_k), memory=memory, **{**given, **fields})


def results(*rows: Row) -> Results:
    return Results(
        window=1024, stride=512, num_tokens=4, start_token=None, reference=setting(activations="exact"), rows=rows
    )


class PlaybackSession:
    """Says that it found these results; `during` is called in the measuring thread."""

    def __init__(self, found: Results, during: Callable[[PlaybackSession], None] | None = None) -> None:
        self.found, self.during = found, during
        self.plans: list[EvaluationPlan] = []
        self.paths: list[tuple[Path, Path | None]] = []
        self.stopped = threading.Event()

    def __call__(self, plan: EvaluationPlan, listener: Any) -> PlaybackSession:
        self.plans.append(plan)
        self._listener = listener
        return self

    def run(self, path: Path, reference_path: Path | None) -> None:
        self.paths.append((path, reference_path))
        self._listener.loading("a model", "weights", 1, 2)
        self._listener.reading("a model", 1, 3)
        self._listener.noted("A note.")
        self._listener.noted("A note.")
        if self.during is not None:
            self.during(self)

    def stop(self) -> None:
        self.stopped.set()

    def results(self) -> Results:
        return self.found


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "settings.toml").touch()
    (tmp_path / "a model.gguf").touch()
    (tmp_path / "text.txt").write_text("Grüße, world", "utf-8")
    (tmp_path / "prompts.txt").write_text("Why?\nHow?\n", "utf-8")
    monkeypatch.setenv("TANDEM_CONFIG", str(tmp_path / "settings.toml"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(
    monkeypatch: pytest.MonkeyPatch, *arguments: str, session: PlaybackSession | None = None
) -> tuple[int, str, str]:
    """Status, stdout and stderr of `tandem eval "a model.gguf"`."""
    played = session or PlaybackSession(results(row()))
    monkeypatch.setattr(
        app.evaluate.command,
        "run",
        lambda request, console: run(request, console, make_session=played),  # type: ignore[arg-type]
    )
    return run_tandem("eval", "./a model.gguf", *arguments)


def test_the_table_is_all_that_reaches_stdout(monkeypatch: pytest.MonkeyPatch) -> None:
    session = PlaybackSession(results(row(), row("q4_0", partings=PARTINGS)))
    arguments = ("--text", "text.txt", "-ctk", "f16,q4_0", "-ctk", "f16", "--stride", "100", "--prompts", "prompts.txt")
    status, out, err = command(monkeypatch, *arguments, session=session)
    assert status == 0 and err.count("note: A note.") == 1 and "Model" not in err
    assert (
        out.startswith("Model a model, activations balanced\n\n| K/V ")
        and "20.0855" in out
        and "1.0339 x" in out
        and "0.0837" in out
    )
    assert "66.67 %" in out and "q4_0/f16" in out and "stride 512, no start token" in out
    assert "1 of 2 greedy answers part" in out and " red\\|⏎now (60 %; the reference 20 %)" in out and "(ends)" in out
    (plan,) = session.plans
    assert plan.text == "Grüße, world" and plan.stride == 100 and plan.prompts == ("Why?", "How?")
    assert plan.cache_types_k == ("f16", "q4_0") and plan.cache_types_v == ("f16",)
    assert plan.load.speculation.is_off


def test_a_table_fits_a_terminal_of_100_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    far = divergence_of([0.000123, 0.0, 12.25], [True, True, False])
    rows = [row(cache_type, divergence=far) for cache_type in ("f16", "q8_0", "q4_0")]
    rows += [replace(rows[0], setting=setting(activations="exact"))]
    _, out, _ = command(monkeypatch, "--text", "text.txt", session=PlaybackSession(results(*rows)))
    table = [line for line in out.splitlines() if line.startswith("|")]
    assert max(map(len, table)) <= 100
    heads = [line.split() for line in table if "K/V" in line]
    assert len(heads) == 2 and "perplexity" in heads[0] and "decode" in heads[1]
    assert [line.split()[1] for line in table].count("q4_0/f16") == 2
    _, out, _ = command(monkeypatch, "--text", "text.txt", session=PlaybackSession(results(rows[0], rows[1])))
    assert [line for line in out.splitlines() if line.startswith("Model ")] == ["Model a model, activations balanced"]


def test_answers_alone_have_no_word_of_divergences(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = row(perplexity=None, reference_perplexity=None, divergence=None, partings=PARTINGS)
    arguments = ("--prompts", "prompts.txt", "--reference", "./a model.gguf")
    _, out, _ = command(monkeypatch, *arguments, session=PlaybackSession(results(answered)))
    assert "- reference: a model" in out and "1 of 2 greedy answers part" in out
    assert not any(word in out for word in ("KL", "perplexity", "- text"))


def test_json_holds_every_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    session = PlaybackSession(results(row(partings=PARTINGS)))
    status, out, _ = command(
        monkeypatch, "--text", "text.txt", "--reference", "./a model.gguf", "--format", "json", session=session
    )
    value = json.loads(out)
    assert status == 0 and session.paths[0][1] is not None
    (found,) = value["rows"]
    assert found["divergence"]["mean"] == pytest.approx(0.251 / 3) and found["divergence"]["worst_position"] == 2
    assert found["perplexity"]["num_tokens"] == 3 and found["setting"]["cache_type_k"] == "f16"
    assert found["memory"]["kv_bytes"] == 47_000_000 and found["speed"]["decode_tokens_per_s"] == 50.0
    assert found["partings"][0]["own"]["probability"] == 0.6 and found["partings"][1]["place"] is None
    assert value["reference"]["activations"] == "exact" and value["environment"]["options"]["text"] == "text.txt"


def test_the_plot_is_an_svg_with_a_bar_for_each_row(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    zero = row("q8_0", divergence=divergence_of([0.0, 0.0], [True, True]))
    session = PlaybackSession(results(row(), zero))
    status, _, _ = command(monkeypatch, "--text", "text.txt", "--plot", "out.svg", session=session)
    assert status == 0
    texts = [node.text for node in ElementTree.parse(folder / "out.svg").iter() if node.tag.endswith("text")]
    assert texts.count("q8_0/f16") == 6 and "0.0837" in texts and "47.0" in texts and "0" in texts


def test_a_plot_of_nothing_but_noughts_has_no_panel_for_them(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    zero = row(divergence=divergence_of([0.0], [True]))
    command(monkeypatch, "--text", "text.txt", "--plot", "out.svg", session=PlaybackSession(results(zero)))
    assert "Mean KL" not in (folder / "out.svg").read_text("utf-8")


def test_ctrl_c_prints_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(session: PlaybackSession) -> None:
        signal.raise_signal(signal.SIGINT)
        assert session.stopped.wait(20)

    session = PlaybackSession(results(row(is_complete=False, speed=None)), during=interrupt)
    status, out, _ = command(monkeypatch, "--text", "text.txt", session=session)
    assert status == 130 and "stopped after 3 tokens" in out and "- memory: a KV cache for 1025 tokens" in out


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "nothing to measure"),
        (("--prompts", "prompts.txt"), "nothing to compare with"),
        (("--text", "text.txt", "--plot", "out.gif"), "ends in neither .svg nor .png"),
        (("--text", "text.txt", "--plot", "none/out.svg"), "there is no folder none"),
        (("--text", "text.txt", "--window", "8", "--stride", "9"), "at most the window, 8 tokens"),
        (("--text", "text.txt", "-c", "4096"), "--window N says how many"),
        (("--text", "text.txt", "-ctk", "f17"), "f17"),
        (("--text", "text.txt", "--window", "1"), "--window"),
        (("--text", "text.txt", "--tokens", "x"), "'x' is no whole number"),
    ],
)
def test_what_does_not_fit_is_a_wrong_command_line(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], expected: str
) -> None:
    status, out, err = command(monkeypatch, *arguments)
    assert status == 2 and out == "" and expected in err


def test_texts_that_can_not_be_read_are_told(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    (folder / "bytes").write_bytes(b"ab\xff")
    assert "byte 2 is 0xff" in command(monkeypatch, "--text", "bytes")[2]
    status, _, err = command(monkeypatch, "--text", "missing.txt")
    assert status == 1 and "missing.txt can't be read" in err


def test_help_says_how_windows_are_cut(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.cli.main(["eval", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "A token counts once, in the first window that holds it" in text and "in nats" in text
