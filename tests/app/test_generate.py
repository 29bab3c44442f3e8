"""`tandem generate` with an engine that plays back: what reaches stdout, what stderr, and which status comes back."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from command_line import run_tandem
from streams import Terminal

import app.generate
from app.errors import OutputClosedError
from app.generate import GenerateRequest
from app.output import Console
from app.preferences import Preferences
from runtime.generation import Chunk, Completion, FinishReason, Generation
from runtime.options import EngineOptions, GenerateOptions
from runtime.timings import Timings

TIMINGS = Timings(
    prompt_tokens=3,
    reused_tokens=1,
    output_tokens=2,
    hit_rate=1 / 3,
    queue_s=0.0,
    ttft_s=0.25,
    prefill_tokens_per_s=80.0,
    decode_tokens_per_s=12.5,
    inter_token_p50_ms=80.0,
    inter_token_p95_ms=81.0,
    inter_token_p99_ms=82.0,
    total_s=0.5,
)


@dataclass
class PlaybackEngine:
    """Gives `texts` one by one; an exception among them is raised in the reader's thread, as an interrupt is."""

    texts: Sequence[str | BaseException] = ("Hel", "lo")
    finish_reason: FinishReason = "stop"
    notes: tuple[str, ...] = ()
    answer_notes: tuple[str, ...] = ()
    logprobs: tuple[Any, ...] = ()
    prompt_logprobs: tuple[Any, ...] = ()
    prompts: list[Any] = field(default_factory=list)
    loads: list[tuple[Path, EngineOptions]] = field(default_factory=list)
    generate_options: list[GenerateOptions] = field(default_factory=list)
    description: Any = None
    is_closed: bool = False
    was_cancelled: bool = False

    def load(self, path: Path, options: EngineOptions, console: Console, *, verbose: bool) -> PlaybackEngine:
        self.loads.append((path, options))
        return self

    def generate(self, prompt: Any, options: GenerateOptions) -> Generation:
        self.prompts.append(prompt)
        self.generate_options.append(options)
        generation = _Playback(self)
        if options.on_prefill is not None:
            options.on_prefill(3, 3)
        return generation

    def close(self) -> None:
        self.is_closed = True


class _Playback(Generation):
    def __init__(self, engine: PlaybackEngine) -> None:
        super().__init__(
            prompt_ids=(1, 2, 3), notes=engine.answer_notes, seed=7, starts_in_thinking=False, cancel=self._stop
        )
        self._engine = engine
        self._rest = list(engine.texts)

    def _stop(self) -> None:
        self._engine.was_cancelled = True

    def __iter__(self) -> Iterator[Chunk]:
        while self._rest:
            text = self._rest.pop(0)
            if isinstance(text, BaseException):
                raise text
            yield Chunk(text=text, token_ids=(len(text),))
        engine = self._engine
        self.finish(
            Completion(
                text="".join(text for text in engine.texts if isinstance(text, str)),
                ids=(3, 2),
                prompt_ids=(1, 2, 3),
                finish_reason="cancelled" if engine.was_cancelled else engine.finish_reason,
                stop_text=None,
                timings=TIMINGS,
                logprobs=engine.logprobs,
                prompt_logprobs=engine.prompt_logprobs,
                notes=engine.answer_notes,
                seed=7,
            )
        )


@dataclass
class Outcome:
    status: int
    stdout: str
    stderr: str
    engine: PlaybackEngine


Generate = Callable[..., Outcome]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "模型 model.gguf"
    path.write_bytes(b"GGUF")
    return path


