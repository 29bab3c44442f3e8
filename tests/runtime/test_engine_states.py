"""Models that keep states, in the engine: the same ids and bits however an answer came about."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from talking_models import write_talking_model
from tiny_models import write_tiny_model

from models.gguf_file import open_model_file
from runtime.devices.pricing import price_gpu, split
from runtime.engine import Engine
from runtime.errors import DeviceError
from runtime.machine import read_machine
from runtime.options import EngineOptions, GenerateOptions
from runtime.placement import place
from runtime.sampling import SamplingOptions
from runtime.speculation import reading, track
from runtime.speculation.options import SpeculationOptions

FAMILIES = ("lfm2", "qwen35")
GREEDY = GenerateOptions(sampling=SamplingOptions(temperature=0), max_tokens=16, ignore_end=True, logprobs=2)
COLD = replace(GREEDY, reuse_prefix=False, speculate=False)
PROMPT = [5 + index * 7 % 90 for index in range(100)]
OPTIONS = EngineOptions(
    threads=2,
    batch_size=48,
    context_size=512,
    max_sequences=2,
    device="cpu",
    speculation=SpeculationOptions(mode="ngram"),
)


@pytest.fixture(scope="module", params=FAMILIES)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_talking_model(tmp_path_factory.mktemp("models") / f"{request.param}.gguf", request.param)


@pytest.fixture
def engine(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.setattr(track, "TRIAL_ROUNDS", 10**9)
    monkeypatch.setattr(track, "LOSS_TOKENS", 1e9)
    monkeypatch.setattr(reading, "FREE_TOKENS", 10**9)
    with Engine.load(path, OPTIONS) as engine:
        yield engine


def test_turns_branches_guesses_and_company_change_no_bit(engine: Engine) -> None:
    cold = engine.generate(PROMPT, COLD).result
    warm = engine.generate(PROMPT, GREEDY).result
    assert (warm.ids, warm.logprobs) == (cold.ids, cold.logprobs)
    assert warm.timings.reused_tokens == 64
    turn = [*PROMPT, *cold.ids[:-1], 7, 8, 9]
    both = [engine.generate(turn, GREEDY), engine.generate([*PROMPT[:80], 3, 4], GREEDY)]
    for generation, prompt in zip(both, (turn, [*PROMPT[:80], 3, 4]), strict=True):
        alone = engine.generate(prompt, COLD).result
        assert (generation.result.ids, generation.result.logprobs) == (alone.ids, alone.logprobs)
    assert both[0].result.timings.reused_tokens >= len(PROMPT)
    repeating = [*PROMPT[:20], *PROMPT[:20], *PROMPT[:9]]
    plain, guessed = engine.generate(repeating, COLD).result, engine.generate(repeating, GREEDY).result
    assert (guessed.ids, guessed.logprobs) == (plain.ids, plain.logprobs)
    assert guessed.speculation is not None and guessed.speculation.drafted > guessed.speculation.accepted


def test_an_answer_that_was_cancelled_spoils_nothing(engine: Engine) -> None:
    cold = engine.generate(PROMPT, COLD).result
    for idx in range(4):
        generation = engine.generate(PROMPT, GREEDY)
        for count, _ in enumerate(generation):
            if count == idx:
                generation.cancel()
    assert engine.generate(PROMPT, GREEDY).result.ids == cold.ids


def test_states_are_reserved_as_the_bill_says(engine: Engine, path: Path) -> None:
    with open_model_file(path) as file:
        assert place(file, OPTIONS, read_machine()).bill.memory == engine.memory


def test_a_model_with_states_is_no_draft_model(path: Path, tmp_path: Path) -> None:
    target = write_tiny_model(tmp_path / "target.gguf", architecture="qwen2")
    options = replace(OPTIONS, speculation=SpeculationOptions(draft_model=path))
    with Engine.load(target, options) as engine:
        assert engine.draft is None
        assert any("keeps a state" in note for note in engine.notes)


def test_the_gpu_refuses_in_a_sentence(path: Path) -> None:
    with open_model_file(path) as file:
        placement = place(file, OPTIONS, read_machine())
        part = split(placement.model.program, 1).gpu
        assert part is not None
        with pytest.raises(DeviceError, match=r"^The model has layers that keep a state.*load it on the CPU\.$"):
            price_gpu(part, file, placement.device_options)
