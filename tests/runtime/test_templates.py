"""Which chat template a model is loaded with, and that a wrong choice ends the load before anything is packed."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest
from tiny_models import CHATML_TEMPLATE, byte_pair_vocabulary, write_tiny_model

from models.description import BASE_MODEL_NOTE
from models.errors import TemplateError
from runtime import Engine, EngineOptions, Message, OptionError
from runtime.before_loading import fingerprint_of
from runtime.bills import bill_of
from runtime.files import read_facts

PLAIN = "{% for m in messages %}[{{ m.content }}]{% endfor %}{{ flavour }}"
ASKED = [Message(role="user", content="fox")]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    named = {"tokenizer.chat_template": CHATML_TEMPLATE, "tokenizer.chat_template.rag": PLAIN}
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny.gguf", metadata=named)


@pytest.fixture
def template(tmp_path: Path) -> Path:
    path = tmp_path / "mine.jinja"
    path.write_text(PLAIN)
    return path


def refusal(model: Path, **options: object) -> str:
    """What loading says; nothing may have been begun by then."""

    def began(stage: str, done: int, total: int) -> None:
        raise AssertionError(f"{stage} began")

    with pytest.raises((OptionError, TemplateError)) as caught:
        Engine.load(model, EngineOptions(threads=1, **options), began)  # type: ignore[arg-type]
    return str(caught.value)


def test_a_name_that_there_is_not_ends_the_load(model: Path, template: Path, tmp_path: Path) -> None:
    told = refusal(model, chat_template="chatml")
    assert "(--chat-template) is 'chatml'; expected one of the model's own (default, rag)" in told
    assert "--chat-template-file FILE" in told
    told = refusal(model, chat_template="rag", chat_template_file=template)
    assert "is 'rag'; expected default, or nothing beside --chat-template-file" in told
    base = write_tiny_model(tmp_path / "base.gguf", metadata={"tokenizer.chat_template": ""})
    assert "the model has no template of its own" in refusal(base, chat_template="default")


def test_a_file_that_cannot_be_used_ends_the_load_and_the_bill(model: Path, template: Path) -> None:
    template.write_text("{% for m in messages %}\n{{ m.content }}\n{% endif %}")
    assert "line 3" in refusal(model, chat_template_file=template)
    with pytest.raises(TemplateError, match="line 3"):
        bill_of(model, EngineOptions(threads=1, chat_template_file=template))


def test_the_files_template_takes_the_place_of_the_models_own(model: Path, template: Path) -> None:
    options = EngineOptions(threads=1, chat_template="default", chat_template_file=template)
    with Engine.load(model, options) as engine:
        decoded = engine.vocabulary.decode(engine.encode(ASKED).ids)
        assert (list(engine.chat_templates), decoded) == (["default"], "[fox]")
        assert engine.description.chat_template_sha256 == read_sha256(template)
    with Engine.load(model, EngineOptions(threads=1, chat_template="rag")) as engine:
        assert list(engine.chat_templates) == ["default", "rag"] and engine.description.chat_template_sha256 is None


def test_a_base_model_with_a_template_is_none_without(tmp_path: Path, template: Path) -> None:
    path = write_tiny_model(tmp_path / "base.gguf", metadata={**byte_pair_vocabulary(), "tokenizer.chat_template": ""})
    with Engine.load(path, EngineOptions(threads=1)) as engine:
        assert BASE_MODEL_NOTE in engine.notes
    with Engine.load(path, EngineOptions(threads=1, chat_template_file=template)) as engine:
        assert BASE_MODEL_NOTE not in engine.notes
        assert engine.encode(ASKED).notes == ()
    facts = read_facts(path, chat_template_file=template)
    assert BASE_MODEL_NOTE not in facts.notes and facts.template_variables == ("flavour",)


def test_the_file_belongs_to_what_a_batch_was_begun_with(model: Path, template: Path) -> None:
    before = fingerprint_of(model, chat_template_file=template)
    assert before != fingerprint_of(model) and read_sha256(template) in before
    template.write_text(PLAIN + "!")
    assert fingerprint_of(model, chat_template_file=template) != before


def read_sha256(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()
