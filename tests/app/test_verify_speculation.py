"""`tandem generate --verify-spec` and the choice of a draft model, without a model."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import app.cli
import app.verify_speculation
from app.drafts import with_draft
from app.errors import AppError, UsageError
from app.output import Console
from app.preferences import Preferences
from app.runtime_options import engine_options
from app.verify_speculation import VerifyRequest, read_prompts, run
from runtime.catalog import CATALOG
from runtime.constraints import OutputConstraint
from runtime.generation import Completion, Generation
from runtime.options import EngineOptions, GenerateOptions
from runtime.speculation.options import SpeculationReport
from runtime.timings import Clock

REPORT = SpeculationReport(
    drafted=4,
    accepted=3,
    drafted_by_position=(2, 2),
    accepted_by_position=(2, 1),
    acceptance_by_position=(1.0, 0.5),
    rounds=2,
    plain_tokens=0,
    tokens_per_round=2.5,
    draft_ms=3.0,
    verify_ms=5.0,
    wait_ms=3.5,
    state="on",
    reason=None,
)


@dataclass
class TwoFacedEngine:
    """Answers [1, 2, 3]; with guesses, what `guessed` says for the prompt's number."""

    guessed: dict[int, tuple[int, ...]] = field(default_factory=dict)
    asked: list[tuple[Any, GenerateOptions]] = field(default_factory=list)
    loads: list[EngineOptions] = field(default_factory=list)
    notes: tuple[str, ...] = ("a note",)
    description: Any = None
    is_closed: bool = False

    def load(self, path: Path, options: EngineOptions, console: Console, *, verbose: bool) -> TwoFacedEngine:
        self.loads.append(options)
        return self

    def generate(self, prompt: Any, options: GenerateOptions) -> Generation:
        number = len(self.asked) // 2
        self.asked.append((prompt, options))
        ids = self.guessed.get(number, (1, 2, 3)) if options.speculate else (1, 2, 3)
        generation = Generation(prompt_ids=(5,), notes=(), seed=0, starts_in_thinking=False, cancel=lambda: None)
        generation.finish(
            Completion(
                text="",
                ids=ids,
                prompt_ids=(5,),
                finish_reason="length",
                stop_text=None,
                timings=Clock().timings(prompt_tokens=1, reused_tokens=0),
                logprobs=(),
                prompt_logprobs=(),
                notes=(),
                seed=0,
                speculation=REPORT if options.speculate else replace(REPORT, drafted=0),
            )
        )
        return generation

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    return path


def verify(
    model: Path, content: str, engine: TwoFacedEngine, *, name: str = "prompts.txt", **fields: Any
) -> tuple[int, str, str]:
    file = model.with_name(name)
    file.write_text(content, "utf-8")
    out, errors = io.StringIO(), io.StringIO()
    preferences = Preferences(model=str(model), **fields.pop("preferences", {}))
    request = VerifyRequest(preferences=preferences, file=file, **fields)
    return run(request, Console(out, errors), load=engine.load), out.getvalue(), errors.getvalue()


def test_every_prompt_is_answered_with_and_without_guesses_and_all_are_the_same(model: Path) -> None:
    engine = TwoFacedEngine()
    status, out, errors = verify(model, "one\n\nzwei, 二\nthree\n", engine)
    assert status == 0
    assert out.count("the same;") == 3
    assert out.endswith("3 of 3 answers are the same, token by token.\n")
    assert "3 of 4 guesses kept" in out
    assert "a note" in errors
    assert [prompt for prompt, _ in engine.asked] == ["one", "one", "zwei, 二", "zwei, 二", "three", "three"]
    for first, second in zip(engine.asked[::2], engine.asked[1::2], strict=True):
        assert {first[1].speculate, second[1].speculate} == {True, False}
        assert replace(first[1], speculate=True) == replace(second[1], speculate=True)
        assert first[1].sampling.seed is not None and not first[1].reuse_prefix
    assert engine.loads[0].speculation.mode == "auto"
    assert engine.is_closed


def test_a_line_of_the_file_is_a_prompt_whatever_it_holds(model: Path) -> None:
    engine = TwoFacedEngine()
    verify(model, "form\x0cfeed\u2028and more\r\ntwo\n", engine)
    assert [prompt for prompt, _ in engine.asked[::2]] == ["form\x0cfeed\u2028and more", "two"]


def test_guesses_are_compared_within_a_schema_too(model: Path) -> None:
    engine, constraint = TwoFacedEngine(), OutputConstraint(kind="json_object")
    assert verify(model, "one\n", engine, constraint=constraint)[0] == 0
    assert [options.constraint for _, options in engine.asked] == [constraint, constraint]


def test_a_difference_is_told_by_its_place_and_the_exit_status(model: Path) -> None:
    engine = TwoFacedEngine(guessed={1: (1, 2, 9), 2: (1, 2)})
    status, out, _ = verify(model, "one\ntwo\nthree\n", engine)
    assert status == 1
    lines = out.splitlines()
    assert "the same" in lines[0] and "token 3 on" in lines[1] and "token 3 on" in lines[2]
    assert lines[3].startswith("1 of 3")


