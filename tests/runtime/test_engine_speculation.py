"""Speculation with tiny models on the real CPU device: bit for bit what plain decoding gives, and what it reserves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_models import byte_pair_vocabulary, write_tiny_model

from models.errors import FileError
from models.gguf_file import open_model_file
from runtime.engine import Engine
from runtime.errors import OptionError
from runtime.machine import read_machine
from runtime.options import EngineOptions, GenerateOptions
from runtime.placement import place
from runtime.sampling import SamplingOptions
from runtime.speculation import reading, track
from runtime.speculation.loading import DraftFile
from runtime.speculation.options import SpeculationOptions

GREEDY = GenerateOptions(sampling=SamplingOptions(temperature=0), max_tokens=24, ignore_end=True, logprobs=2)
SEEDED = replace(GREEDY, sampling=SamplingOptions(seed=4, temperature=1.2))
PROMPT = [5 + index * 7 % 300 for index in range(150)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_tiny_model(folder / "model.gguf", architecture="qwen2")
    write_tiny_model(folder / "noise.gguf", architecture="llama", seed=7)
    texts = list(byte_pair_vocabulary()["tokenizer.ggml.tokens"])
    texts[70] = "?!"
    write_tiny_model(folder / "foreign.gguf", metadata={"tokenizer.ggml.tokens": texts})
    return folder


def options(folder: Path, draft: str, *, length: int = 5, **fields: object) -> EngineOptions:
    speculation = SpeculationOptions(draft_model=folder / draft, draft_max=length, draft_min=length)
    return replace(
        EngineOptions(threads=2, batch_size=64, activations="fast", speculation=speculation),  # as a draft model has it
        **fields,  # pyright: ignore[reportArgumentType]
    )


@pytest.fixture(params=["model.gguf", "noise.gguf"])
def engine(request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.setattr(track, "TRIAL_ROUNDS", 10**9)
    monkeypatch.setattr(track, "LOSS_TOKENS", 1e9)
    monkeypatch.setattr(reading, "FREE_TOKENS", 10**9)
    with Engine.load(folder / "model.gguf", options(folder, request.param, max_sequences=2)) as engine:
        yield engine


@pytest.mark.parametrize("asked", [GREEDY, SEEDED])
def test_ids_and_logprobs_are_bit_for_bit_those_of_plain_decoding(engine: Engine, asked: GenerateOptions) -> None:
    plain = engine.generate(PROMPT, replace(asked, speculate=False, reuse_prefix=False)).result
    for prompt, reuse_prefix in ((PROMPT, False), (PROMPT, True)):
        guessed = engine.generate(prompt, replace(asked, reuse_prefix=reuse_prefix)).result
        assert (guessed.ids, guessed.logprobs) == (plain.ids, plain.logprobs)
        assert guessed.speculation is not None and guessed.speculation.rounds > 0
        if engine.draft is not None and engine.draft.path.name == "model.gguf":
            assert guessed.speculation.accepted_by_position == guessed.speculation.drafted_by_position or (
                guessed.speculation.accepted >= guessed.speculation.drafted - 5
            )


def test_every_chunk_tells_whether_it_was_guessed(engine: Engine) -> None:
    generation = engine.generate(PROMPT, GREEDY)
    chunks = list(generation)
    report = generation.result.speculation
    assert report is not None
    assert (sum(chunk.is_guessed for chunk in chunks), sum(chunk.num_drafted for chunk in chunks)) == (
        report.accepted,
        report.drafted,
    )
    plain = list(engine.generate(PROMPT, replace(GREEDY, speculate=False)))
    assert not any(chunk.is_guessed or chunk.num_drafted for chunk in plain)


def test_two_answers_at_once_get_what_each_gets_alone(engine: Engine) -> None:
    prompts = [PROMPT[:30], PROMPT[40:100]]
    alone = [engine.generate(prompt, replace(SEEDED, speculate=False)).result.ids for prompt in prompts]
    together = [engine.generate(prompt, SEEDED) for prompt in prompts]
    assert [generation.result.ids for generation in together] == alone


def test_the_next_turn_reuses_the_pages_of_both(engine: Engine) -> None:
    first = engine.generate(PROMPT, GREEDY).result
    longer = [*PROMPT, *first.ids, 9, 8, 7]
    warm = engine.generate(longer, GREEDY).result
    assert warm.timings.reused_tokens >= len(PROMPT) + 20
    cold = engine.generate(longer, replace(GREEDY, speculate=False, reuse_prefix=False)).result
    assert (warm.ids, warm.logprobs) == (cold.ids, cold.logprobs)


def test_the_bill_before_loading_holds_the_draft_model_too(folder: Path) -> None:
    chosen = options(folder, "noise.gguf", length=40, context_size=200)
    with open_model_file(folder / "model.gguf") as file, DraftFile(folder / "noise.gguf", "q4_0") as draft:
        bill = place(file, chosen, read_machine(), draft_price=draft.price).bill
    with Engine.load(folder / "model.gguf", chosen) as engine:
        assert engine.draft is not None
        assert (engine.memory, engine.draft.memory) == (bill.memory, bill.draft)
        assert bill.total_bytes == engine.memory.total_bytes + engine.draft.memory.total_bytes
        assert engine.limits.max_outputs == 41


def test_another_vocabulary_is_refused_by_its_first_token_and_the_answer_comes_without(folder: Path) -> None:
    with Engine.load(folder / "model.gguf", options(folder, "foreign.gguf")) as engine:
        assert engine.draft is None
        note = next(note for note in engine.notes if "draft model" in note)
        assert "token 70 " in note and '"?!"' in note
        result = engine.generate(PROMPT, GREEDY).result
        assert len(result.ids) == 24
        report = result.speculation
        assert report is not None and report.reason is not None
        assert "token 70 " in report.reason


def test_a_draft_model_without_room_is_left_out_with_a_note(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Engine.load(folder / "model.gguf", options(folder, "noise.gguf", context_size=500)) as engine:
        assert engine.draft is not None
        both = engine.memory.total_bytes + engine.draft.memory.total_bytes
    tight = replace(read_machine(), memory_available_bytes=both)  # a part stays free for the rest of the machine
    monkeypatch.setattr("runtime.engine.read_machine", lambda: tight)
    with Engine.load(folder / "model.gguf", options(folder, "noise.gguf", context_size=500)) as engine:
        assert engine.draft is None
        assert any("no room for the draft model" in note for note in engine.notes)
        assert len(engine.generate(PROMPT, GREEDY).result.ids) == 24


def test_a_draft_model_that_is_not_there_is_an_error(folder: Path) -> None:
    with pytest.raises(FileError):
        Engine.load(folder / "model.gguf", options(folder, "nothing.gguf"))
    with pytest.raises(OptionError, match="--spec"):
        Engine.load(folder / "model.gguf", EngineOptions(speculation=SpeculationOptions(mode="draft")))


def test_a_draft_model_is_not_even_opened_when_it_is_not_wanted(folder: Path) -> None:
    for mode in ("off", "ngram"):
        speculation = SpeculationOptions(mode=mode, draft_model=folder / "nothing.gguf")
        with Engine.load(folder / "model.gguf", EngineOptions(speculation=speculation)) as engine:
            assert engine.draft is None
            report = engine.generate(PROMPT, GREEDY).result.speculation
            assert (report is None) == (mode == "off")
