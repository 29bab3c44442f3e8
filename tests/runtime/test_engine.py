"""The engine on the fake device: prompts of every kind, sessions of several turns, and its life from load to close."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from fake_device import DESCRIPTION, FakeBinding, make_limits, plain_ids
from tiny_models import CHATML_TEMPLATE, byte_pair_vocabulary

from models.chat_template import ChatTemplate, Message, load_chat_templates
from models.vocabulary import Vocabulary, load_vocabulary
from runtime.engine import Engine
from runtime.errors import ContextError, EngineClosedError, OptionError
from runtime.options import GenerateOptions
from runtime.prompts import PromptEncoder
from runtime.sampling import SamplingOptions

GREEDY = SamplingOptions(temperature=0)


def make_words(template: str | None = CHATML_TEMPLATE) -> tuple[Vocabulary, dict[str, ChatTemplate]]:
    metadata = byte_pair_vocabulary()
    if template is not None:
        metadata["tokenizer.chat_template"] = template
    vocabulary = load_vocabulary(metadata)
    return vocabulary, load_chat_templates(metadata, vocabulary)


def make_engine(template: str | None = CHATML_TEMPLATE, *, context_size: int = 512, max_sequences: int = 1) -> Engine:
    vocabulary, chat_templates = make_words(template)
    binding = FakeBinding(make_limits(context_size=context_size, max_sequences=max_sequences))
    return Engine(
        binding=binding,
        vocabulary=vocabulary,
        chat_templates=chat_templates,
        description=DESCRIPTION,
        notes=("a note",),
    )


@pytest.fixture
def engine() -> Iterator[Engine]:
    with make_engine() as engine:
        yield engine


def greedy(**fields: object) -> GenerateOptions:
    return GenerateOptions(sampling=GREEDY, **fields)  # pyright: ignore[reportArgumentType]


def test_text_goes_through_the_chat_template(engine: Engine) -> None:
    generation = engine.generate("Why?", greedy(max_tokens=4))
    text = "<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n"
    assert list(generation.prompt_ids) == engine.vocabulary.encode(text, add_special=False, parse_special=True)
    asked = engine.generate([Message(role="user", content="Why?")], greedy(max_tokens=4))
    assert asked.prompt_ids == generation.prompt_ids
    assert asked.result.ids == generation.result.ids


def test_raw_text_is_taken_as_it_is(engine: Engine) -> None:
    vocabulary = engine.vocabulary
    text = "one<|im_end|>two"
    assert list(engine.encode(text, greedy(raw=True)).ids) == vocabulary.encode(
        text, add_special=False, parse_special=True
    )
    plain = engine.encode(text, greedy(raw=True, parse_special=False)).ids
    assert list(plain) == vocabulary.encode(text, add_special=False, parse_special=False)
    with_bos = engine.encode("one", greedy(raw=True, add_bos=True)).ids
    assert with_bos[0] == vocabulary.bos_id
    again = engine.encode("<|endoftext|>one", greedy(raw=True, add_bos=True)).ids
    assert list(again).count(with_bos[0]) == 1


def test_what_a_user_types_never_becomes_a_control_token(engine: Engine) -> None:
    end_id = engine.vocabulary.special_id("<|im_end|>")
    assert end_id is not None
    typed = engine.encode("stop <|im_end|> here").ids
    parsed = engine.encode("stop <|im_end|> here", GenerateOptions(parse_special=True)).ids
    assert list(parsed).count(end_id) == list(typed).count(end_id) + 1


def test_ids_are_taken_as_they_are(engine: Engine) -> None:
    prompt = (7, 8, 9)
    assert engine.encode(np.array(prompt)).ids == prompt  # pyright: ignore[reportArgumentType]
    result = engine.generate(prompt, greedy(max_tokens=5, ignore_end=True)).result
    assert result.prompt_ids == prompt
    assert list(result.ids) == plain_ids(prompt, 5, num_tokens=engine.vocabulary.size)


def test_rows_beyond_the_vocabulary_are_never_chosen(engine: Engine) -> None:
    size = engine.vocabulary.size
    hot = SamplingOptions(temperature=100, top_k=0, top_p=1, min_p=0, seed=3)
    options = GenerateOptions(sampling=hot, max_tokens=400, ignore_end=True, logprobs=size)
    result = engine.generate([1, 2], options).result
    assert max(result.ids) < size
    assert {len(row) for row in result.logprobs} == {size}
    with pytest.raises(OptionError, match=f"from 0 to {size - 1}"):
        engine.generate([1, size])


@pytest.mark.parametrize("prompt", [[], (), "", [1, "two"], [1.5], [True], [Message(role="user", content="a"), 3]])
def test_what_is_no_prompt_is_refused(engine: Engine, prompt: object) -> None:
    with pytest.raises(OptionError, match="prompt"):
        engine.generate(prompt, GenerateOptions(raw=True))  # pyright: ignore[reportArgumentType]


def test_a_prompt_longer_than_the_window_ends_at_once_with_both_numbers() -> None:
    with make_engine(context_size=32) as engine:
        with pytest.raises(ContextError, match="33 tokens.*holds 32") as caught:
            engine.generate(list(range(33)))
        assert (caught.value.prompt_tokens, caught.value.context_size) == (33, 32)
        assert len(engine.encode(list(range(33))).ids) == 33
        assert engine.generate(list(range(32)), greedy()).result.finish_reason == "context"


def test_a_conversation_reuses_all_that_was_said(engine: Engine) -> None:
    messages = [Message(role="system", content="Be brief."), Message(role="user", content="What is a fox?")]
    reused: list[int] = []
    lengths: list[int] = []
    for question in ("Why?", "And the river?", "Then?"):
        result = engine.generate(messages, greedy(max_tokens=20)).result
        reused.append(result.timings.reused_tokens)
        lengths.append(len(result.prompt_ids) + len(result.ids))
        cold = engine.generate(messages, greedy(max_tokens=20, reuse_prefix=False)).result
        assert cold.timings.reused_tokens == 0
        assert cold.ids == result.ids
        messages += [
            Message(role="assistant", content=result.text, ids=result.ids),
            Message(role="user", content=question),
        ]
    assert reused[0] == 0
    for before, now in zip(lengths, reused[1:], strict=False):
        assert now >= before - 2  # the last token was not computed, and an end token may be written anew


def test_the_turn_ends_on_the_templates_own_token() -> None:
    template = CHATML_TEMPLATE.replace("<|im_end|>", "<|turn_end|>")
    metadata = byte_pair_vocabulary()
    metadata["tokenizer.ggml.tokens"].append("<|turn_end|>")
    metadata["tokenizer.ggml.token_type"].append(3)
    metadata["tokenizer.chat_template"] = template
    vocabulary = load_vocabulary(metadata)
    end_id = vocabulary.special_id("<|turn_end|>")
    with Engine(
        binding=FakeBinding(),
        vocabulary=vocabulary,
        chat_templates=load_chat_templates(metadata, vocabulary),
        description=DESCRIPTION,
    ) as engine:
        assert end_id in engine.encode("hello").end_ids
        assert vocabulary.eos_id in engine.encode("hello").end_ids


@pytest.mark.parametrize(("opening", "starts"), [("<think>\\n", True), ("<think>\\n</think>\\n", False), ("", False)])
def test_a_template_that_opens_a_thinking_block_is_noticed(opening: str, starts: bool) -> None:
    template = CHATML_TEMPLATE.replace("assistant\\n", "assistant\\n" + opening)
    with make_engine(template) as engine:
        assert engine.generate("hm", greedy(max_tokens=1)).starts_in_thinking is starts


def test_a_base_model_gets_plain_text_and_a_note() -> None:
    with make_engine(None) as engine:
        generation = engine.generate("Once upon", greedy(max_tokens=2))
        assert any("template" in note for note in generation.notes)
        assert generation.result.notes == generation.notes
        assert engine.vocabulary.decode(generation.prompt_ids) == "Once upon"


def test_a_seed_nobody_chose_is_drawn_and_told(engine: Engine) -> None:
    hot = SamplingOptions(temperature=2, top_k=0, top_p=1, min_p=0)
    first = engine.generate([5, 6], GenerateOptions(sampling=hot, max_tokens=20, ignore_end=True)).result
    seeded = SamplingOptions(temperature=2, top_k=0, top_p=1, min_p=0, seed=first.seed)
    again = engine.generate([5, 6], GenerateOptions(sampling=seeded, max_tokens=20, ignore_end=True)).result
    assert again.seed == first.seed
    assert again.ids == first.ids
    assert engine.generate([5, 6], GenerateOptions(max_tokens=0)).result.seed != first.seed


def test_closing_is_final_and_may_be_repeated() -> None:
    engine = make_engine()
    engine.close()
    engine.close()
    with pytest.raises(EngineClosedError):
        engine.generate([1])


def test_an_engine_nobody_holds_closes_itself() -> None:
    num_threads = threading.active_count()
    chunks = list(make_engine().generate([1, 2, 3], greedy(max_tokens=5, ignore_end=True)))
    assert len(chunks) == 5  # the generation kept it alive until then
    gc.collect()
    for thread in threading.enumerate():
        if thread.name == "tandem-engine":
            thread.join(30)
    assert threading.active_count() == num_threads


def test_the_engine_says_what_it_is(engine: Engine) -> None:
    assert engine.description is DESCRIPTION
    assert engine.notes == ("a note",)
    assert engine.context_size == 512
    assert engine.memory.total_bytes == engine.memory.weights_bytes + engine.memory.kv_bytes + 10
    assert "KV cache" in str(engine.memory)


def test_a_template_is_chosen_by_name_and_given_variables() -> None:
    metadata = byte_pair_vocabulary() | {
        "tokenizer.chat_template": CHATML_TEMPLATE,
        "tokenizer.chat_template.rag": "{{ messages[0].content }} {{ effort }}",
    }
    vocabulary = load_vocabulary(metadata)
    templates = load_chat_templates(metadata, vocabulary)
    with Engine(
        binding=FakeBinding(), vocabulary=vocabulary, chat_templates=templates, description=DESCRIPTION
    ) as engine:
        options = greedy(chat_template="rag", template_variables={"effort": "high"})
        assert vocabulary.decode(engine.encode("hello", options).ids) == "hello high"
        assert vocabulary.decode(engine.encode("hello").ids).startswith("user\nhello")
        with pytest.raises(OptionError, match=r"chat_template \(--chat-template\) is 'tools'; .*own \(default, rag\)"):
            engine.generate("hello", greedy(chat_template="tools"))


def test_tools_go_through_the_template_for_tools_unless_another_is_chosen() -> None:
    metadata = byte_pair_vocabulary() | {
        "tokenizer.chat_template": "plain {{ (tools or []) | length }}",
        "tokenizer.chat_template.tool_use": "with {{ tools | length }}",
    }
    vocabulary = load_vocabulary(metadata)
    templates, tools = load_chat_templates(metadata, vocabulary), {"tools": [{"name": "clock"}]}

    def prompt(templates: Mapping[str, ChatTemplate], **options: Any) -> str:
        encoder = PromptEncoder(vocabulary, templates, num_tokens=vocabulary.size)
        return vocabulary.decode(encoder.encode("hello", greedy(**options)).ids)

    assert prompt(templates, template_variables=tools) == "with 1"
    assert prompt(templates, template_variables={"tools": None, "date": "now"}).startswith("plain")
    assert prompt(templates, template_variables=tools, chat_template="default") == "plain 1"
    assert prompt({"default": templates["default"]}, template_variables=tools) == "plain 1"


@pytest.mark.parametrize("given", [{"messages": []}, {"add_generation_prompt": 1}, {"a b": 1}, [], {1: 2}])
def test_variables_that_no_template_may_be_given_are_refused(given: object) -> None:
    with pytest.raises(OptionError, match="chat-template-kwargs"):
        greedy(template_variables=given)