def test_rows_may_hold_prompts_or_messages_and_the_result_may_be_an_object(model: Path) -> None:
    rows = [{"prompt": "one\ntwo"}, {"messages": [{"role": "user", "content": "hm"}], "id": 3}]
    engine = TwoFacedEngine(guessed={0: (1, 9, 3)})
    status, out, _ = verify(model, "\n".join(map(json.dumps, rows)), engine, name="p.jsonl", as_json=True)
    value = json.loads(out)
    assert (status, value["same"]) == (1, False)
    assert [row["first_difference"] for row in value["prompts"]] == [2, None]
    assert value["prompts"][1]["guessed"]["speculation"]["accepted_by_position"] == [2, 1]
    assert engine.asked[0][0] == "one\ntwo"
    assert engine.asked[2][0][0].content == "hm"


@pytest.mark.parametrize("row", ["[1]", "{}", '{"messages": 3}', "nonsense", '{"prompt": 3}'])
def test_a_bad_row_is_named_by_its_line(tmp_path: Path, row: str) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text(f'{{"prompt": "fine"}}\n{row}\n')
    with pytest.raises(AppError, match="line 2"):
        read_prompts(file)


def test_files_that_hold_no_prompts_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n \n")
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00")
    for name, word in (("empty.txt", "empty"), ("binary.txt", "UTF-8"), ("missing.txt", "read")):
        with pytest.raises(AppError, match=word):
            read_prompts(tmp_path / name)


def test_what_does_not_go_together_is_a_usage_error(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match="--spec off"):
        verify(model, "one", TwoFacedEngine(), preferences={"spec": "off"})
    assert app.cli.main(["generate", str(model), "--verify-spec", "-p", "one"]) == 2
    assert "--verify-spec needs a file" in capsys.readouterr().err
    for flags, word in ((["--spec", "fast"], "--spec"), (["--draft-max", "0"], "--draft-max")):
        assert app.cli.main(["generate", str(model), "-p", "one", *flags]) == 2
        assert word in capsys.readouterr().err


def chosen(preferences: Preferences, model: Path) -> tuple[EngineOptions, str]:
    errors = io.StringIO()
    options = with_draft(engine_options(preferences), preferences, model, Console(io.StringIO(), errors))
    return options, errors.getvalue()


def put(folder: Path, name: str) -> Path:
    """A file as large as the catalog says that the model is."""
    path = folder / CATALOG[name].local_name
    with open(path, "wb") as file:
        file.truncate(CATALOG[name].size_bytes)
    return path


@pytest.mark.parametrize("spec", [None, "auto", "draft"])
def test_the_catalogs_draft_model_is_used_if_it_is_on_the_disk(tmp_path: Path, spec: str | None) -> None:
    model, draft = put(tmp_path, "qwen2.5-coder-1.5b"), put(tmp_path, "qwen2.5-coder-0.5b")
    options, _ = chosen(Preferences(spec=spec, models_dir=str(tmp_path)), model)
    assert options.speculation.draft_model == draft
    assert options.speculation.uses_draft_model


def test_a_draft_model_is_never_fetched_without_being_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Path:
        raise AssertionError("a download was begun")

    monkeypatch.setattr("runtime.catalog.resolve_model", refuse)
    model = put(tmp_path, "qwen2.5-coder-1.5b")
    assert chosen(Preferences(models_dir=str(tmp_path)), model)[0].speculation.is_off
    options, _ = chosen(Preferences(spec="auto", models_dir=str(tmp_path)), model)
    assert options.speculation.draft_model is None and options.speculation.uses_text
    with pytest.raises(UsageError, match="--spec draft"):
        chosen(Preferences(spec="draft", models_dir=str(tmp_path)), model)
    with pytest.raises(AssertionError, match="download"):
        chosen(Preferences(draft_model="qwen2.5-coder-0.5b", models_dir=str(tmp_path)), model)
    for spec in ("off", "ngram"):
        preferences = Preferences(spec=spec, draft_model="qwen2.5-coder-0.5b", models_dir=str(tmp_path))
        assert chosen(preferences, model)[0].speculation.draft_model is None


def test_a_named_draft_model_turns_guessing_on(tmp_path: Path) -> None:
    draft = tmp_path / "draft.gguf"
    draft.write_bytes(b"GGUF")
    options, _ = chosen(Preferences(draft_model=str(draft), draft_max=5, draft_min=2), tmp_path / "model.gguf")
    speculation: Sequence[object] = (options.speculation.draft_model, options.speculation.is_off)
    assert speculation == (draft, False)
    assert (options.speculation.draft_max, options.speculation.draft_min) == (5, 2)


@pytest.mark.parametrize("flag", ["-md", "--draft-model", "--model-draft"])
def test_the_flags_reach_the_options(flag: str, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Preferences] = []
    monkeypatch.setattr("app.generate.run", lambda request, console: seen.append(request.preferences) or 0)
    arguments = ["generate", str(model), "-p", "one", flag, "small", "--draft-max", "4", "--draft-min", "1"]
    assert app.cli.main([*arguments, "--spec", "draft"]) == 0
    preferences = seen[0]
    assert (preferences.draft_model, preferences.draft_max, preferences.draft_min) == ("small", 4, 1)
    assert preferences.spec == "draft"
