"""The real engine behind the chat's port: a small model answers, and faults are sentences."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_models import write_tiny_model

from app.chat.engine_adapter import ModelChoice, loader_of
from app.chat.engine_port import (
    ChatEngine,
    EndReason,
    EngineFault,
    LoadCancelled,
    LoadStep,
    MemoryUse,
    PromptTurn,
    ReplyEnd,
    Role,
)
from runtime import EngineOptions, GenerateOptions, SamplingOptions

GREEDY = GenerateOptions(sampling=SamplingOptions(temperature=0), max_tokens=24)


def choice_of(model: str, **changes: object) -> ModelChoice:
    """The choice that the command line would make."""
    fields: dict[str, object] = {
        "model": model,
        "folder": Path("nowhere"),
        "offline": True,
        "engine": EngineOptions(context_size=512),
        "generate": lambda: GREEDY,
        **changes,
    }
    return ModelChoice(**fields)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def engine(model_path: Callable[[str], Path]) -> Iterator[ChatEngine]:
    loaded = loader_of(choice_of(str(model_path("smollm2-135m"))))(lambda step: None, threading.Event())
    yield loaded
    loaded.close()


def user(text: str) -> PromptTurn:
    return PromptTurn(role=Role.USER, text=text)


def answer(engine: ChatEngine, turns: list[PromptTurn], begun: tuple[int, ...] = ()) -> tuple[PromptTurn, ReplyEnd]:
    """A whole reply as the turn it makes."""
    stream = engine.reply(turns, begun=begun)
    text, ids = "", list[int]()
    for piece in stream:
        text += piece.text
        ids.extend(piece.token_ids)
    return PromptTurn(role=Role.ASSISTANT, text=text, ids=tuple(ids)), stream.end


def test_facts_of_a_loaded_model(engine: ChatEngine) -> None:
    facts = engine.facts
    assert facts.name.lower().startswith("smollm2-135m")
    assert facts.description.startswith("llama · 135M · Q")
    assert facts.description.endswith("window 512")
    assert (facts.context_size, facts.has_chat_template) == (512, True)
    assert facts.vocabulary


def test_each_turn_reads_only_what_is_new(engine: ChatEngine) -> None:
    turns = [PromptTurn(role=Role.SYSTEM, text="You are a helpful assistant."), user("My name is Ada. Hello!")]
    for question in ("What is my name?", "And what was my first sentence?"):
        reply, end = answer(engine, turns)
        assert reply.text
        assert end.figures.reply_tokens == len(reply.ids or ())
        turns += [reply, user(question)]
        size_before = end.figures.prompt_tokens + end.figures.reply_tokens
        _, next_end = answer(engine, turns)
        assert next_end.figures.prompt_tokens == engine.prompt_size(turns)
        # All but the last token that was written: what comes after it has not been computed.
        assert next_end.figures.reused_tokens >= size_before - 1


def test_a_cancelled_reply_is_closed_so_that_the_next_answer_is_to_the_next_question(engine: ChatEngine) -> None:
    question = user("Count from one to one hundred in words, please.")
    stream = engine.reply([question])
    text, ids = "", list[int]()
    for piece in stream:
        text += piece.text
        ids.extend(piece.token_ids)
        if len(ids) == 5:
            stream.cancel()
    assert stream.end.reason is EndReason.CANCELLED
    stopped = PromptTurn(role=Role.ASSISTANT, text=text, ids=tuple(ids))
    turns = [question, stopped, user("What is the capital of France?")]
    reply, end = answer(engine, turns)
    assert "Paris" in reply.text
    assert end.figures.reused_tokens > engine.prompt_size([question])


def test_a_reply_can_be_gone_on_with(engine: ChatEngine) -> None:
    turns = [user("Name three colours.")]
    whole, _ = answer(engine, turns)
    ids = whole.ids or ()
    rest, _ = answer(engine, turns, begun=ids[:6])
    assert (rest.ids or ())[: len(ids) - 6] == ids[6:]
    overlap = whole.text[whole.text.index(rest.text[:20]) :]
    assert rest.text.startswith(overlap)


def test_the_end_of_the_window_is_told(model_path: Callable[[str], Path]) -> None:
    options = GenerateOptions(sampling=SamplingOptions(temperature=0), ignore_end=True)
    choice = choice_of(str(model_path("smollm2-135m")), engine=EngineOptions(context_size=64), generate=lambda: options)
    small = loader_of(choice)(lambda step: None, threading.Event())
    try:
        _, end = answer(small, [user("Tell me a long story.")])
        assert end.reason is EndReason.WINDOW
        assert small.prompt_size([user("word " * 200)]) > 200
        with pytest.raises(EngineFault, match="64"):
            small.reply([user("word " * 200)])
    finally:
        small.close()


def test_loading_tells_its_steps_and_can_be_left(model_path: Callable[[str], Path]) -> None:
    load = loader_of(choice_of(str(model_path("smollm2-135m"))))
    steps: list[LoadStep] = []

    def leave_at_the_weights(step: LoadStep) -> None:
        steps.append(step)
        if step.unit == "bytes":
            raise LoadCancelled

    with pytest.raises(LoadCancelled):
        load(leave_at_the_weights, threading.Event())
    assert steps[0].title == "Starting the engine"
    assert steps[-1].title == "Packing the weights"


def test_a_model_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(EngineFault) as raised:
        loader_of(choice_of("no-such-model", folder=tmp_path))(lambda step: None, threading.Event())
    assert "no-such-model" in raised.value.sentence
    assert "\n" not in raised.value.sentence


def test_a_file_that_is_no_model_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "broken x[0].gguf"
    path.write_bytes(b"GGUF" + bytes(20))
    with pytest.raises(EngineFault) as raised:
        loader_of(choice_of(str(path)))(lambda step: None, threading.Event())
    assert "x[0].gguf" in raised.value.sentence


def test_what_was_measured_for_a_file_is_how_it_is_loaded(
    model_path: Callable[[str], Path],
) -> None:
    path, asked = model_path("smollm2-135m"), list[Path]()

    def engine_for(found: Path) -> EngineOptions:
        asked.append(found)
        return EngineOptions(context_size=320, threads=1)

    engine = loader_of(choice_of(str(path), engine_for=engine_for))(lambda step: None, threading.Event())
    try:
        assert (engine.facts.context_size, asked) == (320, [path])
    finally:
        engine.close()


def test_a_turn_that_the_template_refuses_names_the_way_on(tmp_path: Path) -> None:
    template = "{% for m in messages %}{% if m.content == 'boom' %}{{ raise_exception('no [booms]') }}{% endif %}"
    template += "{{ m.content }}{% endfor %}"
    path = write_tiny_model(tmp_path / "tiny.gguf", metadata={"tokenizer.chat_template": template})
    engine = loader_of(choice_of(str(path)))(lambda step: None, threading.Event())
    for ask in (engine.prompt_size, engine.reply):
        with pytest.raises(EngineFault) as caught:
            ask([user("boom")])
        assert caught.value.sentence == "The model's chat template refuses these messages: no [booms]."
        assert "/set chat-template-file FILE" in caught.value.way_on
    assert engine.prompt_size([user("calm")]) > 0
    engine.close()


def test_the_facts_follow_what_computes(engine: ChatEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    before = engine.facts
    assert engine.facts is before
    memory = (MemoryUse(device="CPU", weights_bytes=7),)
    monkeypatch.setattr("app.chat.engine_adapter._memory_of", lambda engine: memory)
    assert engine.facts == replace(before, memory=memory)
