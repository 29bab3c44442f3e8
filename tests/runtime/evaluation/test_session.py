"""A whole evaluation: on a device whose logits are known, on a tiny model against the oracle, and on a real one."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import golden
import numpy as np
import pytest
from fake_device import DESCRIPTION, FakeBinding, make_limits, row_after
from oracle import FileWeights, Oracle
from tiny_models import write_tiny_model

from models.description import load_description
from models.gguf_file import open_model_file
from runtime.errors import Cancelled, OptionError
from runtime.evaluation.loading import EvaluationError, Loaded, LoadProgress, read_words
from runtime.evaluation.plans import EvaluationPlan
from runtime.evaluation.session import EvaluationSession
from runtime.options import EngineOptions

TEXT = "the cat sat on the mat and the dog ran away from the cat " * 4


@dataclass
class Heard:
    """A listener that keeps what it heard."""

    read: list[tuple[str, int, int]] = field(default_factory=list)
    timed: list[tuple[int, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def loading(self, title: str, stage: str, done: int, total: int) -> None:
        pass

    def reading(self, title: str, done: int, total: int) -> None:
        self.read.append((title, done, total))

    def timing(self, title: str, done: int, total: int) -> None:
        self.timed.append((done, total))

    def answering(self, title: str, done: int, total: int) -> None:
        pass

    def noted(self, text: str) -> None:
        self.notes.append(text)


@dataclass
class Devices:
    """Hands out fake devices, which all give the same logits, and keeps them."""

    loads: list[tuple[Path, EngineOptions]] = field(default_factory=list)
    bindings: list[FakeBinding] = field(default_factory=list)

    def load(self, path: Path, options: EngineOptions, progress: LoadProgress) -> Loaded:
        assert options.context_size is not None
        binding = FakeBinding(make_limits(context_size=options.context_size, max_batch_tokens=16, max_outputs=8))
        self.loads.append((path, options))
        self.bindings.append(binding)
        return Loaded(binding=binding, description=replace(DESCRIPTION, path=path), notes=("a note.",))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny.gguf", architecture="qwen2", format="Q8_0")


def surprises(ids: list[int], *, size: int, stride: int) -> list[float]:
    """What a device of row_after must be found to have, by the rule in words: no start token."""
    found = []
    counted = 0
    for begin in range(0, len(ids), stride):
        window = ids[begin : begin + size]
        for idx in range(max(1, counted - begin), len(window)):
            row = row_after(window[:idx]).astype(np.longdouble)
            found.append(float(np.log(np.exp(row - row.max()).sum()) - (row[window[idx]] - row.max())))
        counted = begin + len(window)
        if counted >= len(ids):
            break
    return found


def test_a_text_is_read_window_by_window_on_every_way_to_load(path: Path) -> None:
    devices, heard = Devices(), Heard()
    plan = EvaluationPlan(text=TEXT, window=40, stride=15, cache_types_k=("f16", "q4_0"), activations=("fast",))
    session = EvaluationSession(plan, heard, load=devices.load)
    session.run(path)
    results = session.results()
    ids = read_words(path).vocabulary.encode(TEXT, add_special=False, parse_special=False)
    expected = surprises(ids, size=40, stride=15)
    assert results.num_tokens == len(ids) and (results.window, results.stride) == (40, 15)
    assert results.start_token is None and results.reference is not None
    assert (results.reference.activations, results.reference.cache_type_k) == ("exact", "f16")
    assert [(row.setting.cache_type_k, row.setting.activations) for row in results.rows] == [
        ("f16", "fast"),
        ("q4_0", "fast"),
    ]
    for row in results.rows:
        assert row.is_complete and row.perplexity is not None and row.divergence is not None
        assert row.perplexity.num_tokens == len(expected) == row.divergence.num_positions
        assert row.perplexity.mean_nll == pytest.approx(np.mean(expected), rel=1e-9)
        assert row.divergence.maximum < 1e-12 and row.divergence.top1_agreement == 1.0
        assert row.reference_perplexity == row.perplexity
        assert row.speed is not None and row.speed.decode_tokens_per_s > 0
    assert all(binding.is_closed and binding.largest_outputs <= 8 for binding in devices.bindings)
    assert heard.read[-1][1:] == (len(expected), len(expected))


def test_without_anything_to_compare_one_model_is_loaded(path: Path) -> None:
    devices = Devices()
    session = EvaluationSession(EvaluationPlan(text=TEXT, most_tokens=9), Heard(), load=devices.load)
    session.run(path)
    (row,) = session.results().rows
    assert row.divergence is None and row.perplexity is not None and row.perplexity.num_tokens == 8
    assert len(devices.loads) == 1 and devices.loads[0][1].max_sequences == 1


def test_a_short_text_takes_no_more_room_or_time_than_it_needs(path: Path) -> None:
    devices, heard = Devices(), Heard()
    session = EvaluationSession(EvaluationPlan(text=TEXT, most_tokens=9, window=10_000), heard, load=devices.load)
    session.run(path)
    assert devices.loads[0][1].context_size == 10
    (row,) = session.results().rows
    assert row.speed is not None and row.speed.prompt_tokens == 5
    assert heard.timed == [(0, 9), (5, 9)] and session.results().window == 10_000


def test_what_was_read_before_a_stop_is_kept(path: Path) -> None:
    devices = Devices()
    heard = Heard()
    session = EvaluationSession(EvaluationPlan(text=TEXT, window=32, stride=16), heard, load=devices.load)
    has_read = threading.Event()

    def stop_soon(title: str, done: int, total: int) -> None:
        if done >= 24 and not has_read.is_set():
            has_read.set()
            session.stop()

    heard.reading = stop_soon  # type: ignore[method-assign]
    with pytest.raises(Cancelled):
        session.run(path)
    (row,) = session.results().rows
    assert not row.is_complete and row.speed is None
    assert row.perplexity is not None and 24 <= row.perplexity.num_tokens < 40
    assert devices.bindings[0].is_closed


def test_answers_of_the_same_model_do_not_part(path: Path) -> None:
    devices = Devices()
    plan = EvaluationPlan(prompts=("Why?", "How?"), answer_tokens=5, cache_types_v=("f16", "q8_0"))
    session = EvaluationSession(plan, Heard(), load=devices.load)
    session.run(path)
    results = session.results()
    assert len(results.rows) == 2
    for row in results.rows:
        assert row.perplexity is None and len(row.partings) == 2
        assert all(parting.place is None and parting.num_tokens > 0 for parting in row.partings)
    assert all(binding.is_closed for binding in devices.bindings)


def test_models_of_other_words_are_not_compared(path: Path, tmp_path: Path) -> None:
    other = write_tiny_model(tmp_path / "other.gguf", vocabulary="sentence_pieces", architecture="gemma3")
    session = EvaluationSession(EvaluationPlan(text=TEXT), Heard(), load=Devices().load)
    with pytest.raises(EvaluationError, match="token 0 is .* in the reference and .* in the model"):
        session.run(path, other)


def test_a_text_without_anything_to_predict_is_told(path: Path) -> None:
    session = EvaluationSession(EvaluationPlan(text="a"), Heard(), load=Devices().load)
    with pytest.raises(EvaluationError, match="nothing to predict"):
        session.run(path)


def test_a_stride_that_would_leave_gaps_is_refused(path: Path) -> None:
    with pytest.raises(OptionError, match="at most the window, 8 tokens"):
        EvaluationPlan(text=TEXT, window=8, stride=9)
    trained = read_words(path).trained_context_size
    session = EvaluationSession(EvaluationPlan(text=TEXT, stride=trained), Heard(), load=Devices().load)
    with pytest.raises(OptionError, match=f"at most the window, {trained - 1} tokens"):
        session.run(path)
    with pytest.raises(OptionError, match="f17"):
        EvaluationPlan(text=TEXT, cache_types_k=("f16", "f17"))


def test_a_start_token_stands_before_every_window(tmp_path: Path) -> None:
    """A tiny model with a start token, on the real kernels, against float64."""
    path = write_tiny_model(tmp_path / "g.gguf", architecture="gemma3", format="Q8_0", vocabulary="sentence_pieces")
    words = read_words(path)
    ids = words.vocabulary.encode(TEXT, add_special=False, parse_special=False)[:60]
    with open_model_file(path) as file:
        oracle = Oracle(load_description(file).program, FileWeights(file))
        expected: list[float] = []
        for begin, first in ((0, 1), (20, 21), (40, 21)):
            window = [2, *ids[begin : begin + 40]]
            logits = golden.log_softmax(oracle.logits(window))
            expected += [-logits[idx - 1, window[idx]] for idx in range(first, len(window))]
            if begin + 40 >= len(ids):
                break
    plan = EvaluationPlan(
        text=words.vocabulary.decode(ids), window=40, stride=20, activations=("exact",), load=EngineOptions(threads=1)
    )
    session = EvaluationSession(plan, Heard())
    session.run(path, path)
    results = session.results()
    (row,) = results.rows
    assert results.start_token == "<bos>" and results.num_tokens == len(ids)
    assert row.perplexity is not None and row.divergence is not None
    assert row.perplexity.num_tokens == len(expected) == 60
    assert row.perplexity.mean_nll == pytest.approx(np.mean(expected), abs=2e-3)
    assert row.divergence.maximum == 0.0


def test_a_real_model_has_the_perplexity_of_the_exact_function(model_path: Callable[[str], Path]) -> None:
    prompt = golden.load_exact("smollm2-135m")[-1]
    session = EvaluationSession(EvaluationPlan(text=prompt.text, most_tokens=200, activations=("exact",)), Heard())
    session.run(model_path("smollm2-135m"))
    (row,) = session.results().rows
    assert row.perplexity is not None and row.perplexity.num_tokens == 199
    assert row.perplexity.value == pytest.approx(math.exp(prompt.nll[:199].mean()), rel=0.002)
