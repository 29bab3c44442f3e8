"""Renderings equal to Hugging Face's, written by scripts/make_template_golden.py: own templates, and real ones."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from template_features import CHATS, FEATURES, NOW, TOKENS
from words import DATA, child, real_words, template, user

from models.errors import TemplateError
from models.known_templates import KNOWN_GOOD, is_known_good
from models.template_sandbox import Renderer, RenderRequest

IN_PROCESS = Renderer()
Render = Callable[[RenderRequest], str]


@lru_cache
def golden() -> dict[str, Any]:
    return json.loads(gzip.decompress((DATA / "templates.json.gz").read_bytes()))


def rendered(render: Render, source: str, chat: str) -> str | None:
    """What becomes of a chat; None where the template refuses or fails."""
    variables = {**TOKENS, "tools": None, "documents": None, **copy.deepcopy(CHATS[chat])}
    try:
        return render(RenderRequest(source=source, variables=variables, now=NOW, max_characters=1 << 20))
    except TemplateError:
        return None


@pytest.mark.parametrize("place", ["this process", "child"])
@pytest.mark.parametrize("feature", list(FEATURES))
def test_what_templates_do_is_done_as_the_reference_does_it(feature: str, place: str) -> None:
    render = IN_PROCESS.render if place == "this process" else child().render
    found = {chat: rendered(render, FEATURES[feature], chat) for chat in CHATS}
    assert found == golden()["own"][feature]
    assert any(found.values())


@pytest.mark.parametrize("name", ["smollm2-135m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"])
def test_real_templates_are_rendered_as_the_reference_does_it(name: str, model_path: Callable[[str], Path]) -> None:
    found = real_words(model_path(name))[1]
    assert found is not None
    expected = golden()["published"][sha256(found.source.removesuffix("\n").encode()).hexdigest()]["renderings"]
    texts = {chat: rendered(IN_PROCESS.render, found.source, chat) for chat in CHATS}
    assert {
        chat: None if text is None else sha256(text.encode()).hexdigest()[:16] for chat, text in texts.items()
    } == expected
    assert sum(text is not None for text in texts.values()) >= 15


def test_what_renders_in_this_process_was_compared_with_the_reference() -> None:
    published = golden()["published"]
    assert published.keys() == KNOWN_GOOD
    assert len({entry["name"] for entry in published.values()}) >= 70
    assert all(entry["renderings"].keys() == CHATS.keys() for entry in published.values())
    assert not is_known_good("{{ messages }}")


@pytest.mark.parametrize("chosen", [True, False, None])
def test_thinking_is_switched_under_each_of_its_names(chosen: bool | None) -> None:
    source = "{{ thinking is defined and thinking }}{{ enable_thinking is defined and enable_thinking }}"
    text = template(source).render([user("hello")], enable_thinking=chosen).text
    assert text == f"{chosen is True}{chosen is True}"
