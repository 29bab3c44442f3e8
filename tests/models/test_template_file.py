"""A chat template in a file of its own: what can be used, and what is refused before anything is loaded for it."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

import pytest
from tiny_models import CHATML_TEMPLATE
from words import byte_pair_metadata

from models.chat_template import Message
from models.errors import TemplateError
from models.template_file import check_template_file, read_template_file

METADATA = byte_pair_metadata()
LOOP = "{% for m in messages %}\n"


def checked(path: Path, source: str | bytes) -> Path:
    path.write_bytes(source if isinstance(source, bytes) else source.encode())
    check_template_file(read_template_file(path), METADATA)
    return path


def test_a_file_renders_with_the_models_special_tokens(tmp_path: Path) -> None:
    path = checked(tmp_path / "a b [c].jinja", b"\xef\xbb\xbf" + (CHATML_TEMPLATE + "{{ eos_token + '!' }}").encode())
    found = read_template_file(path)
    assert found.sha256 == sha256(path.read_bytes()).hexdigest() and found.source.startswith(CHATML_TEMPLATE)
    template = found.template({"eos_token": "<end>"})
    assert template.render([Message(role="user", content="Hi")]).text.endswith("<end>!")
    template.close()


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("a\n" + LOOP + "{{ m.content }\n{% endfor %}", "is no valid template: line 3: unexpected '}'"),
        (LOOP + "{{ m.content }}", "is no valid template: line"),
        ("a\nb\n" + LOOP + "{{ m.content + 1 }}{% endfor %}", "failed: line 4: TypeError"),
        (LOOP + "{{ m.content }}\n{{ m.image.url }}{% endfor %}", "do not have: line 3: "),
        ("{{ raise_exception('no chats here') }}", "refuses these messages: no chats here. It was tried"),
        ("{{ ().__class__.__base__ }}", "reaches for what no template may have"),
        (LOOP + "{% for n in range(99999) %}{% for o in range(99999) %}{% endfor %}{% endfor %}{% endfor %}", "busy"),
        ("Hello", "does not write every message's content ({{ message.content }})"),
        ("{{ messages[-1].content }}", "does not write every message's content"),
        (b"\xff\xfe{\0", "is no text in UTF-8 (byte 0 is 0xff): save it as UTF-8."),
        (b" \n", "is empty"),
        (b"x" * (1 << 20) + b"y", "has more than 1,048,576 bytes"),
    ],
)
def test_what_cannot_be_used_is_told_with_its_file_and_line(tmp_path: Path, source: str | bytes, words: str) -> None:
    path = tmp_path / "mine.jinja"
    with pytest.raises(TemplateError) as caught:
        checked(path, source)
    sentence = str(caught.value)
    assert sentence.startswith(f"The chat template file '{path}' ") and words in sentence and "\n" not in sentence
    assert "model's chat template" not in sentence


def test_what_is_no_file_is_told(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, words in (
        ("none", "can't be read: No such file"),
        (".", "can't be read: Is a directory"),
        ("pipe", "can't be read: it is no regular file"),
        ("a\0", "no possible path"),
    ):
        with pytest.raises(TemplateError, match=words):
            read_template_file(tmp_path / name)