@pytest.fixture
def generate(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generate:
    """Run `tandem generate` in this process."""
    (tmp_path / "settings.toml").touch()
    monkeypatch.setenv("TANDEM_CONFIG", str(tmp_path / "settings.toml"))

    def run(*arguments: str, engine: PlaybackEngine | None = None, stdout: io.StringIO | None = None) -> Outcome:
        engine = engine or PlaybackEngine()
        real_run = app.generate.run
        monkeypatch.setattr(app.generate, "run", lambda *given: real_run(*given, load=engine.load))
        try:
            status, out, err = run_tandem("generate", "-m", model, *arguments, stdout=stdout)
        finally:
            monkeypatch.setattr(app.generate, "run", real_run)
        return Outcome(status=status, stdout=out, stderr=err, engine=engine)

    return run


def test_stdout_holds_the_text_and_nothing_else(generate: Generate, model: Path) -> None:
    outcome = generate("-p", "Hi")
    assert (outcome.status, outcome.stdout, outcome.stderr) == (0, "Hello", "")
    assert outcome.engine.prompts == ["Hi"]
    assert outcome.engine.loads[0][0] == model
    assert outcome.engine.is_closed


def test_on_a_terminal_the_text_ends_with_a_line_end(generate: Generate) -> None:
    assert generate("-p", "Hi", stdout=Terminal()).stdout == "Hello\n"
    assert generate("-p", "Hi", stdout=Terminal(), engine=PlaybackEngine(texts=["Hi\n", ""])).stdout == "Hi\n"


def test_control_characters_of_the_answer_are_shown_and_not_sent(generate: Generate) -> None:
    engine = PlaybackEngine(texts=["a\x1b[2J\x07", "b\tc\r\n\x9b1m\x00"])
    for stdout in (io.StringIO(), Terminal()):
        outcome = generate("-p", "Hi", engine=replace(engine), stdout=stdout)
        assert outcome.stdout == "a␛[2J␇b\tc\r\n\\x9b1m␀" + ("\n" if stdout.isatty() else "")


def test_json_is_one_object_with_the_names_that_scripts_rely_on(generate: Generate) -> None:
    outcome = generate("-p", "Hi", "--json", engine=PlaybackEngine(texts=["a\x1b", "é"], answer_notes=("folded",)))
    value = json.loads(outcome.stdout)
    assert outcome.stdout.count("\n") == 1 and "\x1b" not in outcome.stdout
    assert (value["text"], value["ids"], value["prompt_ids"]) == ("a\x1bé", [3, 2], [1, 2, 3])
    assert (value["finish_reason"], value["seed"], value["speculation"]) == ("stop", 7, None)
    assert value["notes"] == ["folded"]
    assert value["timings"]["decode_tokens_per_s"] == 12.5
    assert "logprobs" not in value and "prompt_logprobs" not in value
    endings = ("_s", "_ms", "tokens", "rate")
    assert all(name.endswith(endings) for name in value["timings"])


def test_logprobs_stand_in_the_json_object(generate: Generate) -> None:
    engine = PlaybackEngine(logprobs=(((5, -0.1), (6, -2.5)),), prompt_logprobs=(((7, -1.0),),))
    outcome = generate("-p", "Hi", "--json", "--logprobs", "2", "--prompt-logprobs", "1", engine=engine)
    value = json.loads(outcome.stdout)
    assert value["logprobs"] == [[[5, -0.1], [6, -2.5]]]
    assert value["prompt_logprobs"] == [[[7, -1.0]]]
    options = outcome.engine.generate_options[0]
    assert (options.logprobs, options.prompt_logprobs) == (2, 1)


def test_flags_reach_the_engine(generate: Generate) -> None:
    outcome = generate(
        *("-p", "Hi", "-n", "5", "-s", "9", "--temp", "0", "--top-k", "3", "--top-p", "0.5", "--min-p", "0.1"),
        *("--repeat-penalty", "1.5", "--presence-penalty", "0.25", "--frequency-penalty", "-0.5", "--raw"),
        *("--stop", "END", "--stop", "\n", "-c", "256", "-t", "1", "-b", "64", "--activations", "exact"),
        *("--isa", "portable", "-ctk", "f16", "--cache-type-v", "f16"),
    )
    assert outcome.status == 0
    loaded = outcome.engine.loads[0][1]
    assert (loaded.context_size, loaded.threads, loaded.batch_size) == (256, 1, 64)
    assert (loaded.activations, loaded.isa) == ("exact", "portable")
    options = outcome.engine.generate_options[0]
    sampling = options.sampling
    assert (options.max_tokens, options.stop, options.raw) == (5, ("END", "\n"), True)
    assert (sampling.seed, sampling.temperature, sampling.top_k, sampling.top_p) == (9, 0.0, 3, 0.5)
    assert (sampling.min_p, sampling.repeat_penalty) == (0.1, 1.5)
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (0.25, -0.5)


def test_minus_one_means_no_limit_and_any_seed(generate: Generate) -> None:
    options = generate("-p", "Hi", "-n", "-1", "-s", "-1").engine.generate_options[0]
    assert options.max_tokens is None and options.sampling.seed is None


def test_minus_one_means_all_that_was_said(generate: Generate) -> None:
    sampling = (
        generate("-p", "Hi", "--repeat-last-n", "-1", "--repeat-penalty", "1.1").engine.generate_options[0].sampling
    )
    assert sampling.has_penalties and sampling.repeat_window > 2**24
    assert generate("-p", "Hi", "--repeat-last-n", "-2").status == 2


def test_a_margin_is_refused_in_the_words_of_the_flag(generate: Generate) -> None:
    outcome = generate("-p", "Hi", "--vram-margin", "-1")
    assert outcome.status == 2 and "--vram-margin is -1; expected a number of MiB" in outcome.stderr


def test_a_system_text_stands_before_the_prompt(generate: Generate) -> None:
    (messages,) = generate("-p", "Hi", "--system", "Be kind").engine.prompts
    assert [(message.role, message.content) for message in messages] == [("system", "Be kind"), ("user", "Hi")]


def test_prompt_ids_reach_the_engine_as_they_are(generate: Generate) -> None:
    assert generate("--prompt-ids", "1,2, 30").engine.prompts == [(1, 2, 30)]


@pytest.mark.parametrize("name", ["prompt.txt", "с пробелом.txt", "質問　ファイル.txt"])
def test_a_file_is_read_without_its_last_line_end_and_with_any_bytes(
    generate: Generate, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_bytes("Grüße\n\xff\n\n".encode("utf-8", "surrogateescape") + b"\xff\n")
    (prompt,) = generate("-f", str(tmp_path / name)).engine.prompts
    assert prompt == "Grüße\n\xff\n\n\udcff"


def test_stdin_is_read_when_it_is_asked_for(generate: Generate, monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments in (["-"], ["-f", "-"]):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("日本\n".encode())))
        assert generate(*arguments).engine.prompts == ["日本"]


def test_a_missing_prompt_file_is_one_sentence(generate: Generate, tmp_path: Path) -> None:
    outcome = generate("-f", str(tmp_path / "none.txt"))
    assert (outcome.status, outcome.stdout) == (1, "")
    assert (
        outcome.stderr == f"tandem: The prompt file {tmp_path / 'none.txt'} can't be read: No such file or directory.\n"
    )
    assert outcome.engine.loads == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "One prompt is needed, and none was given"),
        (["-p", "a", "-f", "b"], "-p and -f were given"),
        (["-", "--prompt-ids", "1"], "`-` and --prompt-ids were given"),
        (["-p", "a", "other"], "One model is enough"),
        (["-p", "a", "--logprobs", "3"], "--json prints"),
        (["-p", "a", "--raw", "--system", "b"], "--system needs the chat template, which --raw leaves out"),
        (["--prompt-ids", "1", "--system", "b"], "which --prompt-ids leaves out"),
        (["-p", "a", "--temp", "nan"], "--temp"),
        (["-p", "a", "--temp", "-1"], "--temp"),
        (["-p", "a", "--temp", "inf"], "--temp"),
        (["-p", "a", "--top-p", "1.5"], "--top-p"),
        (["-p", "a", "--top-k", "-1"], "--top-k"),
        (["-p", "a", "-c", "0"], "--ctx-size"),
        (["-p", "a", "-n", "-2"], "--predict"),
        (["-p", "a", "-ctk", "q2_0"], "--cache-type-k"),
        (["-p", "a", "--isa", "sse"], "--isa"),
        (["-p", "a", "--stop", ""], "--stop"),
        (["-p", "a", "--json", "--logprobs", "-1"], "--logprobs"),
    ],
)
def test_what_does_not_fit_is_a_usage_error_before_anything_is_loaded(
    generate: Generate, arguments: list[str], sentence: str
) -> None:
    outcome = generate(*arguments)
    assert (outcome.status, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith("usage: tandem generate")
    assert sentence in outcome.stderr
    assert outcome.engine.loads == []


def test_an_interrupt_keeps_the_partial_text(generate: Generate) -> None:
    outcome = generate("-p", "Hi", engine=PlaybackEngine(texts=["Hel", KeyboardInterrupt(), "lo"]))
    assert (outcome.status, outcome.stdout) == (130, "Hello")
    assert outcome.engine.was_cancelled and outcome.engine.is_closed


def test_an_interrupt_leaves_a_whole_json_object(generate: Generate) -> None:
    outcome = generate("-p", "Hi", "--json", engine=PlaybackEngine(texts=["Hel", KeyboardInterrupt()]))
    assert outcome.status == 130
    assert json.loads(outcome.stdout)["text"] == "Hel"
    assert json.loads(outcome.stdout)["finish_reason"] == "cancelled"


def test_a_fault_of_the_engine_is_one_sentence_after_the_partial_text(generate: Generate) -> None:
    from runtime.errors import NumericError

    outcome = generate("-p", "Hi", engine=PlaybackEngine(texts=["Hel", NumericError("The logits are no numbers.")]))
    assert (outcome.status, outcome.stdout) == (1, "Hel")
    assert outcome.stderr == "tandem: The logits are no numbers.\n"
    assert outcome.engine.is_closed


def test_a_fault_that_nobody_expected_has_no_traceback_but_a_way_to_get_one(
    generate: Generate, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = generate("-p", "Hi", engine=PlaybackEngine(texts=[KeyError("\x1b[2J")]))
    assert outcome.status == 1
    assert "KeyError" in outcome.stderr and "TANDEM_DEBUG=1" in outcome.stderr
    assert "Traceback" not in outcome.stderr and "\x1b" not in outcome.stderr
    monkeypatch.setenv("TANDEM_DEBUG", "1")
    with pytest.raises(KeyError):
        generate("-p", "Hi", engine=PlaybackEngine(texts=[KeyError("x")]))


def test_a_reader_that_goes_away_ends_the_answer_without_a_word(generate: Generate) -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    outcome = generate("-p", "Hi", stdout=Closed())
    assert (outcome.status, outcome.stderr) == (1, "")
    assert outcome.engine.was_cancelled and outcome.engine.is_closed


def test_a_closed_stdout_is_noticed(model: Path) -> None:
    engine = PlaybackEngine()
    request = GenerateRequest(preferences=Preferences(model=str(model)), text="Hi")
    with pytest.raises(OutputClosedError):
        app.generate.run(request, Console(None, None), load=engine.load)
    assert engine.loads == [], "nothing is loaded for nobody"


def test_notes_stand_on_stderr(generate: Generate) -> None:
    engine = PlaybackEngine(notes=("a base model",), answer_notes=("folded",), finish_reason="context")
    outcome = generate("-p", "Hi", engine=engine)
    assert outcome.stdout == "Hello"
    assert outcome.stderr.startswith("note: a base model\nnote: folded\nnote: the answer ends here because")
    assert outcome.status == 0


def test_verbose_tells_times_on_stderr(generate: Generate) -> None:
    outcome = generate("-p", "Hi", "-v")
    assert outcome.stdout == "Hello"
    assert "3 prompt tokens (1 reused), 2 answered, 0.50 s; prefill 80.0 tokens/s" in outcome.stderr
    assert "decode 12.5 tokens/s, first token after 0.25 s (stop, seed 7)" in outcome.stderr


def test_progress_from_another_thread_ends_before_the_text(model: Path) -> None:
    order: list[str] = []

    class Recorder(Terminal):
        def __init__(self, name: str) -> None:
            super().__init__()
            self._name = name

        def write(self, text: str) -> int:
            order.append(f"{self._name}:{text}")
            return super().write(text)

    console = Console(Recorder("out"), Recorder("err"))
    bar = console.progress("Reading the prompt", "tokens")
    bar._began_s -= 1.0
    thread = threading.Thread(target=lambda: bar(1, 2))
    thread.start()
    thread.join()
    console.text("Hello")
    bar.close()
    bar(2, 2)
    drawn, cleared, text = order
    assert drawn.startswith("err:\rReading the prompt  [############............] 50 %")
    assert cleared.strip("\r ").startswith("err:") and not cleared.removeprefix("err:").strip()
    assert text == "out:Hello"
