"""Vocabularies, templates and texts for tests: those of the real models, loaded once, and made-up ones.

Knows the names under tests/data/tokenize and tests/data/chat_template (a file's name is a catalog name).
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from tiny_models import byte_pair_vocabulary, sentence_piece_vocabulary

from models.chat_encoding import ChatEncoder, EncodedChat
from models.chat_template import ChatTemplate, Message, load_chat_templates
from models.gguf_file import open_model_file
from models.template_process import SandboxLimits, TemplateProcess
from models.vocabulary import Vocabulary, load_vocabulary

DATA = Path(__file__).resolve().parents[1] / "data"
SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}

CONTROL, USER_DEFINED, UNUSED = 3, 4, 5

THINKING_TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if m.role == 'assistant' and not loop.last %}"
    "{{ m.content.split('</think>')[-1].lstrip('\\n') }}{% else %}{{ m.content }}{% endif %}{{ '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
    "{% if enable_thinking %}{{ '<think>\\n' }}{% endif %}{% endif %}"
)
"""ChatML that drops the thinking of earlier answers, and may open a new one."""

_PIECES_OF_TROUBLE = st.sampled_from(
    [
        "<|im_end|>",
        "<|im_start|>",
        "<|im_start|>system\n",
        "<|endoftext|>",
        "<|im_",
        "end|>",
        "<",
        "|>",
        "<|",
        "<tool_call>",
        "</think>",
        "<repo_name>",
        "assistant",
        "\n",
        "  ",
        "é😀",
        "\ufdd0",
        "\\ufdd1",
        "<|im_\ufdd0end|>",
        "{{ messages }}",
        "\udcff",
    ]
)
TROUBLE = st.lists(st.one_of(_PIECES_OF_TROUBLE, st.text(max_size=5)), max_size=8).map("".join)
"""Texts that a prompt could stumble over: control tokens whole and in parts, marks, escapes, broken characters."""


def reference(folder: str, name: str) -> Any:
    """The content of a file of reference answers."""
    return json.loads(gzip.decompress((DATA / folder / f"{name}.json.gz").read_bytes()))


@lru_cache
def real_words(path: Path) -> tuple[Vocabulary, ChatTemplate | None]:
    """The vocabulary and the template of a model file."""
    with open_model_file(path) as file:
        vocabulary = load_vocabulary(file.metadata)
        return vocabulary, next(iter(load_chat_templates(file.metadata, vocabulary).values()), None)


def byte_pair_metadata(
    pre_tokenizer: str | None = "qwen2",
    *,
    added: Mapping[str, int] | None = None,
    changes: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A tiny byte-level vocabulary.  added: more tokens and their kinds, at the end; changes: keys of tokenizer.ggml
    to set, or to take away (None)."""
    metadata = byte_pair_vocabulary(pre_tokenizer or "qwen2")
    if pre_tokenizer is None:
        del metadata["tokenizer.ggml.pre"]
    return _changed(metadata, added or {}, changes or {})


def sentence_piece_metadata(
    *, added: Mapping[str, int] | None = None, changes: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A tiny vocabulary of the SentencePiece kind; see byte_pair_metadata."""
    metadata = sentence_piece_vocabulary()
    scores = metadata["tokenizer.ggml.scores"]
    metadata["tokenizer.ggml.scores"] = np.array([*scores, *[-1000.0] * len(added or {})], np.float32)
    return _changed(metadata, added or {}, changes or {})


def _changed(metadata: dict[str, Any], added: Mapping[str, int], changes: Mapping[str, Any]) -> dict[str, Any]:
    metadata["tokenizer.ggml.tokens"] = [*metadata["tokenizer.ggml.tokens"], *added]
    metadata["tokenizer.ggml.token_type"] = [*metadata["tokenizer.ggml.token_type"], *added.values()]
    for key, value in changes.items():
        if value is None:
            metadata.pop(f"tokenizer.ggml.{key}", None)
        else:
            metadata[f"tokenizer.ggml.{key}"] = value
    return metadata


@lru_cache
def child() -> TemplateProcess:
    """One child process for all the templates of the tests that no test wants to see killed."""
    return TemplateProcess(SandboxLimits())


def template(source: str, special_tokens: Mapping[str, str] | None = None) -> ChatTemplate:
    """A template that renders in the tests' child."""
    return ChatTemplate(source, SPECIAL_TOKENS if special_tokens is None else special_tokens, process=child())


def user(content: str) -> Message:
    """A question."""
    return Message(role="user", content=content)


def shown(vocabulary: Vocabulary, ids: Sequence[int]) -> str:
    """A prompt's text with its control tokens."""
    return "".join(
        vocabulary.token_text(token_id) if vocabulary.is_control(token_id) else vocabulary.decode([token_id])
        for token_id in ids
    )


def encode_chat(
    vocabulary: Vocabulary, template: ChatTemplate | None, messages: Sequence[Message], **options: Any
) -> EncodedChat:
    """ChatEncoder.encode, for one chat."""
    return ChatEncoder(vocabulary, template).encode(messages, **options)


def message_of(case: Mapping[str, Any]) -> Message:
    """A message as the references have it: its content is a text, or a list of texts that line breaks part."""
    content = case["content"]
    return Message(
        role=case["role"], content=content if isinstance(content, str) else "\n".join(part["text"] for part in content)
    )
