"""`tandem bench --draft`: what it measures with, and what it says of what can't be measured."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import run_tandem
from tiny_models import write_tiny_model

import app.bench.command
import app.bench.guessing
from app.bench.arguments import BenchRequest
from app.bench.guessing import guessing_plan
from app.errors import AppError, UsageError
from app.output import Console
from app.preferences import Preferences
from runtime.benchmark.prompt_sets import BUILT_IN_SETS, built_in_file
from runtime.benchmark.results import Row
from runtime.benchmark.session import BenchSession
from runtime.benchmark.trials import BenchStopped
from runtime.benchmark.workloads import BenchPlan, GuessingPlan


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_tiny_model(folder / "model.gguf", architecture="qwen2")
    return folder


@pytest.fixture
def plan_of(folder: Path) -> Callable[..., GuessingPlan]:
    def plan(draft: str, *paths: Path, **fields: Any) -> GuessingPlan:
        request = replace(BenchRequest(preferences=Preferences(models_dir=str(folder)), draft=draft), **fields)
        return guessing_plan(request, list(paths or [folder / "model.gguf"]), Console(io.StringIO(), io.StringIO()))

    return plan


def test_the_sets_that_come_with_tandem_are_read(plan_of: Callable[..., GuessingPlan]) -> None:
    plan = plan_of("ngram")
    assert [(one.name, len(one.prompts)) for one in plan.sets] == [("code", 20), ("edits", 10)]
    assert {built_in_file(name).suffix for name in BUILT_IN_SETS} == {".jsonl"}
    texts = [prompt for one in plan.sets for prompt in one.prompts]
    assert len(set(map(str, texts))) == 30
    assert (plan.options.mode, plan.options.draft_model, plan.temperatures) == ("ngram", None, (0.0,))


def test_a_draft_model_and_a_file_of_prompts_are_found(
    plan_of: Callable[..., GuessingPlan], folder: Path, tmp_path: Path
) -> None:
    file = tmp_path / "mine.txt"
    file.write_text("one\n\ntwo\n", encoding="utf-8")
    plan = plan_of(str(folder / "model.gguf"), prompt_sets=(str(file),), temperatures=(0.0, 0.8), answer_tokens=9)
    assert (plan.draft, plan.options.mode, plan.options.draft_model) == ("model", "draft", folder / "model.gguf")
    assert [(one.name, one.prompts) for one in plan.sets] == [("mine", ("one", "two"))]
    assert (plan.temperatures, plan.answer_tokens) == ((0.0, 0.8), 9)


def test_auto_takes_the_catalogs_pair(
    plan_of: Callable[..., GuessingPlan], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = {"a.gguf": None, "b.gguf": folder / "model.gguf"}
    monkeypatch.setattr(app.bench.guessing, "paired_draft", lambda path, folder: pairs[path.name])
    alone, paired = plan_of("auto", Path("a.gguf")), plan_of("auto", Path("b.gguf"))
    assert (alone.draft, alone.options.mode, alone.options.draft_model) == ("auto", "auto", None)
    assert (paired.draft, paired.options.draft_model) == ("auto (model)", folder / "model.gguf")
    with pytest.raises(UsageError, match="another draft model for each"):
        plan_of("auto", Path("a.gguf"), Path("b.gguf"))


@pytest.mark.parametrize(
    ("fields", "kind", "words"),
    [
        ({"answer_tokens": 1}, UsageError, "--answer-tokens"),
        ({"temperatures": (-1.0,)}, UsageError, "--temp"),
        ({"prompt_sets": ("nothing.txt",)}, AppError, "can't be read"),
    ],
)
def test_what_can_not_be_measured_is_refused(
    plan_of: Callable[..., GuessingPlan], fields: dict[str, Any], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        plan_of("ngram", **fields)


def test_the_whole_command_with_a_tiny_model(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = tmp_path / "p.txt"
    prompts.write_text("a b a b a b\nc d c d\n", encoding="utf-8")
    model = str(folder / "model.gguf")
    words = ["bench", model, "--draft", model, "--prompts", str(prompts), "--answer-tokens", "24", "-r", "2"]
    status, out, err = run_tandem(*words, "--temp", "0,0.8", "--format", "json", "-t", "1")
    assert status == 0, err
    rows = json.loads(out)["rows"]
    assert [(row["test"], row["temperature"], row["draft"]) for row in rows] == [
        ("guess", 0.0, "model"),
        ("guess", 0.8, "model"),
    ]
    for row in rows:
        found = row["speculation"]
        assert found["answers"] == found["same_answers"] == 4
        assert 4 <= found["rounds"] + found["accepted"] + found["plain_tokens"] <= 4 * 24
        assert len(found["ratio_samples"]) == row["repeats"] == 2 and len(found["prompt_ratios"]) == 2
        assert row["is_complete"] and row["isa"] != "auto" and found["wait_ms_per_token"] > 0


def test_a_stop_in_the_middle_hands_out_what_was_answered(plan_of: Callable[..., GuessingPlan], folder: Path) -> None:
    class Stopping:
        rows: list[Row] = []

        def loading(self, title: str, stage: str, done: int, total: int) -> None: ...
        def noted(self, text: str) -> None: ...

        def measuring(self, title: str, done: int, total: int) -> None:
            if done == 1:
                session.stop()

        def finished(self, row: Row) -> None:
            self.rows.append(row)

    plan = BenchPlan(prompts=(0,), outputs=(0,), threads=(1,), guessing=plan_of("ngram", answer_tokens=4))
    session = BenchSession(plan, Stopping(), version="9")
    with pytest.raises(BenchStopped):
        session.run([folder / "model.gguf"])
    (row,) = Stopping.rows
    assert not row.is_complete and row.speculation is not None and row.speculation.answers == 1
